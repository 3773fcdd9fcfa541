// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/network/grid_choice.hpp"

#include "models/gnn/network/counted_graph.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/plan/epoch_traits.hpp"
#include "models/gnn/plan/network_products.hpp"
#include "models/gnn/plan/network_step.hpp"
#include "runtime/numbers/counts.hpp"

#include <map>
#include <set>

namespace orthant::models {
namespace {

std::vector<Schedule> schedules_of(std::string_view word) {
  if (word != "auto") return {parse_schedule(word)};
  return {Schedule::pmm3d, Schedule::rows};
}

} // namespace

EpochSeconds full_graph_seconds(graph::StoreFacts const& facts, NetworkSettings const& settings,
                                pmm::Machine const& machine) {
  return [=](pmm::GridShape const& shape, Schedule schedule) {
    auto asked = settings;
    asked.schedule = schedule;
    asked.hidden_axes = asked.overlaps ? pmm::hidden_axes_on(machine, shape) : pmm::AxisSet{};
    auto const plan = plan_network(facts, asked);
    pmm::Coordinates const first; // lower coordinates have the larger parts
    pmm::StepPlan step(shape, first, sizeof(float));
    plan_epoch(step, plan, asked, traits_of(facts, shape, first, plan, asked));
    return seconds_of(step, machine);
  };
}

std::vector<GridChoice> rank_grids(GridQuestion const& question, EpochSeconds const& seconds) {
  auto const shapes = question.grid == "auto"
                          ? pmm::all_shapes(question.num_ranks)
                          : std::vector{pmm::parse_grid(question.grid, question.num_ranks)};
  std::vector<GridChoice> choices;
  for (auto const& shape : shapes)
    for (auto const schedule : schedules_of(question.schedule))
      choices.push_back({shape, schedule});
  if (choices.size() == 1) return choices;
  for (auto& choice : choices)
    choice.seconds = seconds(choice.shape, choice.schedule).total();
  std::ranges::stable_sort(choices, {}, &GridChoice::seconds);
  return choices;
}

std::string_view open_schedules(NetworkSettings const& settings, std::string_view word) {
  auto const has_one =
      traits_of(settings.model, settings.aggregator).needs_owners() || predicts_links(settings);
  return has_one && word == "auto" ? "rows" : word;
}

GridChoice choose_grid(GridQuestion const& question, EpochSeconds const& seconds) {
  return rank_grids(question, seconds).front();
}

namespace {

/// Grids whose sent bytes differ by less than this fraction count as equal: parts cannot always be equally large.
constexpr double equal_bytes = 1e-3;

struct AggregatedColumns {
  std::int64_t width = 0;
  int num_parts = 1; // parts of its columns

