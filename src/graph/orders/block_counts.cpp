// SPDX-License-Identifier: Apache-2.0
#include "graph/orders/block_counts.hpp"

#include "graph/store/vertex_owners.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace orthant::graph {
namespace {

using runtime::balanced_part;
using runtime::balanced_range;

/// Of a vertex on a grid G x 1 x G of the schedule rows.
struct Cell {
  std::int64_t a;
  std::int64_t c;
};

Cell cell_of(std::int64_t num_vertices, std::int64_t grid, std::int64_t position) {
  auto const c = balanced_part(num_vertices, grid, position);
  auto const part = balanced_range(num_vertices, grid, c);
  return {balanced_part(part.size(), grid, position - part.begin), c};
}

constexpr std::uint32_t bit(std::int64_t place) {
  return std::uint32_t{1} << place;
}

/// Of the bits of each grid.
constexpr auto first_bits = [] {
  std::array<std::int64_t, statistics_grids.size()> firsts{};
  std::exclusive_scan(statistics_grids.begin(), statistics_grids.end(), firsts.begin(), std::int64_t{0});
  return firsts;
}();
static_assert(first_bits.back() + statistics_grids.back() <= 32);

double balance_of(std::vector<std::int64_t> const& blocks) {
  auto const sum = std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
  auto const largest = *std::max_element(blocks.begin(), blocks.end());
  return sum == 0
             ? 1
             : static_cast<double>(largest) * static_cast<double>(blocks.size()) / static_cast<double>(sum);
}

std::int64_t count_bits(std::vector<std::uint32_t> const& masks, std::uint32_t field) {
  return std::accumulate(
      masks.begin(), masks.end(), std::int64_t{0},
      [field](std::int64_t count, std::uint32_t mask) { return count + std::popcount(mask & field); });
}

} // namespace

BlockCounts::BlockCounts(runtime::Communicator const& comm, std::int64_t num_vertices)
    : comm_(comm),
      num_vertices_(num_vertices),
      mine_(balanced_range(num_vertices, comm.size(), comm.rank())),
      gather_(static_cast<std::size_t>(mine_.size())),
      sum_(static_cast<std::size_t>(mine_.size())),
      outbox_(comm.size(), 4 * records_per_round(comm)) {
  for (std::size_t g = 0; g < num_grids; ++g) {
    pmm3d_[g].resize(static_cast<std::size_t>(statistics_grids[g] * statistics_grids[g]));
    rows_[g].resize(pmm3d_[g].size());
  }
}

void BlockCounts::add(Positions row, Positions column) {
  Needed of_row{row.p1, 0, 0};
  Needed of_column{column.p1, 0, 0};
  for (std::size_t g = 0; g < num_grids; ++g) {
    auto const grid = statistics_grids[g];
    auto const i = balanced_part(num_vertices_, grid, row.p1);
    auto const j = balanced_part(num_vertices_, grid, column.p2);
    ++pmm3d_[g][static_cast<std::size_t>(i * grid + j)];

    auto const there = cell_of(num_vertices_, grid, row.p1);
    auto const here = cell_of(num_vertices_, grid, column.p1);
    ++rows_[g][static_cast<std::size_t>(there.c * grid + here.a)];
    if (there.c != here.c) of_column.gather |= bit(first_bits[g] + there.c);
    if (there.a != here.a) of_row.sum |= bit(first_bits[g] + here.a);
  }
  tell(of_row);
  tell(of_column);
}

void BlockCounts::tell(Needed const& needed) {
  if (needed.gather != 0 || needed.sum != 0)
    outbox_.push(block_owner(num_vertices_, comm_.size(), needed.position), needed);
}

void BlockCounts::deliver() {
  bool ignored = false;
  for (auto const& needed : outbox_.deliver(comm_, ignored)) {
    auto const place = static_cast<std::size_t>(needed.position - mine_.begin);
    gather_[place] |= needed.gather;
    sum_[place] |= needed.sum;
  }
}

std::array<GridStatistics, 4> BlockCounts::finish() {
  std::array<GridStatistics, 4> result;
  for (std::size_t g = 0; g < num_grids; ++g) {
    runtime::all_reduce(runtime::host, comm_, pmm3d_[g]);
    runtime::all_reduce(runtime::host, comm_, rows_[g]);
    auto const grid = statistics_grids[g];
    auto const field = (bit(grid) - 1) << first_bits[g];
    std::array needed{count_bits(gather_, field), count_bits(sum_, field)};
    runtime::all_reduce(runtime::host, comm_, std::span(needed));
    auto const all = static_cast<double>(num_vertices_) * static_cast<double>(grid - 1);
    result[g] = {balance_of(pmm3d_[g]), balance_of(rows_[g]), static_cast<double>(needed[0]) / all,
                 static_cast<double>(needed[1]) / all};
  }
  return result;
}

} // namespace orthant::graph
