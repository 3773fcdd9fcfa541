#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Host kernels of edge products, scores and softmax on raw pointers, compiled once for each instruction set (equations:
// edge_products.hpp, edge_softmax.hpp). All heads of a row are computed together, because their values are contiguous: an
// edge is read once, in whole vectors.

#include "runtime/instruction_sets.hpp"

#include <cstdint>
#include <vector>

namespace orthant::pmm::host_edges {

/// The slope of leaky(z) for z <= 0; it is 1 for z > 0.
inline constexpr double negative_slope = 0.2;

/// Lists of the edges of each row of a block, or of each column. Entry e of list k, offsets[k] <= e < offsets[k + 1], has the
/// other end others[e]. Arrays of edges are [edges x num_heads]; arrays of rows and columns are [.. x num_heads x width].
struct HostEdges {
  std::int64_t const* offsets = nullptr;
  std::int32_t const* others = nullptr;
  std::int64_t const* places = nullptr; // null if entry e is edge e
  std::int64_t num_heads = 1;
  std::int64_t width = 1;

  [[nodiscard]] std::int64_t edge(std::int64_t entry) const {
    return places == nullptr ? entry : places[entry];
  }
};

/// The term of features of edges in the argument of leaky: sum_f values(e, f) factors(f, h, c). `count` 0: none.
template<class T>
struct HostEdgeFeatures {
  T const* values = nullptr;  // [edges x count]
  T const* factors = nullptr; // [count x num_heads x width], rows `stride` apart
  std::int64_t count = 0;
  std::int64_t stride = 0;
};

/// values := <x of the row, y of the column>.
template<class T>
struct HostDots {
  HostEdges edges;
  T const* x = nullptr;
  T const* y = nullptr;
  T* values = nullptr;
};

/// values := sum_c factors(h, c) leaky(left + right + features).
template<class T>
struct HostDynamicScores {
  HostEdges edges;
  T const* left = nullptr;
  T const* right = nullptr;
  T const* factors = nullptr; // [num_heads x width]
  T* values = nullptr;
  HostEdgeFeatures<T> features{};
};

/// `own` is the end that a list belongs to, and z = own + other + features. If `terms` is null, result is added to (+=):
///   result := factors * sum of gradient leaky'(z)
///   terms  := sum of gradient leaky(z)
template<class T>
struct HostDynamicBackward {
  HostEdges edges;
  T const* own = nullptr;
  T const* other = nullptr;
  T const* factors = nullptr; // [num_heads x width]
  T const* gradient = nullptr;
  T* result = nullptr;
  T* terms = nullptr;
  HostEdgeFeatures<T> features{};
};

/// result of list k := sum of w(values) * operand of the other ends.
template<class T>
struct HostSums {
  HostEdges edges;
  T const* values = nullptr;
  T factor = 1;
  T const* operand = nullptr;
  T* result = nullptr;
  bool are_signed = false; // w(v) = factor v, also of negative values
};

/// Scores of GAT: z = s of the row + t of the column + features; width is 1.
template<class T>
struct HostStaticScores {
  HostEdges edges;
  T const* s = nullptr;
  T const* t = nullptr;
  T* values = nullptr;      // leaky(z); backward: multiplied by leaky'(z)
  T* sums = nullptr;        // backward only: the sum of values of each list
  T* column_sums = nullptr; // backward only: if not null, each value is also added to the sum of its column
  HostEdgeFeatures<T> features{};
};

/// Softmax of each row, and its adjoint. `offsets` are the row offsets of the block.
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

/// Table of kernels. Each works on the lists [begin, end). weighted_sums, sum_edges and dynamic_scores_backward follow
/// `places`; the others need lists by row.
template<class T>
struct HostEdgeKernels {
  void (*dots)(HostDots<T> const&, std::int64_t begin, std::int64_t end);
  void (*weighted_sums)(HostSums<T> const&, std::int64_t begin, std::int64_t end);
  void (*static_scores)(HostStaticScores<T> const&, std::int64_t begin, std::int64_t end);
  /// Multiplies `values` by the derivative of LeakyReLU at z, and adds up the rows. Not thread-safe if `column_sums` is set.
  void (*static_scores_backward)(HostStaticScores<T> const&, std::int64_t begin, std::int64_t end);
  /// The sums of columns, from lists by column.
  void (*sum_edges)(HostStaticScores<T> const&, std::int64_t begin, std::int64_t end);
  void (*dynamic_scores)(HostDynamicScores<T> const&, std::int64_t begin, std::int64_t end);
  void (*dynamic_scores_backward)(HostDynamicBackward<T> const&, std::int64_t begin, std::int64_t end);
  void (*find_maxima)(HostSoftmax<T> const&, std::int64_t begin, std::int64_t end);
  /// values := exp(values - maxima), and the sums of the new values.
  void (*exponentials)(HostSoftmax<T> const&, std::int64_t begin, std::int64_t end);
  /// values /= sums.
  void (*shares)(HostSoftmax<T> const&, std::int64_t begin, std::int64_t end);
  /// find_maxima, exponentials and shares together, for rows of which this rank has all edges. Each row stays in the cache.
  /// Does not write maxima and sums.
  void (*softmax)(HostSoftmax<T> const&, std::int64_t begin, std::int64_t end);
  /// sums := sum of w(values) gradient.
  void (*gradient_sums)(HostSoftmaxBackward<T> const&, std::int64_t begin, std::int64_t end);
  /// gradient := values (factor gradient - sums); for dropped edges values * sums.
  void (*score_gradients)(HostSoftmaxBackward<T> const&, std::int64_t begin, std::int64_t end);
  /// gradient_sums and score_gradients together, for rows of which this rank has all edges. Does not write sums.
  void (*softmax_backward)(HostSoftmaxBackward<T> const&, std::int64_t begin, std::int64_t end);
};

/// The kernels of one instruction set.
template<runtime::InstructionSet set, class T>
[[nodiscard]] HostEdgeKernels<T> edge_kernels();

/// The kernels of every instruction set of this build that the processor supports, the widest last.
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
