// SPDX-License-Identifier: Apache-2.0
//
// The parameters of a transformer before they are allocated: names, placements, lengths, and planned operations.
#include "models/lm/transformer/transformer_parameters.hpp"

#include "models/parameters/weights_file.hpp"

#include <cmath>
#include <set>

namespace orthant::models {
namespace {

constexpr double weight_deviation = 0.02;
/// Small gradients begin at multiples of this number of elements, because kernels load 16 bytes at a time.
constexpr std::int64_t numbers_apart = 4;

std::int64_t rounded_up(std::int64_t count) {
  return (count + numbers_apart - 1) / numbers_apart * numbers_apart;
}

/// Collects the parameters of a plan.
class Planner {
 public:
  Planner(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, TransformerPlan const& plan)
      : shape_(shape),
        coordinates_(coordinates),
        settings_(plan.settings) {}

  void add(std::string name, ParameterRole role, pmm::Placement const& placement, double deviation = 0) {
    PlannedTransformerParameter parameter{std::move(name), role, layer_,
                                          is_here_ ? placement : placement.elsewhere(), deviation};
    if (placement.layout.storage == pmm::Storage::replicated || parameter.is_vector()) {
      parameter.place = num_small_;
      num_small_ += rounded_up(length_of(shape_, coordinates_, parameter));
    }
    all_.push_back(std::move(parameter));
  }
  void add_linear(std::string const& name, LinearPlan3d const& linear, double deviation) {
    add(name + ".weight", ParameterRole::weight, linear.weight, deviation);
    if (settings_.has_bias) add(name + ".bias", ParameterRole::bias, linear.output);
  }
  void add_norm(std::string const& name, pmm::Placement const& stream) {
    add(name + ".weight", ParameterRole::norm_scale, stream);
    if (settings_.norm == NormKind::layer && settings_.has_bias)
      add(name + ".bias", ParameterRole::bias, stream);
  }
  /// Adds the matrices of all experts for one product, named prefix0suffix, prefix1suffix, ..
  void add_experts(std::string const& prefix, std::string const& suffix, ExpertPlan const& plan,
                   pmm::Placement const& of_expert, double deviation) {
    ExpertArray const array(shape_, coordinates_, plan, of_expert);
    for (std::int64_t e = 0; e < plan.settings.num_experts; ++e) {
      auto const place = plan.place_of_expert(layer_ - 1, e);
      ExpertPiece piece{prefix + "all" + suffix, array.begin_of(place), array.piece.size(), e == 0};
      if (!is_here_) piece.begin = piece.length = 0;
      all_.push_back({.name = prefix + std::to_string(e) + suffix,
                      .layer = layer_,
                      .placement = is_here_ ? placement_of(array, of_expert, place) : of_expert.elsewhere(),
                      .deviation = deviation,
                      .of_expert = std::move(piece)});
    }
  }
  /// Adds the factors of all adapters after the other parameters, and freezes all others.
  void add_adapters() {
    auto const num_weights = all_.size();
    std::array<std::int64_t, 2> places{};
    for (std::size_t w = 0; w < num_weights; ++w) {
      all_[w].is_frozen = true;
      auto const columns = adapted_columns(settings_, all_[w].name);
      if (!columns) continue;
      auto const weight = all_[w];
      auto const stem = weight.name.substr(0, weight.name.rfind('.'));
      auto const [left, right] = place_factors(weight.placement, *columns, settings_.adapters.rank);
      auto const add_factor = [&](char const* suffix, pmm::Placement const& placement, bool is_left) {
        auto const is_over_x =
            (is_left ? placement.layout.rows : placement.layout.columns) == pmm::AxisSet{pmm::Axis::x};
        auto& place = places[is_over_x ? 1 : 0];
        // As in PEFT: the standard deviation of A is that of a uniform distribution in +- 1 / sqrt(in), and B starts at zero.
        auto const deviation =
            is_left ? 1 / std::sqrt(3.0 * static_cast<double>(placement.extents.rows)) : 0.0;
        all_.push_back({.name = stem + suffix,
                        .layer = weight.layer,
                        .placement = placement,
                        .deviation = deviation,
                        .factor = AdapterFactor{w, *columns, is_left, is_over_x, place}});
        place += rounded_up(length_of(shape_, coordinates_, all_.back()));
      };
      add_factor(".lora_A", left, true);
      add_factor(".lora_B", right, false);
    }
  }
  /// `is_here`: whether this rank has the parameters that are added until the next call.
  void begin_layer(std::int64_t layer, bool is_here) {
    layer_ = layer;
    is_here_ = is_here;
  }
  /// The last parameter is a copy if this rank has it, because the first stage of a pipeline has it, too.
  void mark_copy() { all_.back().is_copy = true; }
  [[nodiscard]] std::vector<PlannedTransformerParameter> take() { return std::move(all_); }