  [[nodiscard]] std::int64_t narrowest_part() const { return width / num_parts; }
};

/// Aggregations of every epoch. If the only layer's aggregate is kept, returns that of the first epoch.
std::vector<AggregatedColumns> aggregations_of(pmm::GridShape const& shape, NetworkPlan const& plan,
                                               bool keeps_first) {
  std::vector<AggregatedColumns> all;
  for (auto const& layer : plan.layers)
    if (layer.aggregates() && (layer.index > 0 || !keeps_first || plan.layers.size() == 1))
      all.push_back({layer.aggregated_width(), shape.size(layer.adjacency.layout.third())});
  return all;
}

std::vector<AggregatedColumns> aggregations_of(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                                               NetworkPlan const& plan, NetworkSettings const& settings) {
  return aggregations_of(shape, plan, traits_of(facts, shape, {}, plan, settings).keeps_first_aggregate);
}

/// Above this number of ranks not all ranks are listed: a list with residuals costs O(ranks).
constexpr int all_ranks_listed = 128;

std::int64_t adjacency_bytes(pmm::StepPlan const& step, graph::StoreFacts const& facts,
                             NetworkPlan const& plan, NetworkSettings const& settings) {
  auto const traits = traits_of(facts, step.shape(), step.coordinates(), plan, settings);
  pmm::StepPlan blocks(step.shape(), step.coordinates(), step.scalar_bytes(1));
  plan_adjacency(blocks, facts, plan, traits);
  plan_adjacency_products(blocks, facts, plan, traits);
  return bytes_held(blocks);
}

GridCost cost_of_plan(pmm::GridShape const& shape, graph::StoreFacts const& facts, NetworkPlan const& plan,
                      NetworkSettings const& settings, pmm::Machine const& machine,
                      OptimizerSettings const& optimizer) {
  GridCost cost;
  cost.schedule = settings.schedule;
  cost.shape = shape;
  cost.narrowest_part =
      std::ranges::min(aggregations_of(shape, facts, plan, settings), {}, &AggregatedColumns::narrowest_part)
          .narrowest_part();
  for (auto const& coordinates : ranks_to_list(shape, plan)) {
    auto const step = list_of_rank(shape, coordinates, facts, plan, settings, optimizer);
    cost.sent_bytes = std::max(cost.sent_bytes, sent_bytes_of(step));
    cost.num_calls = std::max(cost.num_calls, static_cast<std::int64_t>(calls_of(step).size()));
    cost.pass_bytes = std::max(cost.pass_bytes, pmm::bytes_of_passes(step));
    cost.array_bytes = std::max(cost.array_bytes, bytes_held(step));
    cost.loading_bytes = std::max(cost.loading_bytes, peak_bytes(step));
    auto const seconds = seconds_of(step, machine);
    if (seconds.total() > cost.seconds.total()) cost.seconds = seconds;
    cost.adjacency_bytes = std::max(cost.adjacency_bytes, adjacency_bytes(step, facts, plan, settings));
  }
  return cost;
}

BytesByLabel largest_first(std::map<std::string, std::int64_t> const& sums) {
  BytesByLabel sorted(sums.begin(), sums.end());
  std::ranges::stable_sort(sorted, std::ranges::greater{}, [](auto const& sum) { return sum.second; });
  return sorted;
}

/// Throws if byte counts can overflow. Upper bound of one call: every rank sends the widest matrix twice.
void require_countable(int num_ranks, graph::StoreFacts const& facts, NetworkPlan const& plan) {
  constexpr std::int64_t bytes_of_number = 8;
  constexpr auto what = "bytes that the ranks send";
  auto widest = plan.features().extents.columns;
  for (auto const& layer : plan.layers)
    widest = std::max(widest, layer.output.extents.columns);
  auto const bytes = runtime::checked_product(facts.num_vertices, bytes_of_number * widest, what);
  std::ignore = runtime::checked_product(bytes, 2 * std::int64_t{num_ranks}, what);
}

} // namespace

bool has_wide_parts(pmm::GridShape const& shape, graph::StoreFacts const& facts, NetworkPlan const& plan,
                    NetworkSettings const& settings, std::int64_t least_width) {
  auto const aggregations = aggregations_of(shape, facts, plan, settings);
  auto const widest = std::ranges::max(aggregations, {}, &AggregatedColumns::width).width;
  return std::ranges::all_of(aggregations, [&](AggregatedColumns const& aggregation) {
    return aggregation.num_parts == 1 || aggregation.num_parts * least_width <= widest;
  });
}

std::vector<pmm::Coordinates> ranks_to_list(pmm::GridShape const& shape, NetworkPlan const& plan) {
  if (!has_relayouts(plan)) return {{}};
  auto const places = [&](int size) {
    std::set<int> chosen{0, size / 2, size - 1};
    for (int i = 0; i < size && shape.num_ranks() <= all_ranks_listed; ++i)
      chosen.insert(i);
    return chosen;
  };
  std::vector<pmm::Coordinates> ranks;
  for (auto const x : places(shape.x))
    for (auto const y : places(shape.y))
      for (auto const z : places(shape.z))
        ranks.push_back({0, x, y, z});
  return ranks;
}

pmm::StepPlan list_of_rank(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                           graph::StoreFacts const& facts, NetworkPlan const& plan,
                           NetworkSettings const& settings, OptimizerSettings const& optimizer) {
  pmm::StepPlan step(shape, coordinates, sizeof(float));
  auto const traits = traits_of(facts, shape, coordinates, plan, settings);
  plan_epoch(step, plan, settings, traits, optimizer);
  plan_full_graph_arrays(step, facts, plan, settings, traits, optimizer);
  return step;
}

std::int64_t sent_bytes_of(pmm::StepPlan const& step) {
  std::int64_t sum = 0;
  for (auto const& call : calls_of(step))
    sum += call.sent_bytes;
  return sum;
}

GridCost cost_of_grid(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                      NetworkSettings const& settings, pmm::Machine const& machine,
                      OptimizerSettings const& optimizer) {
  auto asked = settings;
  asked.hidden_axes = asked.overlaps ? pmm::hidden_axes_on(machine, shape) : pmm::AxisSet{};
  return cost_of_plan(shape, facts, plan_network(facts, asked), asked, machine, optimizer);
}

std::vector<GridCost> costs_of_grids(int num_ranks, graph::StoreFacts const& facts,
                                     NetworkSettings const& settings, std::int64_t least_width,
                                     pmm::Machine const& machine, GridOrder order,
                                     OptimizerSettings const& optimizer) {
  auto const plan = plan_network(facts, settings);
  require_countable(num_ranks, facts, plan);
  std::vector<GridCost> costs;
  for (auto const& shape : pmm::all_shapes(num_ranks))
    if (has_wide_parts(shape, facts, plan, settings, least_width))
      costs.push_back(cost_of_grid(shape, facts, settings, machine, optimizer));

  if (order == GridOrder::by_seconds) {
    std::ranges::stable_sort(costs, {}, [](GridCost const& cost) { return cost.seconds.total(); });
    return costs;
  }
  std::ranges::stable_sort(costs, {}, &GridCost::sent_bytes);
  for (auto first = costs.begin(); first != costs.end();) {
    auto const most = static_cast<double>(first->sent_bytes) * (1 + equal_bytes);
    auto const last = std::find_if(first, costs.end(), [&](GridCost const& cost) {
      return static_cast<double>(cost.sent_bytes) > most;
    });
    std::ranges::stable_sort(first, last, {}, &GridCost::array_bytes);
    first = last;
  }
  return costs;
}

BytesByLabel arrays_by_label(pmm::StepPlan const& step) {
  std::map<std::string, std::int64_t> sums;
  for (auto const& array : step.arrays())
    if (array.lifetime != pmm::Lifetime::operation) sums[array.label] += array.bytes;
  return largest_first(sums);
}

BytesByLabel loading_arrays_by_label(pmm::StepPlan const& step) {
  std::map<std::string, std::map<std::int64_t, std::int64_t>> sums; // label -> operation -> bytes
  for (auto const& array : step.arrays())
    if (array.lifetime == pmm::Lifetime::operation) sums[array.label][array.operation] += array.bytes;
  std::map<std::string, std::int64_t> largest;
  for (auto const& [label, of_operations] : sums)
    for (auto const& [operation, bytes] : of_operations)
      largest[label] = std::max(largest[label], bytes);
  return largest_first(largest);
}

pmm::SimulatedSeconds simulate_epoch(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                                     NetworkSettings const& settings, pmm::Machine const& machine,
                                     pmm::SimulationSettings simulation, graph::GraphStore const* store,
                                     OptimizerSettings const& optimizer) {
  auto const plan = plan_network(facts, settings);
  auto const blocks = store == nullptr ? std::vector<BlockCounts>() : count_blocks(*store, shape, plan);
  simulation.folds_ranks = store == nullptr && shape.num_ranks() > most_listed_ranks;
  auto const list_of = [&](pmm::Coordinates const& coordinates) {
    pmm::StepPlan step(shape, coordinates, sizeof(float));
    auto traits = traits_of(facts, shape, coordinates, plan, settings);
    auto const even = traits.num_nonzeros;
    traits.num_nonzeros = [&](pmm::Placement const& placement) {
      auto const counted =
          std::ranges::find_if(blocks, [&](BlockCounts const& counts) { return counts.are_of(placement); });
      return counted == blocks.end() ? even(placement) : counted->of(coordinates);
    };
    plan_epoch(step, plan, settings, traits, optimizer);
    return step;
  };
  return pmm::simulate_step(shape, list_of, machine, simulation);
}

} // namespace orthant::models
