// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/network/network_arrays.hpp"

#include "graph/store/listed_block.hpp"
#include "models/gnn/aggregation/maximum_aggregation.hpp"
#include "models/gnn/layers/jump.hpp"
#include "models/gnn/layers/network_activation.hpp"
#include "models/gnn/layers/network_linear.hpp"
#include "models/gnn/plan/attention_step.hpp"
#include "models/gnn/plan/network_products.hpp"
#include "models/gnn/plan/relation_step.hpp"
#include "runtime/arrays/views.hpp"

#include <algorithm>
#include <set>
#include <span>

namespace orthant::models {

std::vector<std::int64_t> shared_output_lengths(pmm::StepPlan const& step, NetworkPlan const& plan,
                                                NetworkSettings const& settings) {
  if (!shares_outputs(plan, settings)) return {};
  std::vector<std::int64_t> lengths(plan.layers.size());
  for (std::size_t l = 0; l + 1 < plan.layers.size(); ++l)
    for (auto const& matrix : {plan.layers[l].output, plan.layers[l + 1].input}) {
      auto& length = lengths[layer_of_output(plan, l)];
      length = std::max(length, step.block(matrix).num_padded);
    }
  return lengths;
}

std::optional<std::size_t> layer_with_features(pmm::StepPlan const& step, NetworkPlan const& plan,
                                               NetworkSettings const& settings) {
  auto const& first = plan.layers.front();
  auto const goes = keeps_first_aggregate(plan) && settings.dropout == 0;
  if (!goes || !first.keeps_aggregate() || first.reads_itself() || first.is_residual || first.reads_edges() ||
      plan.teleport)
    return std::nullopt;
  auto const needed = step.block(plan.features()).num_padded;
  for (std::size_t l = 1; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    if (layer.aggregates_first && layer.keeps_middle() && step.block(layer.middle).num_padded >= needed)
      return l;
  }
  return std::nullopt;
}

template<class T>
runtime::Vector<T> room_for_features(pmm::ProcessGrid const& grid, NetworkPlan const& plan,
                                     NetworkSettings const& settings,
                                     std::vector<NetworkLayerMemory<T>>& memory) {
  pmm::StepPlan const step(grid.shape(), grid.coordinates(), sizeof(runtime::SumOf<T>));
  auto const layer = layer_with_features(step, plan, settings);
  if (!layer) return {};
  auto const& numbers = memory[*layer].middle.reserve(step.block(plan.layers[*layer].middle).num_padded);
  return runtime::part_of(numbers, 0, step.block(plan.features()).num_padded);
}

bool gets_gradient_in_middle(NetworkPlan const& plan, std::size_t l) {
  auto is_in_middle = false;
  for (auto const& layer : std::span(plan.layers).subspan(l + 1))
    is_in_middle = is_in_middle != static_cast<bool>(layer.second);
  return is_in_middle;
}

template<class T>
NetworkLayerPlaces<T> places_of(NetworkPlan const& plan, bool shares_outputs, std::size_t l,
                                NetworkScratch<T>& scratch, std::vector<NetworkLayerMemory<T>>& memory) {
  auto const& layer = plan.layers[l];
  if (!shares_outputs) {
    auto const is_swapped = gets_gradient_in_middle(plan, l) != static_cast<bool>(layer.second);
    auto& gradient = has_residual_in_place(layer) ? scratch.residual_gradient
                     : is_swapped                 ? scratch.middle
                                                  : scratch.gradient;
    return {memory[l].output, gradient, gradient, is_swapped ? scratch.gradient : scratch.middle};
  }
  auto const memory_of = [&](std::size_t k) { return &memory[layer_of_output(plan, k)].output; };
  auto const is_apart = layer.makes_logits && runtime::is_16_bit<T>;
  return {*memory_of(l), is_apart ? scratch.gradient : *memory_of(l),
          l == 0 ? scratch.gradient : *memory_of(l - 1), scratch.middle};
}

pmm::Lifetime lifetime_of_features(pmm::StepPlan const& step, NetworkPlan const& plan,
                                   NetworkSettings const& settings, NetworkEpochTraits const& traits,
                                   bool may_move) {
  using enum pmm::Lifetime;
  if (settings.operand_format != runtime::Wire::native) return operation; // rounded when bound
  if (!traits.keeps_first_aggregate || keeps_features(plan)) return training;
  return may_move && layer_with_features(step, plan, settings) ? operation : first_step;
}

namespace {

/// The options of a layer that affect its arrays.
NetworkLayerOptions options_of(NetworkPlan const& plan, NetworkSettings const& settings, std::size_t l) {
  return {.needs_input_gradient = needs_input_gradient(plan, l),
          .shares_outputs = shares_outputs(plan, settings),
          .formats = settings.formats()};
}

} // namespace

NetworkScratchPlan scratch_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                              NetworkSettings const& settings) {
  NetworkScratchPlan scratch;
  if (plan.projection) plan_linear_buffers(scratch, step, *plan.projection, settings.formats());
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    scratch.add(step, plan.layers[l], options_of(plan, settings, l));
    plan_activation_scratch(scratch, step, plan.layers[l], activation_of(plan, settings, l));
    plan_residual_scratch(scratch, step, plan.layers[l], settings.formats());
    if (auto const& second = plan.layers[l].second) {
      plan_linear_buffers(scratch, step, *second, settings.formats());
      // The gradients of a perceptron alternate between both arrays, so both have the length of the larger.
      scratch.gradient = std::max({scratch.gradient, scratch.middle, step.block(second->output).num_padded});
      scratch.middle = scratch.gradient;
    }
  }
  // Also holds the gradient of H0 that the teleport returns.
  if (plan.teleport) scratch.middle = std::max(scratch.middle, step.block(teleport_start(plan)).num_padded);
  plan_jump_buffers(scratch, step, plan);
  if (!plan.head) return scratch;
  plan_linear_buffers(scratch, step, *plan.head, settings.formats());
  // Also holds the gradient of the logits while the gradient of the head's input is written.
  scratch.middle = std::max(scratch.middle, step.block(plan.head->output).num_padded);
  return scratch;
}

