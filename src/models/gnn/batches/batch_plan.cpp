// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/batches/batch_plan.hpp"

#include "graph/store/listed_block.hpp"
#include "models/gnn/batches/batch_edges.hpp"
#include "models/gnn/operands/graph_operands.hpp"
#include "models/gnn/plan/epoch_traits.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "models/training/gradient_sum.hpp"
#include "models/training/parameter_update.hpp"
#include "runtime/numbers/counts.hpp"
#include "sampling/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace orthant::models {

void plan_batch_step(pmm::StepPlan& step, std::vector<PlannedBatch> const& batches,
                     NetworkSettings const& settings, OptimizerSettings const& optimizer) {
  ORTHANT_REQUIRE(!batches.empty(), "a step without a batch");
  auto const parameters = parameters_of(batches.front().plan, settings);
  auto const summed = summed_elements_of(step, parameters, optimizer.gradient_wire);
  auto const num_accumulated = std::ssize(batches);
  for (std::int64_t k = 0; k < num_accumulated; ++k) {
    auto const& [plan, traits] = batches[static_cast<std::size_t>(k)];
    auto of_batch = traits;
    of_batch.counts_rows = true;
    if (auto const& owners = plan.layers.front().owners; owners && settings.gather != pmm::Gather::all)
      plan_needed_lists(step, owners->roles, traits.needed);
    plan_pass(step, plan, settings, of_batch);
    plan_add_gradients(step, summed, k, num_accumulated);
  }
  constexpr std::int64_t loss_and_count = 2;
  step.add_call(runtime::Operation::all_reduce, pmm::Axis::data,
                loss_and_count * std::int64_t{sizeof(double)});
  plan_gradient_sum(step, summed, num_accumulated);
  auto const updated = updated_lengths_of(step, parameters);
  plan_update(step, optimizer, updated.trained, updated.normed, updated.statistics);
}

namespace {

using runtime::index, runtime::sum_of;

struct CallSum {
  std::int64_t calls = 0;
  std::int64_t sent = 0;
};

} // namespace

bool SampledBatch::needs_edges(NetworkPlan const& plan, NetworkSettings const& settings) {
  auto const& first = plan.layers.front();
  if (first.relations) return first.relations->attention.has_value();
  return first.owners && settings.gather != pmm::Gather::all;
}

SampledBatch::SampledBatch(runtime::Communicator const& self, graph::GraphStore const& store,
                           sampling::Sampler const& sampler, bool reads_edges)
    : store_(store),
      builder_(self, store, sampler,
               store.facts().num_relations() > 0 ? sampling::BatchEdges::relations
                                                 : sampling::BatchEdges::rescale) {
  graph::Ranges const all{{0, store.facts().num_vertices}};
  vertices_ = builder_.add_ranges(graph::Order::p1, all);
  if (store.facts().has_two_orders()) builder_.add_other_positions(vertices_);
  if (reads_edges) edges_ = builder_.add_block(all, all);
}

void SampledBatch::draw(std::int64_t epoch, std::int64_t index) {
  builder_.build(epoch, index, batch_);
  auto const& vertices = batch_.vertices[vertices_];
  std::vector<std::int64_t> in_p1(vertices.positions.begin(), vertices.positions.end());
  auto in_p2 = store_.facts().has_two_orders() ? vertices.other_positions : in_p1;
  orders_ = {std::move(in_p1), std::move(in_p2)};
}

pmm::CellSizes SampledBatch::cells_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                      pmm::Roles const& roles) const {
  auto const num_vertices = store_.facts().num_vertices;
  auto const in_cell = [&](pmm::Coordinates const& at) {
    return orders_.count(order_p1, part_of(shape, at, pmm::group_axes, num_vertices));
  };
  auto const along_b = [&](pmm::Coordinates at) {
    std::vector<std::int64_t> counts;
    for (auto& b = at.along(roles.b) = 0; b < shape.size(roles.b); ++b)
      counts.push_back(in_cell(at));
    return counts;
  };
  auto const slabs_along = [&](pmm::Axis axis) {
    std::vector<std::int64_t> counts;
    auto at = coordinates;
    for (auto& place = at.along(axis) = 0; place < shape.size(axis); ++place) {
      counts.push_back(sum_of(along_b(at)));
    }
    return counts;
  };
  return {along_b(coordinates), slabs_along(roles.c), slabs_along(roles.a)};
}

