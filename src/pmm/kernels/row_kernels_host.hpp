#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Element-wise work on rows of dense blocks, on host processors: raw pointers, compiled once for each
// instruction set. All sets give the same bits: no sum depends on the length of a vector, and a product and a
// sum are never contracted.
//
// T: of the numbers of matrices; Sum = runtime::SumOf<T>: of everything else. Numbers of 16 bits are widened as they are
// loaded, and rounded once as they are stored.

#include "runtime/instruction_sets.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::pmm::host_rows {

/// to(i, j) := M scale f(from(i, j) + bias(j)), f = relu or the identity; M = 0 where word (feature mod 4) of
/// Philox4x32-10(counter = (feature / 4, row_keys(i)), key) is below `threshold`, feature = first_column + j,
/// else 1. Matrices are contiguous; may alias. If asked for, bit j of the words of row i tells whether to(i, j) > 0.
template<class T>
struct HostActivation {
  std::int64_t num_columns = 0;
  T const* from = nullptr;
  T* to = nullptr;
  runtime::SumOf<T> const* bias = nullptr; // [columns], null: none
  std::int64_t const* row_keys = nullptr;  // [rows], null: M = 1
  std::uint64_t first_column = 0;
  std::uint64_t key = 0;
  std::uint32_t threshold = 0;
  runtime::SumOf<T> scale = 1;
  bool has_relu = false;
  std::uint32_t* passed = nullptr; // [rows x words], null: not wanted
};

/// gradient(i, j) := active(i, j) > 0 ? scale gradient(i, j) : 0;   sums(j) := sum_i gradient(i, j)
/// (long_sums.hpp). What is active may be given by the bits of HostActivation.
template<class T>
struct HostActivationBackward {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  T const* active = nullptr; // null: by bits
  T* gradient = nullptr;
  runtime::SumOf<T>* sums = nullptr; // [columns], null: not wanted
  runtime::SumOf<T> scale = 1;
  std::uint32_t const* passed = nullptr; // [rows x words]
};

/// RMSNorm, ReLU and dropout of rows (models/layers/rms_norm.hpp has the formulas):
///
///   result(i, j) := [addend(i, j) +] M keep_scale max(n_ij, 0)      n_ij = r_i z_ij factors(j)
///
/// M as in HostActivation: 0 if a word is at most `last_dropped`. All sums over a row are taken in its order.
template<class T>
struct HostNorm {
  using Sum = runtime::SumOf<T>;
  std::int64_t num_columns = 0;
  T const* z = nullptr;
  Sum const* factors = nullptr; // [columns]
  Sum inverse_width = 0;        // 1 / columns of all ranks
  Sum epsilon = 0;
  Sum keep_scale = 1;
  bool has_squares = false;               // inverse_rms holds the sums of squares over all ranks
  Sum* inverse_rms = nullptr;             // [rows] := r
  std::uint32_t* passed = nullptr;        // [rows x words] := a bit per element: M n > 0
  std::int64_t const* row_keys = nullptr; // [rows], null: M = 1
  std::uint64_t first_column = 0;
  std::uint64_t key = 0;
  std::uint32_t last_dropped = 0;
  T const* addend = nullptr; // null: none; may be the result
  T* result = nullptr;
};

/// dn_ij = keep_scale gradient(i, j) where `passed`, else 0:
///
///   row_sums(i) := r_i sum_j dn_ij factors(j) z_ij               factor_gradient(j) := sum_i dn_ij r_i z_ij
///   z_gradient(i, j) := r_i (dn_ij factors(j) - z_ij r_i row_sums(i) inverse_width)
template<class T>
struct HostNormBackward {
  using Sum = runtime::SumOf<T>;
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  T const* z = nullptr;
  Sum const* factors = nullptr;
  Sum inverse_width = 0;
  Sum keep_scale = 1;
  Sum const* inverse_rms = nullptr;
  std::uint32_t const* passed = nullptr;
  T const* gradient = nullptr;
  Sum* row_sums = nullptr;
  T* z_gradient = nullptr; // may be the gradient
  Sum* factor_gradient = nullptr;
  bool sums_rows = false; // normalise_backward, called for all columns, takes the row sums in passing
};

