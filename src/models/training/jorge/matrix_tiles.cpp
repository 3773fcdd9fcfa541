// SPDX-License-Identifier: Apache-2.0
#include "models/training/jorge/matrix_tiles.hpp"

#include "pmm/matrix/relayout_moves.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace orthant::models {
namespace {

/// Numbers of the states of a tile. The work of a step grows with them, too.
std::int64_t cost_of(Tile const& tile) {
  auto const m = tile.rows.size();
  auto const n = tile.columns.size();
  return 2 * m * n + m * m + n * n;
}

} // namespace

TiledMatrix tiled_matrix(pmm::StepPlan const& step, std::size_t parameter, pmm::Placement const& placement) {
  if (placement.is_elsewhere()) return {parameter, {}, {}};
  TiledMatrix matrix{parameter, placement.extents, step.block(placement)};
  if (placement.layout.storage != pmm::Storage::replicated) return matrix;
  auto const copies = placement.layout.third();
  matrix.is_first_copy = rank_within(step.shape(), step.coordinates(), copies) == 0;
  matrix.num_copies = step.shape().size(copies);
  return matrix;
}

std::vector<pmm::Extents> tile_extents(pmm::Extents const& matrix, std::int64_t side) {
  std::vector<pmm::Extents> all;
  for (std::int64_t i = 0; i < matrix.rows; i += side)
    for (std::int64_t j = 0; j < matrix.columns; j += side)
      all.push_back({std::min(side, matrix.rows - i), std::min(side, matrix.columns - j)});
  return all;
}

std::vector<Tile> deal_tiles(std::vector<TiledMatrix> const& matrices, std::int64_t side, int num_owners) {
  std::vector<Tile> tiles;
  for (std::size_t p = 0; p < matrices.size(); ++p) {
    auto const& [num_rows, num_columns] = matrices[p].extents;
    for (std::int64_t i = 0; i < num_rows; i += side)
      for (std::int64_t j = 0; j < num_columns; j += side)
        tiles.push_back({p, {i, std::min(i + side, num_rows)}, {j, std::min(j + side, num_columns)}});
  }
  std::vector<std::size_t> order(tiles.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t t) { return cost_of(tiles[t]); });
  using Load = std::pair<std::int64_t, int>; // cost so far, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int rank = 0; rank < num_owners; ++rank)
    loads.emplace(0, rank);
  for (auto const t : order) {
    auto const [cost, rank] = loads.top();
    loads.pop();
    tiles[t].owner = rank;
    loads.emplace(cost + cost_of(tiles[t]), rank);
  }
  return tiles;
}

std::vector<TilePart> parts_of(pmm::Block const& piece, Tile const& tile) {
  std::vector<TilePart> parts;
  for (auto const& [rows, columns] : pmm::detail::rectangles_of(piece, pmm::Storage::flat_sharded)) {
    TilePart const part{intersection(rows, tile.rows), intersection(columns, tile.columns)};
    if (part.size() > 0) parts.push_back(part);
  }
  return parts;
}

TileSizes sizes_of(std::vector<TiledMatrix> const& matrices, std::vector<Tile> const& tiles, int own_rank) {
  TileSizes sizes;
  for (auto const& tile : tiles) {
    auto const& matrix = matrices[tile.matrix];
    std::int64_t stored = 0;
    for (auto const& part : parts_of(matrix.piece, tile))
      stored += part.size();
    if (tile.owner != own_rank) {
      sizes.num_foreign += stored;
      if (matrix.is_first_copy) sizes.num_given += stored;
      continue;
    }
    auto const m = tile.rows.size();
    auto const n = tile.columns.size();
    sizes.num_owned += tile.size();
    sizes.num_left += m * m;
    sizes.num_right += n * n;
    sizes.longest_side = std::max({sizes.longest_side, m, n});
    sizes.num_kept += stored;
    auto const counted = matrix.is_first_copy ? stored : 0;
    sizes.num_in_own += counted;
    sizes.num_taken += tile.size() - counted;
    sizes.num_returned += tile.size() * matrix.num_copies - stored;
    sizes.step_flops += 2 * m * n * (m + n);
    sizes.refresh_flops += 2 * m * n * (m + n) + 12 * (m * m * m + n * n * n);
  }
  return sizes;
}

} // namespace orthant::models
