// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/statistics.hpp"

#include "graph/partition/permutation.hpp"
#include "graph/store/distribution.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <iterator>
#include <limits>
#include <numeric>

namespace orthant::graph {
namespace {

using runtime::balanced_part;
using runtime::balanced_range;

/// Cell of a vertex on a grid G x 1 x G of the schedule rows.
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

/// First bit of each grid.
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

namespace {

constexpr std::int64_t entries_per_window = 4096;
constexpr std::int64_t most_entries = std::int64_t{1} << 21;

} // namespace

RowReuse::RowReuse(runtime::Communicator const& comm, std::int64_t num_vertices, std::int64_t num_entries)
    : comm_(comm),
      rows_per_window_(std::max<std::int64_t>(1, entries_per_window * num_vertices /
                                                     std::max(num_entries, entries_per_window))),
      window_step_((num_entries + most_entries - 1) / most_entries),
      outbox_(comm.size(), 2 * records_per_round(comm)) {}

void RowReuse::add(std::int64_t row, std::int64_t column) {
  auto const window = row / rows_per_window_;
  if (window % window_step_ == 0)
    outbox_.push(static_cast<int>(window / window_step_ % comm_.size()), {window, column});
}

void RowReuse::deliver() {
  bool ignored = false;
  auto const arrived = outbox_.deliver(comm_, ignored);
  entries_.insert(entries_.end(), arrived.begin(), arrived.end());
}

double RowReuse::finish() {
  auto const num_entries = static_cast<std::int64_t>(entries_.size());
  std::ranges::sort(entries_);
  auto const repeats = std::ranges::unique(entries_);
  std::array counts{num_entries, num_entries - static_cast<std::int64_t>(repeats.size())};
  runtime::all_reduce(runtime::host, comm_, std::span(counts));
  return counts[0] == 0 ? 0 : static_cast<double>(counts[1]) / static_cast<double>(counts[0]);
}

namespace {

constexpr std::size_t grid_of_choice = 2; // 8x8
static_assert(statistics_grids[grid_of_choice] == 8);

} // namespace

using runtime::host;

DegreeStatistics measure_degrees(runtime::Communicator const& comm, std::span<std::int64_t const> degrees) {
  // Classes are exact up to 1,024, which includes the medians.
  std::vector<std::int64_t> classes(static_cast<std::size_t>(num_degree_classes()));
  std::vector<std::int64_t> powers(65);
  std::int64_t sum = 0;
  DegreeStatistics result;
  for (auto const degree : degrees) {
    ++classes[static_cast<std::size_t>(degree_class(degree))];
    ++powers[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(degree)))];
    sum += degree;
    result.max = std::max(result.max, degree);
  }
  runtime::all_reduce(host, comm, classes);
  runtime::all_reduce(host, comm, powers);
  result.max = runtime::all_reduced(comm, result.max, runtime::Reduction::max);
  sum = runtime::all_reduced(comm, sum);
  auto const num_vertices = runtime::all_reduced(comm, static_cast<std::int64_t>(degrees.size()));
  result.num_isolated = classes[0];
  result.mean = static_cast<double>(sum) / static_cast<double>(num_vertices);
  std::int64_t below = 0;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    below += classes[c];
    if (2 * below >= num_vertices) {
      result.median = static_cast<std::int64_t>(c);
      break;
    }
  }
  while (!powers.empty() && powers.back() == 0)
    powers.pop_back();
  result.by_power_of_two = powers;
  return result;
}

double gather_cost(PermutationStatistics const& order, std::int64_t num_vertices) {
  constexpr std::int64_t most_cached = std::int64_t{1} << 16; // vertices of 512 bytes
  auto const cost_of_fresh = num_vertices <= most_cached ? 0.4 : 2.0;
  return (1 + cost_of_fresh * order.fresh_share) * order.grids[grid_of_choice].rows_balance;
}