/// The three passes of a softmax loss (row_loss_kernels.hpp) on rows. With a gradient, rows without label
/// or not of group 0 do not count: they cost nothing but the zeros of their gradient.
template<class T>
struct HostSoftmax {
  std::size_t num_columns = 0;
  T const* logits = nullptr;
  T* row_max = nullptr;                  // [rows]
  T* packed = nullptr;                   // [rows x 2] sum_j exp(z_ij - m_i), sum_j q_ij (z_ij - m_i)
  T* gradient = nullptr;                 // null: no gradient, and all rows count; may be the logits
  std::int8_t const* groups = nullptr;   // [rows]
  std::int32_t const* classes = nullptr; // [rows]
  std::int64_t first_class = 0;
  T scale = 0;
  T of_label = 1; // q_ij = of_label [j = y] + of_classes
  T of_classes = 0;
};

/// ELU of an array of numbers: to := z > 0 ? z : exp(z) - 1; or, with a gradient, gradient (z > 0 ? 1 : exp(z)). May alias.
template<class T>
struct HostElu {
  T const* z = nullptr;
  T const* gradient = nullptr;
  T* to = nullptr;
};

template<class T>
struct HostRowKernels {
  /// Rows [begin, end).
  void (*activate)(HostActivation<T> const&, std::int64_t begin, std::int64_t end);
  /// All rows of columns [begin, end).
  void (*activate_backward)(HostActivationBackward<T> const&, std::int64_t begin, std::int64_t end);
  /// inverse_rms(i) := sum_j z_ij^2, rows [begin, end).
  void (*square_rows)(HostNorm<T> const&, std::int64_t begin, std::int64_t end);
  /// The rest, rows [begin, end).
  void (*normalise)(HostNorm<T> const&, std::int64_t begin, std::int64_t end);
  /// row_sums, rows [begin, end).
  void (*sum_norm_gradient)(HostNormBackward<T> const&, std::int64_t begin, std::int64_t end);
  /// z_gradient and factor_gradient (long_sums.hpp), all rows of columns [begin, end).
  void (*normalise_backward)(HostNormBackward<T> const&, std::int64_t begin, std::int64_t end);
  /// row_max(i) := the largest of row i, -infinity of none. A NaN is no maximum.
  using Softmax = HostSoftmax<runtime::SumOf<T>>;
  void (*find_maxima)(Softmax const&, std::int64_t begin, std::int64_t end);
  /// packed, and gradient(i, j) := exp(z_ij - m_i) if there is one. A NaN reaches the sum.
  void (*sum_exponentials)(Softmax const&, std::int64_t begin, std::int64_t end);
  /// gradient(i, j) := scale (gradient(i, j) / packed(i, 0) - [j = y_i]), 0 in rows that do not count.
  void (*finish_gradient)(Softmax const&, std::int64_t begin, std::int64_t end);
  /// Numbers [begin, end).
  using Elu = HostElu<runtime::SumOf<T>>;
  void (*elu)(Elu const&, std::int64_t begin, std::int64_t end);
  void (*elu_backward)(Elu const&, std::int64_t begin, std::int64_t end);
};

/// Those of one instruction set.
template<runtime::InstructionSet set, class T>
[[nodiscard]] HostRowKernels<T> row_kernels();

/// Those of every instruction set of this build that the processor has, the widest last.
template<class T>
[[nodiscard]] std::vector<HostRowKernels<T>> supported_row_kernels() {
  return runtime::for_supported_sets([](auto set) { return row_kernels<set.value, T>(); });
}

template<class T>
[[nodiscard]] HostRowKernels<T> const& best_row_kernels() {
  static auto const best = supported_row_kernels<T>().back();
  return best;
}

} // namespace orthant::pmm::host_rows
