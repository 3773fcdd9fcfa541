// SPDX-License-Identifier: Apache-2.0
//
// Ring and 2D grid.
#include "graph/generate/generators.hpp"
#include "runtime/numbers/bijection.hpp"
#include "runtime/numbers/random.hpp"

#include <cmath>

namespace orthant::graph::detail {

namespace {

/// Row-major points, `width` a row, the last row perhaps shorter.
struct Grid {
  std::int64_t num_vertices;
  std::int64_t width;
  std::int64_t num_rows;

  explicit Grid(std::int64_t n) : num_vertices(n) {
    width = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
    num_rows = (n + width - 1) / width;
  }
  [[nodiscard]] bool has_right(std::int64_t vertex) const {
    return vertex % width + 1 < width && vertex + 1 < num_vertices;
  }
  [[nodiscard]] bool has_below(std::int64_t vertex) const { return vertex + width < num_vertices; }
  [[nodiscard]] std::int64_t num_edges() const { return 2 * num_vertices - width - num_rows; }
};

} // namespace

std::int64_t count_grid2d_edges(std::int64_t num_vertices) {
  return Grid(num_vertices).num_edges();
}

EdgePart grid2d_edges(GeneratorOptions const& options, Share share) {
  Grid const grid(options.num_vertices);
  // Columns and the first row span the grid with n - 1 edges; of the other horizontal ones, numbered row by
  // row, those are kept that a random order puts first.
  auto const num_spanning = grid.num_vertices - 1;
  auto const num_candidates = grid.num_edges() - num_spanning;
  auto const num_kept = options.num_edges - num_spanning;
  runtime::KeyedBijection const order(
      static_cast<std::uint64_t>(std::max<std::int64_t>(num_candidates, 1)),
      runtime::RandomStream(options.seed, runtime::Purpose::generator_edges).key());
  auto const keeps_right = [=](std::int64_t vertex) {
    if (vertex < grid.width || num_kept == num_candidates) return true;
    auto const candidate = (vertex / grid.width - 1) * (grid.width - 1) + vertex % grid.width;
    return static_cast<std::int64_t>(order(static_cast<std::uint64_t>(candidate))) < num_kept;
  };
  auto const vertices = runtime::balanced_range(options.num_vertices, share.count, share.index);
  return computed_edges(vertices, 2, [=](Range range, std::vector<Edge>& edges) {
    for (auto vertex = range.begin; vertex < range.end; ++vertex) {
      if (grid.has_right(vertex) && keeps_right(vertex)) edges.push_back({vertex, vertex + 1});
      if (grid.has_below(vertex)) edges.push_back({vertex, vertex + grid.width});
    }
  });
}

EdgePart ring_edges(GeneratorOptions const& options, Share share) {
  auto const n = options.num_vertices;
  auto const indices = runtime::balanced_range(options.num_edges, share.count, share.index);
  auto part = computed_edges(indices, 1, [n](Range range, std::vector<Edge>& edges) {
    for (auto index = range.begin; index < range.end; ++index)
      edges.push_back({index % n, (index % n + 1 + index / n) % n});
  });
  part.num_local_edges = indices.size();
  return part;
}

} // namespace orthant::graph::detail