 private:
  pmm::GridShape const& shape_;
  pmm::Coordinates const& coordinates_;
  TransformerSettings const& settings_;
  std::int64_t layer_ = 0;
  bool is_here_ = true;
  std::int64_t num_small_ = 0;
  std::vector<PlannedTransformerParameter> all_;
};

} // namespace

std::int64_t length_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                       PlannedTransformerParameter const& parameter) {
  if (parameter.placement.is_elsewhere()) return 0;
  return length_of(parameter.role, block_of(shape, coordinates, parameter.placement));
}

std::vector<PlannedTransformerParameter>
parameters_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, TransformerPlan const& plan) {
  auto const& settings = plan.settings;
  auto const branch_deviation = weight_deviation / std::sqrt(2.0 * static_cast<double>(settings.num_layers));
  Planner planner(shape, coordinates, plan);
  auto const& stage = plan.stage;
  planner.begin_layer(0, plan.has_table());
  planner.add("wte.weight", ParameterRole::weight, plan.table, weight_deviation);
  if (!stage.has_embedding()) planner.mark_copy();
  planner.begin_layer(0, stage.has_embedding());
  if (settings.positions == Positions::learned)
    planner.add("wpe.weight", ParameterRole::weight, plan.positions, weight_deviation);
  for (std::int64_t l = 0; l < settings.num_layers; ++l) {
    auto const prefix = "h." + std::to_string(l) + ".";
    planner.begin_layer(l + 1, stage.has_layer(l));
    planner.add_norm(prefix + "ln_1", plan.stream);
    planner.add_linear(prefix + "attn.c_attn", plan.qkv, weight_deviation);
    if (settings.query_key_norm != QueryKeyNorm::none) {
      planner.add(prefix + "attn.q_norm.weight", ParameterRole::norm_scale, plan.query_scale);
      planner.add(prefix + "attn.k_norm.weight", ParameterRole::norm_scale, plan.key_scale);
    }
    planner.add_linear(prefix + "attn.c_proj", plan.projection, branch_deviation);
    planner.add_norm(prefix + "ln_2", plan.stream);
    if (settings.experts.has_layer(l)) {
      planner.add(prefix + "mlp.router.weight", ParameterRole::weight, plan.experts.router, weight_deviation);
      if (settings.experts.has_biases)
        planner.add(prefix + "mlp.router.bias", ParameterRole::statistic,
                    {{pmm::AxisSet{}, pmm::AxisSet{}}, {1, settings.experts.num_experts}});
      auto const experts = prefix + "mlp.experts.";
      planner.add_experts(experts, ".c_fc.weight", plan.experts, plan.experts.up, weight_deviation);
      planner.add_experts(experts, ".c_proj.weight", plan.experts, plan.experts.down, branch_deviation);
      if (!settings.experts.has_shared()) continue;
      planner.add(prefix + "mlp.shared.c_fc.weight", ParameterRole::weight, plan.shared_up.weight,
                  weight_deviation);
      planner.add(prefix + "mlp.shared.c_proj.weight", ParameterRole::weight, plan.shared_down.weight,
                  branch_deviation);
      continue;
    }
    planner.add_linear(prefix + "mlp.c_fc", plan.up, weight_deviation);
    planner.add_linear(prefix + "mlp.c_proj", plan.down, branch_deviation);
  }
  planner.begin_layer(settings.num_layers + 1, stage.has_head());
  planner.add_norm("ln_f", plan.stream);
  if (!settings.tied_head) planner.add("lm_head.weight", ParameterRole::weight, plan.table, weight_deviation);
  if (settings.adapters.is_on()) planner.add_adapters();
  auto parameters = planner.take();
  for (auto& parameter : parameters) {
    parameter.is_frozen = parameter.is_frozen || matches_any(parameter.name, settings.frozen);
    auto const is_of_block = parameter.layer > 0 && parameter.layer <= settings.num_layers;
    parameter.is_prunable = is_of_block && parameter.role == ParameterRole::weight && !parameter.is_small() &&
                            !parameter.factor && !parameter.is_frozen;
    auto const shares = settings.shares_gradients && parameter.is_prunable && !parameter.of_expert;
    if (shares && !parameter.placement.is_elsewhere())
      parameter.gradient = parameter.name.substr(parameter.name.find('.', 2) + 1); // without "h.0."
  }
  return parameters;
}

std::array<std::int64_t, 2> lengths_of_factors(pmm::GridShape const& shape,
                                               pmm::Coordinates const& coordinates,
                                               std::vector<PlannedTransformerParameter> const& parameters) {
  std::array<std::int64_t, 2> lengths{};
  for (auto const& parameter : parameters)
    if (auto const& factor = parameter.factor)
      lengths[factor->is_over_x ? 1 : 0] =
          factor->place + rounded_up(length_of(shape, coordinates, parameter));
  return lengths;
}

