#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Attention's work on the edges of a block, on host processors: raw pointers, compiled once for each instruction set. Equations:
// edge_products.hpp, edge_softmax.hpp, edge_products.hpp. A device gives each head of a row a thread; here all heads of a row are
// computed at once, because their numbers lie side by side: an edge is read once, and in whole vectors.

#include "runtime/instruction_sets.hpp"

#include <cstdint>
#include <vector>

namespace orthant::pmm::host_edges {

/// The slope of leaky(z) where z <= 0; elsewhere it is 1.
inline constexpr double negative_slope = 0.2;

/// The edges of each row of a block, or of each column: list k leads to others[e], offsets[k] <= e < offsets[k + 1]. Numbers of
/// edges are [edges x num_heads], those of rows and columns [.. x num_heads x width].
struct HostEdges {
  std::int64_t const* offsets = nullptr;
  std::int32_t const* others = nullptr;
  std::int64_t const* places = nullptr; // null: entry e is edge e
  std::int64_t num_heads = 1;
  std::int64_t width = 1;

  [[nodiscard]] std::int64_t edge(std::int64_t entry) const {
    return places == nullptr ? entry : places[entry];
  }
};

/// values := <x of the row, y of the column>.
template<class T>
struct HostDots {
  HostEdges edges;
  T const* x = nullptr;
  T const* y = nullptr;
  T* values = nullptr;
};

/// values := sum_c factors(h, c) leaky(left + right).
template<class T>
struct HostDynamicScores {
  HostEdges edges;
  T const* left = nullptr;
  T const* right = nullptr;
  T const* factors = nullptr; // [num_heads x width]
  T* values = nullptr;
};

/// `own` is the end that a list belongs to, and z = own + other. result := factors sum of gradient leaky'(z), and terms := sum of
/// gradient leaky(z). If terms is null, the first sum is added to result.
template<class T>
struct HostDynamicBackward {
  HostEdges edges;
  T const* own = nullptr;
  T const* other = nullptr;
  T const* factors = nullptr; // [num_heads x width]
  T const* gradient = nullptr;
  T* result = nullptr;
  T* terms = nullptr;
};

/// result of list k := sum of w(values) operand of others.
template<class T>
struct HostSums {
  HostEdges edges;
  T const* values = nullptr;
  T factor = 1;
  T const* operand = nullptr;
  T* result = nullptr;
};

/// Scores of GAT: z = s of the row + t of the column; width is 1.
template<class T>
struct HostStaticScores {
  HostEdges edges;
  T const* s = nullptr;
  T const* t = nullptr;
  T* values = nullptr;      // leaky(z); backward: times leaky'(z)
  T* sums = nullptr;        // backward, of each list: the sum of values
  T* column_sums = nullptr; // backward: if not null, each value is added to the sum of its column, too
};

/// A softmax of each row, and its adjoint. `offsets` of rows.
template<class T>
struct HostSoftmax {
  std::int64_t const* offsets = nullptr;
  std::int64_t num_heads = 1;
  T* values = nullptr;
  T* maxima = nullptr; // [rows x num_heads]
  T* sums = nullptr;   // [rows x num_heads]
};
template<class T>
struct HostSoftmaxBackward {
  std::int64_t const* offsets = nullptr;
  std::int64_t num_heads = 1;
  T const* values = nullptr;
  T factor = 1;
  T* gradient = nullptr;
  T* sums = nullptr; // [rows x num_heads]
};

/// Each works on the lists [begin, end).
template<class T>
struct HostEdgeKernels {
  void (*dots)(HostDots<T> const&, std::int64_t begin, std::int64_t end);
  void (*weighted_sums)(HostSums<T> const&, std::int64_t begin, std::int64_t end);
  void (*static_scores)(HostStaticScores<T> const&, std::int64_t begin, std::int64_t end);
  /// values *= leaky'(z), and the sums of rows; and `column_sums`, by one thread alone.
  void (*static_scores_backward)(HostStaticScores<T> const&, std::int64_t begin, std::int64_t end);
  /// The sums of columns, from lists by column. This, weighted_sums and dynamic_scores_backward follow `places`; the others take lists
  /// by row.
  void (*sum_edges)(HostStaticScores<T> const&, std::int64_t begin, std::int64_t end);
  void (*dynamic_scores)(HostDynamicScores<T> const&, std::int64_t begin, std::int64_t end);
  void (*dynamic_scores_backward)(HostDynamicBackward<T> const&, std::int64_t begin, std::int64_t end);
  void (*find_maxima)(HostSoftmax<T> const&, std::int64_t begin, std::int64_t end);
  /// values := exp(values - maxima), and their sums.
  void (*exponentials)(HostSoftmax<T> const&, std::int64_t begin, std::int64_t end);
  /// values /= sums.
  void (*shares)(HostSoftmax<T> const&, std::int64_t begin, std::int64_t end);
  /// All three of whole rows, while they are in the cache. maxima and sums are not written.
  void (*softmax)(HostSoftmax<T> const&, std::int64_t begin, std::int64_t end);
  /// sums := sum of w(values) gradient.
  void (*gradient_sums)(HostSoftmaxBackward<T> const&, std::int64_t begin, std::int64_t end);
  /// gradient := values (factor gradient - sums), for dropped ones values * sums.
  void (*score_gradients)(HostSoftmaxBackward<T> const&, std::int64_t begin, std::int64_t end);
  /// Both of whole rows.
  void (*softmax_backward)(HostSoftmaxBackward<T> const&, std::int64_t begin, std::int64_t end);
};

/// Those of one instruction set.
template<runtime::InstructionSet set, class T>
[[nodiscard]] HostEdgeKernels<T> edge_kernels();

/// Those of every instruction set of this build that the processor has, the widest last.
template<class T>
[[nodiscard]] std::vector<HostEdgeKernels<T>> supported_edge_kernels() {
  return runtime::for_supported_sets([](auto set) { return edge_kernels<set.value, T>(); });
}

template<class T>
[[nodiscard]] HostEdgeKernels<T> const& best_edge_kernels() {
  static auto const best = supported_edge_kernels<T>().back();
  return best;
}

} // namespace orthant::pmm::host_edges
