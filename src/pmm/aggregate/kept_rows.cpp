// SPDX-License-Identifier: Apache-2.0
#include "pmm/aggregate/kept_rows.hpp"

#include "pmm/aggregate/aggregate_steps.hpp"
#include "runtime/comm/collectives.hpp"

#include <numeric>

namespace orthant::pmm {
namespace {

using Counts = std::vector<std::int64_t>;

/// The flags of all ranks of an axis, one after the other.
KeptFlags gathered(Communicator const& axis, KeptFlags const& own, Counts const& counts) {
  KeptFlags all(static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})));
  runtime::all_gatherv(runtime::host, axis, own, all, counts);
  return all;
}

std::vector<LocalColumn> places_of(KeptFlags const& flags) {
  return places_where(std::ssize(flags), [&](std::size_t i) { return flags[i] != 0; });
}

} // namespace

KeptRows share_kept_rows(ProcessGrid const& grid, Roles const& roles, CellSizes const& sizes,
                         KeptFlags const& own) {
  ORTHANT_REQUIRE(sizes.rows_over_b.empty(), "cells of which a part is kept already");
  ORTHANT_REQUIRE(std::ssize(own) == sizes.over_b[static_cast<std::size_t>(grid.coordinate(roles.b))],
                  own.size(), " flags for the rows of a cell");
  auto const slab = gathered(grid.over(roles.b), own, sizes.over_b);
  KeptRows kept;
  kept.own = places_of(own);
  kept.in_columns = places_of(gathered(grid.over(roles.c), slab, sizes.over_c));
  kept.in_rows = places_of(gathered(grid.over(roles.a), slab, sizes.over_a));
  kept.num_global = runtime::all_reduced(grid.group(), std::ssize(kept.own));
  return kept;
}

KeptFlags rows_touched_by(ProcessGrid const& grid, Roles const& roles, CellSizes const& sizes,
                          HostPattern const& pattern, KeptRows const& kept) {
  KeptFlags touched(static_cast<std::size_t>(sizes.num_columns()));
  for (auto const row : kept.in_rows) {
    auto const i = static_cast<std::size_t>(row);
    for (auto k = pattern.row_offsets[i]; k < pattern.row_offsets[i + 1]; ++k)
      touched[static_cast<std::size_t>(pattern.columns[static_cast<std::size_t>(k)])] = 1;
  }
  // Ranks that differ in b have the same block, so the slab of (a, c) is known to all its owners.
  auto const c = grid.coordinate(roles.c);
  KeptFlags slab(static_cast<std::size_t>(sizes.over_c[static_cast<std::size_t>(c)]));
  runtime::reduce_scatterv(runtime::host, grid.over(roles.c), touched, slab, sizes.over_c,
                           runtime::Reduction::max);
  auto const own = range_of(sizes.over_b, grid.coordinate(roles.b));
  return {slab.begin() + own.begin, slab.begin() + own.end};
}

CellSizes sizes_of_kept(ProcessGrid const& grid, Roles const& roles, CellSizes const& sizes,
                        KeptRows const& columns, KeptRows const& rows) {
  auto const before_c = range_of(sizes.over_c, grid.coordinate(roles.c)).begin;
  auto const before_a = range_of(sizes.over_a, grid.coordinate(roles.a)).begin;
  return {counts_by_slab(columns.in_columns, sizes.over_b, before_c),
          counts_by_slab(columns.in_columns, sizes.over_c), counts_by_slab(rows.in_rows, sizes.over_a),
          counts_by_slab(rows.in_rows, sizes.over_b, before_a)};
}

} // namespace orthant::pmm