PermutationKind choose_order(std::span<PermutationStatistics const> orders, std::int64_t num_vertices) {
  constexpr auto most_coverage = 0.72;
  constexpr auto most_loss = 0.1;
  constexpr auto least_gain = 0.05;
  auto const find = [orders](PermutationKind kind) {
    auto const found = std::ranges::find(orders, kind, &PermutationStatistics::kind);
    return found == orders.end() ? nullptr : &*found;
  };
  auto const cost_of = [num_vertices](PermutationStatistics const* order) {
    return order == nullptr ? std::numeric_limits<double>::infinity() : gather_cost(*order, num_vertices);
  };
  auto const* const pieces = find(PermutationKind::pieces);
  auto const twofold = cost_of(find(PermutationKind::twofold));
  auto const cluster = cost_of(find(PermutationKind::cluster));
  if (pieces != nullptr) {
    auto const& grid = pieces->grids[grid_of_choice];
    if ((grid.gather_coverage + grid.sum_coverage) / 2 < most_coverage &&
        cost_of(pieces) <= (1 + most_loss) * std::min(twofold, cluster))
      return PermutationKind::pieces;
  }
  return cluster <= (1 - least_gain) * twofold ? PermutationKind::cluster : PermutationKind::twofold;
}

std::string format_statistics(GraphStatistics const& statistics, StoreFacts const& facts) {
  std::string text;
  auto const out = std::back_inserter(text);
  auto const& degrees = statistics.degrees;
  fmt::format_to(out, "degrees       mean {:.2f}, median {}, largest {}, {} vertices of degree 0\n",
                 degrees.mean, degrees.median, degrees.max, degrees.num_isolated);
  for (std::size_t power = 1; power < degrees.by_power_of_two.size(); ++power)
    fmt::format_to(out, "  {:>9} .. {:<9} {:>12}\n", std::int64_t{1} << (power - 1),
                   (std::int64_t{1} << power) - 1, degrees.by_power_of_two[power]);

  auto const heads = [&](int width) {
    text += "  permutation";
    for (auto const grid : statistics_grids)
      fmt::format_to(out, "{:>{}}", fmt::format("{}x{}", grid, grid), width);
    text += '\n';
  };
  text += "schedule pmm3d: non-zeros of A+I, largest block / mean block\n";
  heads(9);
  for (auto const& row : statistics.permutations) {
    fmt::format_to(out, "  {:<11}", name_of(row.kind));
    for (auto const& grid : row.grids)
      fmt::format_to(out, "{:>9.3f}", grid.pmm3d_balance);
    text += '\n';
  }
  text += "schedule rows: the same, and the shares of other ranks' rows that gather and sum need\n";
  heads(22);
  for (auto const& row : statistics.permutations) {
    fmt::format_to(out, "  {:<11}", name_of(row.kind));
    for (auto const& grid : row.grids)
      fmt::format_to(out, "{:>10.3f}{:>6.3f}{:>6.3f}", grid.rows_balance, grid.gather_coverage,
                     grid.sum_coverage);
    text += '\n';
  }

  text += "sparse products of one core: rows of the operand that are gathered anew / non-zeros, and the cost "
          "of gathers\n";
  for (auto const& row : statistics.permutations)
    fmt::format_to(out, "  {:<11}{:>9.3f}{:>9.2f}\n", name_of(row.kind), row.fresh_share,
                   gather_cost(row, facts.num_vertices));

  if (statistics.metis.empty()) return text;
  fmt::format_to(out, "METIS k-way\n  {:>6} {:>14} {:>14} {:>12} {:>9}\n", "parts", "cut edges",
                 "halo vertices", "halo / N", "balance");
  for (auto const& row : statistics.metis)
    fmt::format_to(out, "  {:>6} {:>14} {:>14} {:>12.3f} {:>9.3f}\n", row.num_parts, row.cut, row.volume,
                   static_cast<double>(row.volume) / static_cast<double>(facts.num_vertices), row.balance);
  return text;
}

} // namespace orthant::graph