pmm::RelationEdgeCounts SampledBatch::relation_edges_on(pmm::GridShape const& shape,
                                                        pmm::Coordinates const& coordinates,
                                                        pmm::Roles const& roles) const {
  ORTHANT_REQUIRE(edges_.has_value(), "the edges were not read");
  auto const n = store_.facts().num_vertices;
  graph::ListPlaces const rows(pmm::block_rows(shape, coordinates, roles, n));
  graph::ListPlaces const columns(pmm::block_columns(shape, coordinates, roles, n));
  auto const& block = batch_.forward(*edges_);
  pmm::RelationEdgeCounts counts;
  std::set<std::pair<std::int64_t, std::uint16_t>> sources;
  for (std::size_t row = 0; row < orders_.in_p1.size(); ++row) {
    if (rows(orders_.in_p1[row]) < 0) continue;
    counts.targets += block.relation_offsets[row + 1] - block.relation_offsets[row];
    for (auto k = index(block.row_offsets[row]); k < index(block.row_offsets[row + 1]); ++k) {
      if (columns(orders_.in_p1[index(block.columns[k])]) < 0) continue;
      ++counts.edges;
      sources.emplace(block.columns[k], block.relations[k]);
    }
  }
  counts.sources = std::ssize(sources);
  return counts;
}

NeededOfGrid SampledBatch::needed_on(pmm::GridShape const& shape, NetworkPlan const& plan,
                                     pmm::Gather gather) const {
  auto const& owners = plan.layers.front().owners;
  if (!owners || gather == pmm::Gather::all || plan.layers.front().relations) return {};
  ORTHANT_REQUIRE(edges_.has_value(), "the edges were not read");
  TouchedRows touched(shape, owners->roles, store_.facts().num_vertices, orders_.in_p1);
  auto const& block = batch_.forward(*edges_);
  for (std::size_t row = 0; row < orders_.in_p1.size(); ++row) {
    for (auto k = block.row_offsets[row]; k < block.row_offsets[row + 1]; ++k)
      touched.meet(row, static_cast<std::size_t>(block.columns[static_cast<std::size_t>(k)]));
    if (block.self_columns[row] >= 0) touched.meet(row, static_cast<std::size_t>(block.self_columns[row]));
  }
  return touched.needed(gather);
}

PlannedBatch SampledBatch::planned(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                   NetworkPlan const& plan, NetworkSettings const& settings,
                                   NeededOfGrid const& needed) const {
  auto const& facts = store_.facts();
  auto const own_rows = [&](pmm::AxisSet axes, pmm::IndexOrder order) {
    return orders_.count(order, part_of(shape, coordinates, axes, facts.num_vertices));
  };
  PlannedBatch batch{plan_of_batch(plan, orders_.size(), shape, coordinates, own_rows), {}};
  batch.traits = traits_of_batch(facts_of_batch(facts, orders_.size()), shape, coordinates, batch.plan,
                                 settings, builder_.sampler().has_symmetric_factors());

  set_counted_relayouts(batch.traits, shape, coordinates, plan, orders_, RelayoutRows::sampled);

  auto const& owners = plan.layers.front().owners;
  if (!owners) return batch;
  auto const& roles = owners->roles;
  batch.traits.cells = cells_of(shape, coordinates, roles);
  batch.traits.needed = needed.of(coordinates, roles);
  if (auto const& relations = plan.layers.front().relations; relations && relations->attention)
    batch.traits.num_relation_edges =
        [counts = relation_edges_on(shape, coordinates, roles)](pmm::Placement const&) { return counts; };
  return batch;
}

