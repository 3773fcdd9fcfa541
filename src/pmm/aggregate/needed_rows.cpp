// SPDX-License-Identifier: Apache-2.0
#include "pmm/aggregate/needed_rows.hpp"

#include "pmm/aggregate/aggregate_steps.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <array>
#include <limits>
#include <numeric>

namespace orthant::pmm {
namespace {

using Counts = std::vector<std::int64_t>;

/// Gathers the flags of all ranks of an axis, one rank after the other.
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
  // Ranks that differ in b have the same block, so all owners of the slab (a, c) get its flags.
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

namespace {

using Places = std::vector<LocalColumn>;

constexpr auto list_label = "orthant::pmm::needed_rows";

Places touched_columns(HostPattern const& pattern, std::int64_t num_columns) {
  std::vector<bool> is_touched(static_cast<std::size_t>(num_columns));
  for (auto const column : pattern.columns)
    is_touched[static_cast<std::size_t>(column)] = true;
  return places_where(num_columns, [&](std::size_t i) { return is_touched[i]; });
}

Places touched_rows(HostPattern const& pattern) {
  auto const& offsets = pattern.row_offsets;
  return places_where(std::ssize(offsets) - 1, [&](std::size_t i) { return offsets[i] < offsets[i + 1]; });
}

/// Numbers of rows in the slabs of other ranks: the rows that this rank touches, and all rows.
struct RowsOfOthers {
  std::int64_t touched = 0;
  std::int64_t all = 0;
};
RowsOfOthers rows_of_others(Counts const& touched, Counts const& slab_rows, int rank) {
  auto const of_others = [&](Counts const& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) -
           counts[static_cast<std::size_t>(rank)];
  };
  return {of_others(touched), of_others(slab_rows)};
}

// Measured on one busy host (2 ranks, slabs of 26 MB, Open MPI 4.1): an all_gather took 0.6 to 0.7 of the time of
// picking and exchanging all its rows. A reduce_scatter took three to five times as long as exchanging and adding
// all its rows. So most_coverage fits step 2 and is conservative for step 4.
bool moves_needed(Gather gather, std::optional<double> coverage) {
  return coverage && (gather == Gather::needed || *coverage < most_coverage);
}

/// Lists for each row of the slab its places in `asked`, in the order of the ranks (a transpose of `asked`).
void list_addends(Places const& asked, std::int64_t num_rows, NeededSlabs& slabs) {
  std::vector<Offset> offsets(static_cast<std::size_t>(num_rows) + 1);
  for (auto const row : asked)
    ++offsets[static_cast<std::size_t>(row) + 1];
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  std::vector<Offset> addends(asked.size());
  auto next = offsets;
  for (std::size_t place = 0; place < asked.size(); ++place)
    addends[static_cast<std::size_t>(next[static_cast<std::size_t>(asked[place])]++)] =
        static_cast<Offset>(place);
  slabs.addend_offsets = to_device(list_label, offsets);
  slabs.addends = to_device(list_label, addends);
}

/// Sends each rank of the axis the list of the rows of its slab that this rank's block touches.
NeededSlabs exchange_lists(Communicator const& axis, Places touched, Counts counts, Counts const& slab_rows) {
  Counts asked_counts(counts.size());
  runtime::all_to_all(runtime::host, axis, counts, asked_counts);
  auto within_slab = touched;
  auto place = within_slab.begin();
  auto begin = std::int64_t{0};
  for (std::size_t slab = 0; slab < slab_rows.size(); ++slab) {
    for (std::int64_t i = 0; i < counts[slab]; ++i)
      *place++ -= static_cast<LocalColumn>(begin);
    begin += slab_rows[slab];
  }
  Places asked(
      static_cast<std::size_t>(std::accumulate(asked_counts.begin(), asked_counts.end(), std::int64_t{0})));
  runtime::all_to_allv(runtime::host, axis, within_slab, counts, asked, asked_counts);

  NeededSlabs slabs;
  slabs.counts = {std::move(counts), std::move(asked_counts)};
  slabs.touched = std::move(touched);
  slabs.asked = to_device(list_label, asked);
  list_addends(asked, slab_rows[static_cast<std::size_t>(axis.rank())], slabs);
  return slabs;
}

} // namespace

Gather parse_gather(std::string_view word) {
  if (word == "auto") return Gather::automatic;
  if (word == "all") return Gather::all;
  if (word == "needed") return Gather::needed;
  runtime::throw_user("--gather is auto, all or needed, not '{}'", word);
}

NeededCountsOfAxes NeededRows::counts() const {
  auto const of = [](std::optional<NeededSlabs> const& axis) {
    return axis ? std::optional(axis->counts) : std::nullopt;
  };
  return {of(over_c), of(over_a)};
}

NeededRows plan_needed_rows(ProcessGrid const& grid, Roles const& roles, CellSizes const& sizes,
                            HostPattern const& pattern, Gather gather) {
  NeededRows needed;
  if (gather == Gather::all) return needed;
  Places columns;
  Places rows;
  runtime::together(grid.group(), [&] {
    ORTHANT_REQUIRE(std::ssize(pattern.row_offsets) == sizes.num_rows() + 1, "a pattern of ",
                    std::ssize(pattern.row_offsets) - 1, " rows for cells of ", sizes.num_rows());
    ORTHANT_REQUIRE(sizes.num_rows() <= std::numeric_limits<LocalColumn>::max(), sizes.num_rows(),
                    " rows of a block are too many for --gather; take more ranks, or --gather all");
    columns = touched_columns(pattern, sizes.num_columns());
    rows = touched_rows(pattern);
  });
  auto column_counts = counts_by_slab(columns, sizes.over_c);
  auto row_counts = counts_by_slab(rows, sizes.over_a);
  auto const of_c = rows_of_others(column_counts, sizes.over_c, grid.coordinate(roles.c));
  auto const of_a = rows_of_others(row_counts, sizes.over_a, grid.coordinate(roles.a));
  std::array sums{of_c.touched, of_c.all, of_a.touched, of_a.all};
  runtime::all_reduce(runtime::host, grid.group(), std::span(sums));

  auto const share = [](std::int64_t touched, std::int64_t all) {
    return all > 0 ? std::optional(static_cast<double>(touched) / static_cast<double>(all)) : std::nullopt;
  };
  needed.coverage_c = share(sums[0], sums[1]);
  needed.coverage_a = share(sums[2], sums[3]);
  if (moves_needed(gather, needed.coverage_c))
    needed.over_c =
        exchange_lists(grid.over(roles.c), std::move(columns), std::move(column_counts), sizes.over_c);
  if (moves_needed(gather, needed.coverage_a))
    needed.over_a = exchange_lists(grid.over(roles.a), std::move(rows), std::move(row_counts), sizes.over_a);
  return needed;
}

void keep_needed(NeededRows const& needed, HostPattern const& pattern) {
  if (needed.over_c && !needed.over_c->touched.empty()) {
    auto const& touched = needed.over_c->touched;
    Places place_of(static_cast<std::size_t>(touched.back()) + 1);
    for (std::size_t i = 0; i < touched.size(); ++i)
      place_of[static_cast<std::size_t>(touched[i])] = static_cast<LocalColumn>(i);
    for (auto& column : pattern.columns)
      column = place_of[static_cast<std::size_t>(column)];
  }
  if (needed.over_a) {
    // Only the offsets of touched rows are kept, because other rows have no entries.
    auto& offsets = pattern.row_offsets;
    auto const& touched = needed.over_a->touched;
    for (std::size_t i = 0; i < touched.size(); ++i)
      offsets[i + 1] = offsets[static_cast<std::size_t>(touched[i]) + 1];
    offsets.resize(touched.size() + 1);
  }
}

std::vector<double> keep_needed(std::optional<NeededSlabs> const& axis, std::vector<double> numbers) {
  return axis ? at_places(std::move(numbers), axis->touched) : numbers;
}

} // namespace orthant::pmm
