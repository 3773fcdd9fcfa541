// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/statistics.hpp"

#include "graph/partition/permutation.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <iterator>
#include <limits>

namespace orthant::graph {
namespace {

constexpr std::size_t grid_of_choice = 2; // 8x8
static_assert(statistics_grids[grid_of_choice] == 8);

} // namespace

using runtime::host;

DegreeStatistics measure_degrees(runtime::Communicator const& comm, std::span<std::int64_t const> degrees) {
  // Classes are exact up to 1,024, where medians lie.
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
