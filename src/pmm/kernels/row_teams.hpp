#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Work of a device on whole rows of a row-major block: a row is a thread's, whose vector lanes share its
// columns, so that neighbouring lanes read neighbouring numbers and a sum over the row takes a few exchanges
// of registers. A row that is read again within one body is found in the first cache.

#include "runtime/arrays/views.hpp"

#include <algorithm>
#include <cstdint>

namespace orthant::pmm {

using RowTeamPolicy = Kokkos::TeamPolicy<runtime::DefaultExec>;
using RowTeam = typename RowTeamPolicy::member_type;

/// body(team, row) for the rows of a team, each by one thread with all its lanes.
template<class Body>
struct EachRow {
  Body body;
  std::int64_t num_rows;
  std::int64_t rows_per_team;

  KOKKOS_FUNCTION void operator()(RowTeam const& team) const {
    auto const begin = static_cast<std::int64_t>(team.league_rank()) * rows_per_team;
    auto const count = num_rows - begin < rows_per_team ? num_rows - begin : rows_per_team;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(count)),
                         [&](int i) { body(team, begin + i); });
  }
};

/// Calls body(team, row) for every row. `num_items` is what the lanes of a thread share in a row: there are
/// as many lanes, rounded to a power of two, up to a warp. Enqueues on exec; does not fence.
template<class Body>
void for_each_row(runtime::DefaultExec const& exec, char const* label, std::int64_t num_rows,
                  std::int64_t num_items, Body const& body) {
  constexpr int longest_vector = 32;
  constexpr int lanes_per_team = 256; // eight warps
  constexpr int rows_per_thread = 4;  // a team takes less time to start than to run
  if (num_rows == 0) return;
  int num_lanes = 1;
  while (num_lanes < longest_vector && num_lanes < num_items)
    num_lanes *= 2;
  EachRow<Body> rows{body, num_rows, 1};
  auto const most_threads =
      RowTeamPolicy(exec, 1, 1, num_lanes).team_size_max(rows, Kokkos::ParallelForTag());
  auto const num_threads = std::min(lanes_per_team / num_lanes, most_threads);
  rows.rows_per_team = num_threads * rows_per_thread;
  auto const num_teams = (num_rows + rows.rows_per_team - 1) / rows.rows_per_team;
  Kokkos::parallel_for(label, RowTeamPolicy(exec, static_cast<int>(num_teams), num_threads, num_lanes), rows);
}

} // namespace orthant::pmm