void plan_network_arrays(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
                         std::optional<std::int64_t> num_feature_nonzeros, std::int64_t num_edges,
                         pmm::RelationEdgeCounts const& relation_edges) {
  auto const formats = settings.formats();
  if (formats.operand != runtime::Wire::native && !num_feature_nonzeros &&
      !layer_with_features(step, plan, settings))
    plan_rounded_features(step, plan.features(), formats.operand,
                          keeps_first_aggregate(plan) && settings.dropout == 0);
  auto const gathers = plan.trained_features && !reads_shards(step.shape(), plan);
  if (gathers) plan_matrix(step, plan.features(), "orthant::models::gathered_features");
  if (settings.input_dropout() > 0)
    plan_dropped_features(step, plan.features(), num_feature_nonzeros, formats.operand);
  auto scratch = scratch_of(step, plan, settings);
  reserve_attention(scratch.workspace, step, plan);
  reserve_maximum(scratch.workspace, step, plan);
  reserve_relations(scratch.workspace, step, plan, relation_edges);
  scratch.list(step, formats.operand);
  plan_attention_arrays(step, plan, num_edges);
  plan_maximum_arrays(step, plan);
  if (plan.projection) plan_linear_arrays(step, *plan.projection, "orthant::models::projected", formats);
  if (plan.projection && plan.trained_features && (gathers || formats.operand != runtime::Wire::native))
    plan_matrix(step, plan.features(), "orthant::models::read_feature_gradient", pmm::Lifetime::training,
                formats.operand);
  for (auto const length : shared_output_lengths(step, plan, settings))
    step.add_array("orthant::models::output", step.wire_bytes(length, formats.operand));
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    plan_layer_arrays(step, plan.layers[l], options_of(plan, settings, l));
    auto const& layer = plan.layers[l];
    if (is_activated(plan, l))
      plan_activation_arrays(step, layer.output, layer.is_residual && !layer.second,
                             activation_of(plan, settings, l), formats.operand);
    plan_residual_memory(step, layer, formats);
    if (!layer.second) continue;
    plan_linear_arrays(step, *layer.second, "orthant::models::second", formats);
    plan_activation_arrays(step, layer.second->output, layer.is_residual, activation_of_second(settings),
                           formats.operand);
  }
  plan_teleport_arrays(step, plan, settings.dropout > 0);
  plan_jump_arrays(step, plan);
  if (plan.head) plan_linear_arrays(step, *plan.head, "orthant::models::logits", formats);
}

namespace {

/// Sizes of the copies of operands in a network's sparse products.
class OperandCopies {
 public:
  OperandCopies(pmm::StepPlan const& step, NetworkPlan const& plan, NetworkSettings const& settings,
                NetworkEpochTraits const& traits)
      : step_(step),
        settings_(settings),
        shares_outputs_(shares_outputs(plan, settings)),
        scratch_(scratch_of(step, plan, settings)) {
    for (std::size_t l = 0; l < plan.layers.size(); ++l) {
      auto const& layer = plan.layers[l];
      if (!layer.multiplies_adjacency()) continue;
      auto const num_nonzeros = traits.num_nonzeros(layer.adjacency);
      auto const goes_back = needs_input_gradient(plan, l) || !layer.aggregates_first;
      if (layer.owners)
        add_between_owners(layer, num_nonzeros, goes_back);
      else
        add_block(layer.adjacency, step.block(layer.aggregated()).columns.size(), num_nonzeros, goes_back);
    }
    auto const& first = plan.layers.front();
    if (auto const num_nonzeros = traits.num_feature_nonzeros(plan)) {
      auto const& result = plan.projection                        ? plan.projection->output
                           : first.kind == LayerKind::convolution ? first.middle
                                                                  : first.output;
      add_block(plan.features(), step.block(result).columns.size(), *num_nonzeros, true);
    }
  }

