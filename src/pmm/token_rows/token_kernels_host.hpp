#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Norms of rows, activations and dropout of tokens on host processors: raw pointers, compiled once for each instruction set.
// All sets give the same bits: no sum depends on the length of a vector, and a product and a sum are never contracted.

#include "runtime/instruction_sets.hpp"

#include <cstdint>
#include <vector>

namespace orthant::pmm::host_tokens {

/// LayerNorm or RMSNorm (row_norm.hpp has the formulas). Matrices are contiguous [rows x num_columns].
template<class T>
struct HostRowNorm {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  double inverse_width = 1;
  double epsilon = 0;
  bool has_mean = true;
  bool is_whole = false; // this rank has whole rows: part 2 takes the sums itself
  T const* x = nullptr;
  T const* scale = nullptr;
  T const* shift = nullptr; // null: none
  T* mean = nullptr;        // null: none
  T* inverse_deviation = nullptr;
  T* sums = nullptr; // [rows x 2 or 1]
  T* y = nullptr;
  // Backward.
  T const* dy = nullptr;
  bool adds = false; // dx is added to
  T* dx = nullptr;   // may be dy
  T* d_scale = nullptr;
  T* d_shift = nullptr; // null: not wanted
};

/// to := [base +] M from (residual.hpp). A number is dropped if its word is at most last_dropped.
template<class T>
struct HostDrop {
  std::int64_t num_columns = 0;
  T const* base = nullptr; // null: none
  T const* from = nullptr;
  T* to = nullptr;
  std::int64_t const* token_ids = nullptr; // null: nothing is dropped
  std::uint64_t first_column = 0;
  std::uint64_t key = 0;
  std::uint32_t last_dropped = 0;
  T keep_scale = 1;
};

/// Element-wise functions of feed_forward.hpp. In single precision, with u = 2^-24: GELU within 6 u |z|, its derivative within
/// 6 u, the logistic function within 4 u of itself.
template<class T>
struct HostFeedForward {
  T const* z = nullptr;
  T const* dy = nullptr; // backward
  T* result = nullptr;   // y, or dz
};

template<class T>
struct HostTokenKernels {
  /// Rows [begin, end).
  void (*sum_moments)(HostRowNorm<T> const&, std::int64_t begin, std::int64_t end);
  void (*apply_norm)(HostRowNorm<T> const&, std::int64_t begin, std::int64_t end);
  void (*sum_norm_gradient)(HostRowNorm<T> const&, std::int64_t begin, std::int64_t end);
  /// All rows of columns [begin, end). Takes the row sums in passing if `is_whole`; then it is called for all columns, at
  /// most columns_of_norm.
  void (*norm_backward)(HostRowNorm<T> const&, std::int64_t begin, std::int64_t end);
  /// Rows [begin, end).
  void (*drop)(HostDrop<T> const&, std::int64_t begin, std::int64_t end);
  /// Numbers of y [begin, end).
  void (*gelu)(HostFeedForward<T> const&, std::int64_t begin, std::int64_t end);
  void (*gelu_backward)(HostFeedForward<T> const&, std::int64_t begin, std::int64_t end);
  void (*swiglu)(HostFeedForward<T> const&, std::int64_t begin, std::int64_t end);
  void (*swiglu_backward)(HostFeedForward<T> const&, std::int64_t begin, std::int64_t end);
};

/// Columns whose two sums are taken at a time: they stay in the first cache (long_sums.hpp).
inline constexpr std::int64_t columns_of_norm = 256;

/// Those of one instruction set.
template<runtime::InstructionSet set, class T>
[[nodiscard]] HostTokenKernels<T> token_kernels();

/// Those of every instruction set of this build that the processor has, the widest last.
template<class T>
[[nodiscard]] std::vector<HostTokenKernels<T>> supported_token_kernels() {
  return runtime::for_supported_sets([](auto set) { return token_kernels<set.value, T>(); });
}

template<class T>
[[nodiscard]] HostTokenKernels<T> const& best_token_kernels() {
  static auto const best = supported_token_kernels<T>().back();
  return best;
}

} // namespace orthant::pmm::host_tokens
