// SPDX-License-Identifier: Apache-2.0
#include "models/batches/batch_plan.hpp"

#include "models/gnn/memory_estimate.hpp"
#include "models/plan/block_counts.hpp"

#include <cmath>
#include <utility>

namespace orthant::models {
namespace {

using pmm::NeededCounts;

/// Along an axis, if a vertex has `degree` neighbors in the batch, which lie at random. `own`: this rank's place; the rows
/// of its own slab have self loops, or do not move. Few rows are rounded so that their sums are right: over a rank's counts, and, as each
/// rank of the grid begins with another `remainder`, over ranks that expect the same.
std::optional<NeededCounts> expected_counts(std::vector<std::int64_t> const& slab_rows, int own,
                                            double degree, double remainder, pmm::Gather gather) {
  auto const num_ranks = slab_rows.size();
  auto const coverage = 1 - std::exp(-degree / static_cast<double>(num_ranks));
  if (num_ranks < 2 || (gather == pmm::Gather::automatic && coverage >= pmm::most_coverage)) return {};
  auto const place = static_cast<std::size_t>(own);
  auto const own_rows = slab_rows[place];
  NeededCounts counts;
  auto left_of_touched = remainder; // by rounding
  auto left_of_asked = remainder;
  auto const take = [&](std::int64_t rows, double& left) {
    left += coverage * static_cast<double>(rows);
    auto const whole = std::llround(left);
    left -= static_cast<double>(whole);
    return std::int64_t{whole};
  };
  for (std::size_t other = 0; other < num_ranks; ++other) {
    counts.touched.push_back(other == place ? own_rows : take(slab_rows[other], left_of_touched));
    counts.asked.push_back(other == place ? own_rows : take(own_rows, left_of_asked));
  }
  return counts;
}

/// At least -1/2 and less than 1/2, 0 of rank 0; spread evenly over any number of ranks (multiples of the golden ratio, modulo 1).
double remainder_of(int rank) {
  auto const multiple = 0.6180339887498949 * rank + 0.5;
  return multiple - std::floor(multiple) - 0.5;
}

pmm::NeededCountsOfAxes expected_needed(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                        graph::StoreFacts const& of_batch, NetworkPlan const& plan,
                                        pmm::Gather gather) {
  auto const& owners = plan.layers.front().owners;
  if (!owners || gather_of(plan, gather) == pmm::Gather::all) return {};
  auto const& roles = owners->roles;
  auto const cells = pmm::contiguous_cells(shape, coordinates, roles, of_batch.num_vertices);
  auto const degree = static_cast<double>(of_batch.num_entries - of_batch.num_self_loops) /
                      static_cast<double>(of_batch.num_vertices);
  auto const remainder = remainder_of(rank_within(shape, coordinates, pmm::group_axes));
  return {expected_counts(cells.over_c, coordinates.along(roles.c), degree, remainder, gather),
          expected_counts(cells.over_a, coordinates.along(roles.a), degree, remainder, gather)};
}

} // namespace

NetworkPlan plan_of_batch(NetworkPlan const& plan, std::int64_t num_vertices, pmm::GridShape const& shape,
                          pmm::Coordinates const& coordinates, CountOwnRows const& count) {
  auto of_batch = plan_of_batch(plan, num_vertices);
  auto const own = [&](pmm::AxisSet axes, pmm::IndexOrder order) {
    return pmm::OwnRange{rank_within(shape, coordinates, axes), {0, count(axes, order)}};
  };
  for_each_vertex_matrix(of_batch, [&](pmm::Placement& placement) {
    placement.own_rows = own(placement.layout.rows, placement.layout.row_order);
  });
  for (auto& layer : of_batch.layers)
    if (!layer.owners && layer.aggregates())
      layer.adjacency.own_columns = own(layer.adjacency.layout.columns, layer.adjacency.layout.column_order);
  return of_batch;
}

NetworkEpochTraits traits_of_batch(graph::StoreFacts const& of_batch, pmm::GridShape const& shape,
                                   pmm::Coordinates const& coordinates, NetworkPlan const& plan,
                                   NetworkSettings const& settings, bool shares_transposes) {
  auto traits = traits_of(of_batch, shape, coordinates, plan, settings);
  traits.keeps_first_aggregate = false; // every batch has another A~
  if (!plan.drops_edges) return traits;
  auto const are_shared =
      of_batch.is_symmetric && shares_transposes && of_batch.normalization != graph::Normalization::row;
  if (!plan.layers.front().owners)
    traits.dropped = sampled_blocks(shape, coordinates, of_batch, plan, are_shared);
  traits.num_dropped_ways = 2; // a transpose lies apart from its block
  return traits;
}

PlannedBatch expected_batch(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                            graph::StoreFacts const& facts, NetworkPlan const& plan,
                            NetworkSettings const& settings, std::int64_t num_vertices) {
  auto const of_batch = facts_of_batch(facts, num_vertices);
  auto batch_plan = plan_of_batch(plan, of_batch.num_vertices);
  auto traits = traits_of_batch(of_batch, shape, coordinates, batch_plan, settings, true);
  traits.needed = expected_needed(shape, coordinates, of_batch, batch_plan, settings.gather);
  return {std::move(batch_plan), std::move(traits)};
}

} // namespace orthant::models