  [[nodiscard]] std::int64_t most() const { return most_; }

 private:
  [[nodiscard]] std::int64_t operand_bytes(std::int64_t count) const {
    return step_.wire_bytes(count, settings_.operand_format);
  }
  /// `lent`: contiguous bytes that are free during the product; a copy that fits into them needs no other memory.
  void add(std::int64_t num_rows, std::int64_t width, std::int64_t num_nonzeros, std::int64_t lent = 0) {
    auto const bytes = pmm::operand_copy_bytes(num_rows, width, operand_bytes(1), num_nonzeros);
    if (bytes > lent) most_ = std::max(most_, bytes);
  }
  void add_block(pmm::Placement const& matrix, std::int64_t width, std::int64_t num_nonzeros,
                 bool goes_back) {
    auto const block = step_.block(matrix);
    add(block.columns.size(), width, num_nonzeros);
    if (goes_back) add(block.rows.size(), width, num_nonzeros);
  }
  void add_between_owners(NetworkLayerPlan const& layer, std::int64_t num_nonzeros, bool goes_back) {
    auto const aggregates = aggregates_of(layer, cells_of(step_, layer), settings_.formats(), {});
    add_aggregate(layer, aggregates.forward, num_nonzeros);
    if (goes_back) add_aggregate(layer, aggregates.backward, num_nonzeros);
  }
  void add_aggregate(NetworkLayerPlan const& layer, pmm::AggregatePlan const& plan,
                     std::int64_t num_nonzeros) {
    pmm::AggregateSteps const steps(step_.shape(), step_.coordinates(), plan);
    auto lent = std::int64_t{0};
    if (steps.copies_operand())
      lent = step_.scalar_bytes(scratch_.workspace.num_elements(pmm::Slot::right)) -
             operand_bytes(steps.num_operand());
    if (lends_operand(step_.shape(), layer, shares_outputs_))
      lent = std::max(lent, operand_bytes(step_.block(layer.input).num_padded));
    auto const num_chunks = steps.sum.in_chunks ? step_.shape().size(steps.sum.axis) : 1;
    add(steps.num_inner, steps.part, num_nonzeros / num_chunks, lent);
  }

  pmm::StepPlan const& step_;
  NetworkSettings const& settings_;
  bool shares_outputs_;
  NetworkScratchPlan scratch_;
  std::int64_t most_ = 0;
};

} // namespace

std::int64_t operand_copy_bytes(pmm::StepPlan const& step, NetworkPlan const& plan,
                                NetworkSettings const& settings, NetworkEpochTraits const& traits) {
  return OperandCopies(step, plan, settings, traits).most();
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template runtime::Vector<T> room_for_features<T>(pmm::ProcessGrid const&, NetworkPlan const&,              \
                                                   NetworkSettings const&,                                   \
                                                   std::vector<NetworkLayerMemory<T>>&);                     \
  template NetworkLayerPlaces<T> places_of(NetworkPlan const&, bool, std::size_t, NetworkScratch<T>&,        \
                                           std::vector<NetworkLayerMemory<T>>&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

void plan_relation_operands(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits) {
  auto const& first = plan.layers.front();
  if (first.relations->attention) {
    auto const steps = relation_attention_steps_of(step, first, traits, runtime::Wire::native);
    step.add_array("a block of the store", steps.sizes.pairs.edges * graph::listed_entry_bytes,
                   pmm::Lifetime::operation);
    return plan_attention_operand(step, steps);
  }
  std::set<AdjacencyKey> listed;
  for (auto const& layer : plan.layers) {
    auto const& layout = layer.adjacency.layout;
    if (!listed.emplace(layout.rows, layout.columns, layer.is_even).second) continue;
    auto const steps = relation_steps_of(step, layer, traits, runtime::Wire::native);
    auto const& s = steps.sizes;
    step.add_array("a block of the store", s.entries * graph::listed_entry_bytes, pmm::Lifetime::operation);
    pmm::plan_relation_block(step, s.rows, s.columns, s.pairs, s.self_pairs, s.entries);
  }
}

} // namespace orthant::models
