#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Element-wise work on rows of dense blocks, on host processors: raw pointers, compiled once for each
// instruction set. All sets give the same bits: no sum depends on the length of a vector, and a product and a
// sum are never contracted.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::pmm::host_rows {

/// to(i, j) := M scale f(from(i, j) + bias(j)), f = relu or the identity; M = 0 where word (feature mod 4) of
/// Philox4x32-10(counter = (feature / 4, row_keys(i)), key) is below `threshold`, feature = first_column + j,
/// else 1. Matrices are contiguous; may alias.
template<class T>
struct HostActivation {
  std::int64_t num_columns = 0;
  T const* from = nullptr;
  T* to = nullptr;
  T const* bias = nullptr;                // [columns], null: none
  std::int64_t const* row_keys = nullptr; // [rows], null: M = 1
  std::uint64_t first_column = 0;
  std::uint64_t key = 0;
  std::uint32_t threshold = 0;
  T scale = 1;
  bool has_relu = false;
};

/// gradient(i, j) := active(i, j) > 0 ? scale gradient(i, j) : 0;   sums(j) := sum_i gradient(i, j)
/// (long_sums.hpp).
template<class T>
struct HostActivationBackward {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  T const* active = nullptr;
  T* gradient = nullptr;
  T* sums = nullptr; // [columns], null: not wanted
  T scale = 1;
};

/// The three passes of a softmax loss (row_loss_kernels.hpp) on rows. With a gradient, rows without label
/// or not of group 0 do not count: they cost nothing but the zeros of their gradient.
template<class T>
struct HostSoftmax {
  std::size_t num_columns = 0;
  T const* logits = nullptr;
  T* row_max = nullptr;                  // [rows]
  T* packed = nullptr;                   // [rows x 2] sum_j exp(z_ij - m_i), z_iy - m_i
  T* gradient = nullptr;                 // null: no gradient, and all rows count; may be the logits
  std::int8_t const* groups = nullptr;   // [rows]
  std::int32_t const* classes = nullptr; // [rows]
  std::int64_t first_class = 0;
  T scale = 0;
};

template<class T>
struct HostRowKernels {
  /// Rows [begin, end).
  void (*activate)(HostActivation<T> const&, std::int64_t begin, std::int64_t end);
  /// All rows of columns [begin, end).
  void (*activate_backward)(HostActivationBackward<T> const&, std::int64_t begin, std::int64_t end);
  /// row_max(i) := the largest of row i, -infinity of none. A NaN is no maximum.
  void (*find_maxima)(HostSoftmax<T> const&, std::int64_t begin, std::int64_t end);
  /// packed, and gradient(i, j) := exp(z_ij - m_i) if there is one. A NaN reaches the sum.
  void (*sum_exponentials)(HostSoftmax<T> const&, std::int64_t begin, std::int64_t end);
  /// gradient(i, j) := scale (gradient(i, j) / packed(i, 0) - [j = y_i]), 0 in rows that do not count.
  void (*finish_gradient)(HostSoftmax<T> const&, std::int64_t begin, std::int64_t end);
};

template<class T>
[[nodiscard]] HostRowKernels<T> row_kernels_baseline();
template<class T>
[[nodiscard]] HostRowKernels<T> row_kernels_avx2();
template<class T>
[[nodiscard]] HostRowKernels<T> row_kernels_avx512();

/// Those of every instruction set of this build that the processor has, the widest last.
template<class T>
[[nodiscard]] std::vector<HostRowKernels<T>> supported_row_kernels();

template<class T>
[[nodiscard]] HostRowKernels<T> best_row_kernels() {
  return supported_row_kernels<T>().back();
}

} // namespace orthant::pmm::host_rows