SentInEpoch sent_in_epoch(SampledBatch& batch, sampling::Sampler const& sampler, std::int64_t epoch,
                          pmm::GridShape const& shape, graph::StoreFacts const& facts,
                          NetworkSettings const& settings, std::int64_t num_accumulated) {
  auto const plan = plan_network(facts, settings);
  auto const num_ranks = static_cast<std::size_t>(shape.size(pmm::group_axes));
  SentInEpoch sum;
  for (int group = 0; group < shape.data; ++group) {
    std::vector<CallSum> of_rank(num_ranks);
    for (std::int64_t s = 0; s < sampler.num_steps(); ++s) {
      std::vector<std::vector<PlannedBatch>> planned(num_ranks);
      auto const at = [&](std::size_t rank) {
        return member_of(shape, {.data = group}, pmm::group_axes, static_cast<int>(rank));
      };
      for (std::int64_t k = 0; k < num_accumulated; ++k) {
        batch.draw(epoch, sampler.batch_of(s, group, k));
        auto const needed = batch.needed_on(shape, plan, settings.gather);
        for (std::size_t rank = 0; rank < num_ranks; ++rank)
          planned[rank].push_back(batch.planned(shape, at(rank), plan, settings, needed));
      }
      for (std::size_t rank = 0; rank < num_ranks; ++rank) {
        pmm::StepPlan step(shape, at(rank), sizeof(float));
        plan_batch_step(step, planned[rank], settings);
        for (auto const& call : calls_of(step)) {
          ++of_rank[rank].calls;
          of_rank[rank].sent += call.sent_bytes;
          sum.comm_bytes += call.bytes;
        }
      }
    }
    for (auto const& rank : of_rank) {
      sum.sent_bytes += rank.sent;
      sum.most_sent_bytes = std::max(sum.most_sent_bytes, rank.sent);
      sum.num_calls = std::max(sum.num_calls, rank.calls);
    }
  }
  return sum;
}

