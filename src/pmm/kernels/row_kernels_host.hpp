#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Elementwise work on rows of dense blocks on host processors, on raw pointers, compiled once per instruction set. All instruction sets
// give the same bits: no sum depends on the vector length, and a product and a sum are never contracted.
//
// T is the type of the numbers of matrices; Sum = runtime::SumOf<T> is the type of all other numbers. 16-bit numbers are widened when
// they are loaded, and rounded once when they are stored.

#include "pmm/kernels/activation_functions.hpp"
#include "runtime/instruction_sets.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::pmm::host_rows {

/// to(i, j) := M scale f(from(i, j) + bias(j)), f = relu or the identity
///
/// M = 0 if word (feature mod 4) of Philox4x32-10(counter = (feature / 4, row_keys(i)), key) is below `threshold`, where
/// feature = first_column + j; otherwise M = 1. Matrices are contiguous and may alias. If `passed` is not null, it gets one bit per
/// element: bit j of row i := to(i, j) > 0.
template<class T>
struct HostActivation {
  std::int64_t num_columns = 0;
  T const* from = nullptr;
  T* to = nullptr;
  runtime::SumOf<T> const* bias = nullptr; // [columns], null if none
  std::int64_t const* row_keys = nullptr;  // [rows], null: M = 1
  std::uint64_t first_column = 0;
  std::uint64_t key = 0;
  std::uint32_t threshold = 0;
  runtime::SumOf<T> scale = 1;
  bool has_relu = false;
  std::uint32_t* passed = nullptr; // [rows x words], out, optional
};

/// gradient(i, j) := active(i, j) > 0 ? scale gradient(i, j) : 0;   sums(j) := sum_i gradient(i, j)
/// (long_sums.hpp). `passed` of HostActivation can replace `active`.
template<class T>
struct HostActivationBackward {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  T const* active = nullptr; // null: `passed` is used
  T* gradient = nullptr;
  runtime::SumOf<T>* sums = nullptr; // [columns], optional
  runtime::SumOf<T> scale = 1;
  std::uint32_t const* passed = nullptr; // [rows x words]
};

/// RMSNorm, ReLU and dropout of rows (models/layers/rms_norm.hpp has the formulas):
///
///   result(i, j) := [addend(i, j) +] M keep_scale max(n_ij, 0)      n_ij = r_i z_ij factors(j)
///
/// M as in HostActivation, but 0 if the word is at most `last_dropped`. Sums over a row add its columns in order.
template<class T>
struct HostNorm {
  using Sum = runtime::SumOf<T>;
  std::int64_t num_columns = 0;
  T const* z = nullptr;
  Sum const* factors = nullptr; // [columns]
  Sum inverse_width = 0;        // 1 / (number of columns of all ranks)
  Sum epsilon = 0;
  Sum keep_scale = 1;
  bool has_squares = false;               // if true, inverse_rms holds the sums of squares over all ranks
  Sum* inverse_rms = nullptr;             // [rows] := r
  std::uint32_t* passed = nullptr;        // [rows x words] := one bit per element: M n > 0
  std::int64_t const* row_keys = nullptr; // [rows], null: M = 1
  std::uint64_t first_column = 0;
  std::uint64_t key = 0;
  std::uint32_t last_dropped = 0;
  T const* addend = nullptr; // null if none; may be the result
  T* result = nullptr;
};

/// Backward pass of HostNorm. dn_ij = keep_scale gradient(i, j) if its bit of `passed` is set, otherwise 0:
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
  bool sums_rows = false; // if true, normalise_backward also computes row_sums; it must get all columns
};

/// Operands of the three passes of a softmax loss over rows (row_loss_kernels.hpp). If there is a gradient, rows without a label and
/// rows of groups other than 0 do not count: only zeros are written to their gradient.
template<class T>
struct HostSoftmax {
  std::size_t num_columns = 0;
  T const* logits = nullptr;
  T* row_max = nullptr;                  // [rows]
  T* packed = nullptr;                   // [rows x 2] sum_j exp(z_ij - m_i), sum_j q_ij (z_ij - m_i)
  T* gradient = nullptr;                 // null: no gradient and all rows count; may be the logits
  std::int8_t const* groups = nullptr;   // [rows]
  std::int32_t const* classes = nullptr; // [rows]
  std::int64_t first_class = 0;
  T scale = 0;
  T of_label = 1; // q_ij = of_label w_y [j = y] + of_classes w_j
  T of_classes = 0;
  T const* class_weights = nullptr; // w of all classes, with their sum; null: all are 1
  T sum_of_weights = 0;
  T z_loss = 0; // c
};

/// f(z) or its derivative for an array of numbers (activation_functions.hpp). `to` may be z.
template<class T>
struct HostFunction {
  Activation kind = Activation::relu;
  T const* z = nullptr;
  T* to = nullptr;
};

template<class T>
struct HostRowKernels {
  /// HostActivation of rows [begin, end).
  void (*activate)(HostActivation<T> const&, std::int64_t begin, std::int64_t end);
  /// HostActivationBackward of all rows in columns [begin, end).
  void (*activate_backward)(HostActivationBackward<T> const&, std::int64_t begin, std::int64_t end);
  /// inverse_rms(i) := sum_j z_ij^2 for rows [begin, end).
  void (*square_rows)(HostNorm<T> const&, std::int64_t begin, std::int64_t end);
  /// All outputs of HostNorm for rows [begin, end). Computes the sums of squares unless has_squares is set.
  void (*normalise)(HostNorm<T> const&, std::int64_t begin, std::int64_t end);
  /// row_sums for rows [begin, end).
  void (*sum_norm_gradient)(HostNormBackward<T> const&, std::int64_t begin, std::int64_t end);
  /// z_gradient and factor_gradient (long_sums.hpp) for all rows in columns [begin, end).
  void (*normalise_backward)(HostNormBackward<T> const&, std::int64_t begin, std::int64_t end);
  /// row_max(i) := the largest number of row i, -infinity if it has none. NaNs are ignored.
  using Softmax = HostSoftmax<runtime::SumOf<T>>;
  void (*find_maxima)(Softmax const&, std::int64_t begin, std::int64_t end);
  /// Computes `packed`, and gradient(i, j) := exp(z_ij - m_i) if there is a gradient. NaNs propagate to the sum.
  void (*sum_exponentials)(Softmax const&, std::int64_t begin, std::int64_t end);
  /// gradient(i, j) := scale ((Q_i + 2 c L_i) gradient(i, j) / packed(i, 0) - q_ij), and 0 in rows that do not count.
  void (*finish_gradient)(Softmax const&, std::int64_t begin, std::int64_t end);
  /// Numbers [begin, end): to := f(z), or to := to f'(z).
  void (*apply_function)(HostFunction<T> const&, std::int64_t begin, std::int64_t end);
  void (*apply_derivative)(HostFunction<T> const&, std::int64_t begin, std::int64_t end);
};

/// Kernels of one instruction set.
template<runtime::InstructionSet set, class T>
[[nodiscard]] HostRowKernels<T> row_kernels();

/// Kernels of each instruction set of this build that the processor supports, the widest last.
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