namespace {

/// Calls work(weight, left and right factor) for each adapted weight.
template<class Work>
void for_each_adapter(std::vector<PlannedTransformerParameter> const& parameters, Work const& work) {
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (auto const& factor = parameters[p].factor; factor && factor->is_left) work(factor->weight, p, p + 1);
}

} // namespace

void plan_merge_adapters(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!plan.settings.adapters.is_on()) return;
  auto const parameters = parameters_of(step.shape(), step.coordinates(), plan);
  for_each_adapter(parameters, [&](std::size_t weight, std::size_t left, std::size_t right) {
    plan_merge_adapter(step, parameters[weight].placement,
                       {parameters[left].placement, parameters[right].placement});
  });
}

void plan_project_adapters(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!plan.settings.adapters.is_on()) return;
  auto const parameters = parameters_of(step.shape(), step.coordinates(), plan);
  for_each_adapter(parameters, [&](std::size_t weight, std::size_t left, std::size_t right) {
    plan_adapter_gradient(step, parameters[weight].placement,
                          {parameters[left].placement, parameters[right].placement});
  });
  auto const lengths = lengths_of_factors(step.shape(), step.coordinates(), parameters);
  for (std::size_t a = 0; a < lengths.size(); ++a)
    if (lengths[a] > 0)
      step.add_call(runtime::Operation::all_reduce, pmm::group_axes.without(axes_of_factors[a]),
                    step.scalar_bytes(lengths[a]));
}

std::vector<PlannedTransformerParameter> moving_of(std::vector<PlannedTransformerParameter> parameters) {
  std::erase_if(parameters, [](auto const& parameter) { return parameter.is_frozen; });
  return parameters;
}

std::vector<PlannedTransformerParameter> trained_of(std::vector<PlannedTransformerParameter> parameters) {
  std::erase_if(parameters, [](auto const& parameter) {
    return parameter.is_frozen || parameter.role == ParameterRole::statistic;
  });
  return parameters;
}

std::int64_t num_small_gradients(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                 std::vector<PlannedTransformerParameter> const& parameters) {
  std::int64_t count = 0;
  for (auto const& parameter : parameters)
    if (parameter.is_small()) count = parameter.place + rounded_up(length_of(shape, coordinates, parameter));
  return count;
}

std::vector<std::int64_t> lengths_of(pmm::StepPlan const& step,
                                     std::vector<PlannedTransformerParameter> const& parameters) {
  std::vector<std::int64_t> lengths;
  for (auto const& parameter : parameters)
    lengths.push_back(length_of(step.shape(), step.coordinates(), parameter));
  return lengths;
}

std::vector<std::size_t> gradient_order_of(std::vector<PlannedTransformerParameter> const& parameters) {
  std::vector<std::size_t> order, small, of_experts;
  for (auto place = parameters.size(); place-- > 0;) {
    auto const& parameter = parameters[place];
    (parameter.of_expert                        ? of_experts
     : parameter.is_small() || parameter.factor ? small
                                                : order)
        .push_back(place);
  }
  order.insert(order.end(), small.begin(), small.end());
  order.insert(order.end(), of_experts.begin(), of_experts.end());
  return order;
}

void plan_parameter_arrays(pmm::StepPlan& step, std::vector<PlannedTransformerParameter> const& parameters) {
  std::set<std::string> shared;
  step.add_array("orthant::models::small_gradients",
                 step.scalar_bytes(num_small_gradients(step.shape(), step.coordinates(), parameters)));
  for (auto const& parameter : parameters) {
    auto const& piece = parameter.of_expert;
    if (piece && !piece->is_first) continue;
    auto const bytes =
        step.scalar_bytes(piece ? piece->length : length_of(step.shape(), step.coordinates(), parameter));
    auto const label = "orthant::models::" + (piece ? piece->array : parameter.name);
    step.add_array(label, bytes);
    if (parameter.is_small() || parameter.factor) continue;
    if (parameter.gradient.empty())
      step.add_array(label + "/gradient", bytes);
    else if (shared.insert(parameter.gradient).second)
      step.add_array("orthant::models::" + parameter.gradient + "/gradient", bytes);
  }
  for (auto const length : lengths_of_factors(step.shape(), step.coordinates(), parameters))
    if (length > 0) step.add_array("orthant::models::factor_gradients", step.scalar_bytes(length));
  for_each_adapter(parameters, [&](std::size_t weight, std::size_t left, std::size_t) {
    step.add_array("orthant::models::" + parameters[weight].name + "/base",
                   step.scalar_bytes(length_of(step.shape(), step.coordinates(), parameters[weight])));
    step.add_array("orthant::models::adapter_slots",
                   std::ssize(parameters[left].factor->columns.slots) * std::int64_t{sizeof(std::int32_t)});
  });
}

} // namespace orthant::models
