#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Host kernels of row norms, activations and dropout on raw pointers, compiled once for each instruction set. All sets give
// the same bits: no sum depends on the vector length, and products and sums are never contracted to FMA.

#include "runtime/instruction_sets.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstdint>
#include <vector>

namespace orthant::pmm::host_tokens {

/// Arguments of LayerNorm or RMSNorm (equations: row_norm.hpp). Matrices are contiguous [rows x num_columns].
template<class T>
struct HostRowNorm {
  using Sum = runtime::SumOf<T>;
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  double inverse_width = 1;
  double epsilon = 0;
  bool has_mean = true;
  bool is_whole = false;  // this rank has whole rows, so part 2 forms the sums itself
  bool has_state = false; // mean and inverse_deviation are those of an earlier call
  T const* x = nullptr;
  Sum const* scale = nullptr;
  Sum const* shift = nullptr; // null if there is none
  Sum* mean = nullptr;        // null if there is none
  Sum* inverse_deviation = nullptr;
  Sum* sums = nullptr; // [rows x 2 or 1]
  T* y = nullptr;
  // Backward.
  T const* dy = nullptr;
  bool adds = false; // add to dx instead of overwriting it
  T* dx = nullptr;   // may be dy
  Sum* d_scale = nullptr;
  Sum* d_shift = nullptr; // null if not wanted
};

/// to := [base +] M from (feed_forward.hpp). An element is dropped if its random word is at most last_dropped.
template<class T>
struct HostDrop {
  std::int64_t num_columns = 0;
  T const* base = nullptr; // null if there is none
  T const* from = nullptr;
  T* to = nullptr;
  std::int64_t const* token_ids = nullptr; // null if nothing is dropped
  std::uint64_t first_column = 0;
  std::uint64_t key = 0;
  std::uint32_t last_dropped = 0;
  T keep_scale = 1;
};

/// Arguments of the activations of feed_forward.hpp. Error bounds in single precision, with u = 2^-24: 6 u |z| for GELU, 6 u for its
/// derivative, and a relative error of 4 u for the logistic function.
template<class T>
struct HostFeedForward {
  T const* z = nullptr;
  T const* dy = nullptr; // backward only
  T* result = nullptr;   // y, or dz
};

template<class T>
struct HostTokenKernels {
  /// Rows [begin, end) of the forward pass, and part 1 of the backward pass.
  void (*sum_moments)(HostRowNorm<T> const&, std::int64_t begin, std::int64_t end);
  void (*apply_norm)(HostRowNorm<T> const&, std::int64_t begin, std::int64_t end);
  void (*sum_norm_gradient)(HostRowNorm<T> const&, std::int64_t begin, std::int64_t end);
  /// All rows of columns [begin, end). If `is_whole`, it also forms the row sums; then one call must cover all columns, of
  /// which there may be at most columns_of_norm.
  void (*norm_backward)(HostRowNorm<T> const&, std::int64_t begin, std::int64_t end);
  /// Rows [begin, end).
  using Drop = HostDrop<runtime::SumOf<T>>;
  void (*drop)(Drop const&, std::int64_t begin, std::int64_t end);
  /// Elements [begin, end) of y.
  using FeedForward = HostFeedForward<runtime::SumOf<T>>;
  void (*gelu)(FeedForward const&, std::int64_t begin, std::int64_t end);
  void (*gelu_backward)(FeedForward const&, std::int64_t begin, std::int64_t end);
  void (*swiglu)(FeedForward const&, std::int64_t begin, std::int64_t end);
  void (*swiglu_backward)(FeedForward const&, std::int64_t begin, std::int64_t end);
};

/// Number of columns whose two sums are formed at a time; the sums stay in the first-level cache (long_sums.hpp).
inline constexpr std::int64_t columns_of_norm = 256;

/// The kernels of one instruction set.
template<runtime::InstructionSet set, class T>
[[nodiscard]] HostTokenKernels<T> token_kernels();

/// The kernels of every instruction set of this build that the processor supports, the widest last.
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