namespace {

using pmm::NeededCounts;

/// Expected counts along an axis if each vertex has `degree` random neighbors in the batch. `own`: this rank's coordinate; rows of its own
/// slab have self loops, or are not exchanged. Fractions are rounded such that the rounding errors of a rank's counts cancel in their sum.
/// Each rank begins with a different `remainder`, so the errors of ranks with equal expectations also cancel.
std::optional<NeededCounts> expected_counts(std::vector<std::int64_t> const& slab_rows, int own,
                                            double degree, double remainder, pmm::Gather gather) {
  auto const num_ranks = slab_rows.size();
  auto const coverage = 1 - std::exp(-degree / static_cast<double>(num_ranks));
  if (num_ranks < 2 || (gather == pmm::Gather::automatic && coverage >= pmm::most_coverage)) return {};
  auto const place = static_cast<std::size_t>(own);
  auto const own_rows = slab_rows[place];
  NeededCounts counts;
  auto left_of_touched = remainder; // rounding error so far
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

/// First rounding error of a rank: in [-1/2, 1/2), 0 for rank 0, and spread evenly over any number of ranks (multiples of the golden ratio,
/// modulo 1).
double remainder_of(int rank) {
  auto const multiple = 0.6180339887498949 * rank + 0.5;
  return multiple - std::floor(multiple) - 0.5;
}

pmm::NeededCountsOfAxes expected_needed(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                        graph::StoreFacts const& of_batch, NetworkPlan const& plan,
                                        pmm::Gather gather) {
  auto const& owners = plan.layers.front().owners;
  if (!owners || gather == pmm::Gather::all) return {};
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
  traits.keeps_first_aggregate = false; // each batch has a different A~
  if (!plan.drops_edges) return traits;
  auto const are_shared =
      of_batch.is_symmetric && shares_transposes && of_batch.normalization != graph::Normalization::row;
  if (!plan.layers.front().owners)
    traits.dropped = sampled_blocks(shape, coordinates, of_batch, plan, are_shared);
  // A transpose is stored separately from its block.
  traits.num_dropped_ways = plan.layers.front().owners && plan.layers.front().reads_edges() ? 1 : 2;
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

namespace {

/// Mean size of a batch: N vertices in T batches.
std::int64_t mean_batch(std::int64_t num_vertices, std::int64_t num_batches) {
  return std::max<std::int64_t>(1, (num_vertices + num_batches / 2) / num_batches);
}

BatchCost cost_of(pmm::GridShape const& shape, graph::StoreFacts const& facts, NetworkSettings settings,
                  BatchSizes const& batches, pmm::Machine const& machine,
                  OptimizerSettings const& optimizer) {
  settings.hidden_axes = settings.overlaps ? pmm::hidden_axes_on(machine, shape) : pmm::AxisSet{};
  auto const plan = plan_network(facts, settings);
  auto const num_batches = *num_batches_of(facts.num_vertices, batches, shape.data);
  BatchCost cost{.schedule = settings.schedule,
                 .shape = shape,
                 .num_steps = num_steps_of(facts.num_vertices, batches, shape.data),
                 .num_vertices = mean_batch(facts.num_vertices, num_batches)};
  for (auto const& coordinates : ranks_to_list(shape, plan)) {
    auto const step = list_of_batches(shape, coordinates, facts, plan, settings, batches, optimizer);
    cost.sent_bytes = std::max(cost.sent_bytes, cost.num_steps * sent_bytes_of(step));
    cost.num_calls = std::max(cost.num_calls, cost.num_steps * std::ssize(calls_of(step)));
    auto const seconds = seconds_of(step, machine) * static_cast<double>(cost.num_steps);
    if (seconds.total() > cost.seconds.total()) cost.seconds = seconds;
    pmm::StepPlan arrays(shape, coordinates, sizeof(float));
    plan_mini_batch_arrays(arrays, facts, plan, settings, optimizer, batches);
    cost.array_bytes = std::max({cost.array_bytes, bytes_held(arrays), peak_bytes(arrays)});
  }
  return cost;
}

} // namespace

std::optional<std::int64_t> num_batches_of(std::int64_t num_vertices, BatchSizes const& batches,
                                           int num_groups) {
  if (batches.num_accumulated > num_vertices) return std::nullopt;
  auto const num_wanted = sampling::divided_up(num_vertices, batches.num_vertices);
  auto const of_step = num_groups * batches.num_accumulated;
  auto const num_batches = sampling::divided_up(num_wanted, of_step) * of_step;
  if (num_wanted < num_groups || num_batches > num_vertices) return std::nullopt;
  return num_batches;
}

std::int64_t num_steps_of(std::int64_t num_vertices, BatchSizes const& batches, int num_groups) {
  auto const num_batches = num_batches_of(num_vertices, batches, num_groups);
  return num_batches ? *num_batches / (num_groups * batches.num_accumulated) : 1;
}

bool can_train_batches(pmm::GridShape const& shape, std::int64_t num_vertices, BatchSizes const& batches) {
  return batches.num_vertices >= std::max({shape.x, shape.y, shape.z}) &&
         num_batches_of(num_vertices, batches, shape.data).has_value();
}

pmm::StepPlan list_of_batches(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                              graph::StoreFacts const& facts, NetworkPlan const& plan,
                              NetworkSettings const& settings, BatchSizes const& batches,
                              OptimizerSettings const& optimizer) {
  auto const num_batches = num_batches_of(facts.num_vertices, batches, shape.data);
  ORTHANT_REQUIRE(num_batches.has_value(), "no epoch of batches on ", shape.to_string());
  auto const batch =
      expected_batch(shape, coordinates, facts, plan, settings, mean_batch(facts.num_vertices, *num_batches));
  pmm::StepPlan step(shape, coordinates, sizeof(float));
  plan_batch_step(step, std::vector(static_cast<std::size_t>(batches.num_accumulated), batch), settings,
                  optimizer);
  return step;
}

std::vector<BatchCost> costs_of_batches(int num_ranks, graph::StoreFacts const& facts,
                                        NetworkSettings const& settings, BatchSizes const& batches,
                                        std::int64_t least_width, pmm::Machine const& machine,
                                        OptimizerSettings const& optimizer) {
  auto const plan = plan_network(facts, settings);
  std::vector<BatchCost> costs;
  for (int data = 1; data <= num_ranks; ++data)
    for (auto const& shape : pmm::all_shapes(num_ranks, data))
      if (can_train_batches(shape, facts.num_vertices, batches) &&
          has_wide_parts(shape, facts, plan, settings, least_width))
        costs.push_back(cost_of(shape, facts, settings, batches, machine, optimizer));
  std::ranges::stable_sort(costs, {}, [](BatchCost const& cost) { return cost.seconds.total(); });
  return costs;
}

EpochSeconds mini_batch_seconds(graph::StoreFacts const& facts, NetworkSettings const& settings,
                                BatchSizes const& batches, pmm::Machine const& machine) {
  return [=](pmm::GridShape const& shape, Schedule schedule) -> pmm::StepSeconds {
    if (!can_train_batches(shape, facts.num_vertices, batches)) {
      pmm::StepSeconds never;
      never.sparse = std::numeric_limits<double>::infinity();
      return never;
    }
    auto asked = settings;
    asked.schedule = schedule;
    asked.hidden_axes = asked.overlaps ? pmm::hidden_axes_on(machine, shape) : pmm::AxisSet{};
    auto const step = list_of_batches(shape, {}, facts, plan_network(facts, asked), asked, batches);
    return seconds_of(step, machine) *
           static_cast<double>(num_steps_of(facts.num_vertices, batches, shape.data));
  };
}

} // namespace orthant::models
