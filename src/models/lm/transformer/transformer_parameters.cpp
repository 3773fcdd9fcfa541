// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/transformer_parameters.hpp"

#include "models/parameters/weights_file.hpp"
#include "runtime/numbers/random.hpp"

#include <cmath>

namespace orthant::models {
namespace {

constexpr double weight_deviation = 0.02;
/// Small gradients begin at multiples of this number of elements, because kernels load 16 bytes at a time.
constexpr std::int64_t numbers_apart = 4;

std::int64_t rounded_up(std::int64_t count) {
  return (count + numbers_apart - 1) / numbers_apart * numbers_apart;
}

/// Number of elements of the parameter on this rank.
std::int64_t length_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                       PlannedTransformerParameter const& parameter) {
  return length_of(parameter.role, block_of(shape, coordinates, parameter.placement));
}

/// Fills the matrix with normal random values, keyed by global row and column.
template<class T>
void draw_normal(pmm::DistMatrix<T> const& matrix, double deviation, runtime::RandomStream const& stream) {
  pmm::fill(
      runtime::DefaultExec(), matrix, KOKKOS_LAMBDA(std::int64_t row, std::int64_t column) {
        return static_cast<T>(deviation * stream.template normal<double>(static_cast<std::uint64_t>(row),
                                                                         static_cast<std::uint64_t>(column)));
      });
}

/// Collects the parameters of a plan.
class Planner {
 public:
  Planner(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, TransformerPlan const& plan)
      : shape_(shape),
        coordinates_(coordinates),
        settings_(plan.settings) {}

  void add(std::string name, ParameterRole role, pmm::Placement const& placement, double deviation = 0) {
    PlannedTransformerParameter parameter{std::move(name), role, layer_, placement, deviation};
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
      all_.push_back({.name = prefix + std::to_string(e) + suffix,
                      .layer = layer_,
                      .placement = placement_of(array, of_expert, place),
                      .deviation = deviation,
                      .of_expert = ExpertPiece{prefix + "all" + suffix, array.begin_of(place),
                                               array.piece.size(), e == 0}});
    }
  }
  void begin_layer(std::int64_t layer) { layer_ = layer; }
  [[nodiscard]] std::vector<PlannedTransformerParameter> take() { return std::move(all_); }

 private:
  pmm::GridShape const& shape_;
  pmm::Coordinates const& coordinates_;
  TransformerSettings const& settings_;
  std::int64_t layer_ = 0;
  std::int64_t num_small_ = 0;
  std::vector<PlannedTransformerParameter> all_;
};

} // namespace

std::vector<PlannedTransformerParameter>
parameters_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, TransformerPlan const& plan) {
  auto const& settings = plan.settings;
  auto const branch_deviation = weight_deviation / std::sqrt(2.0 * static_cast<double>(settings.num_layers));
  Planner planner(shape, coordinates, plan);
  planner.add("wte.weight", ParameterRole::weight, plan.table, weight_deviation);
  if (settings.positions == Positions::learned)
    planner.add("wpe.weight", ParameterRole::weight, plan.positions, weight_deviation);
  for (std::int64_t l = 0; l < settings.num_layers; ++l) {
    auto const prefix = "h." + std::to_string(l) + ".";
    planner.begin_layer(l + 1);
    planner.add_norm(prefix + "ln_1", plan.stream);
    planner.add_linear(prefix + "attn.c_attn", plan.qkv, weight_deviation);
    if (settings.has_head_norms)
      for (auto const* const name : {"attn.q_norm.weight", "attn.k_norm.weight"})
        planner.add(prefix + name, ParameterRole::norm_scale, plan.head_scale);
    planner.add_linear(prefix + "attn.c_proj", plan.projection, branch_deviation);
    planner.add_norm(prefix + "ln_2", plan.stream);
    if (settings.experts.has_layer(l)) {
      planner.add(prefix + "mlp.router.weight", ParameterRole::weight, plan.experts.router, weight_deviation);
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
  planner.begin_layer(settings.num_layers + 1);
  planner.add_norm("ln_f", plan.stream);
  if (!settings.tied_head) planner.add("lm_head.weight", ParameterRole::weight, plan.table, weight_deviation);
  auto parameters = planner.take();
  for (auto& parameter : parameters)
    parameter.is_frozen = matches_any(parameter.name, settings.frozen);
  return parameters;
}

std::vector<PlannedTransformerParameter> trained_of(std::vector<PlannedTransformerParameter> parameters) {
  std::erase_if(parameters, [](auto const& parameter) { return parameter.is_frozen; });
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
    (parameter.of_expert ? of_experts : parameter.is_small() ? small : order).push_back(place);
  }
  order.insert(order.end(), small.begin(), small.end());
  order.insert(order.end(), of_experts.begin(), of_experts.end());
  return order;
}

void plan_parameter_arrays(pmm::StepPlan& step, std::vector<PlannedTransformerParameter> const& parameters) {
  step.add_array("orthant::models::small_gradients",
                 step.scalar_bytes(num_small_gradients(step.shape(), step.coordinates(), parameters)));
  for (auto const& parameter : parameters) {
    auto const& piece = parameter.of_expert;
    if (piece && !piece->is_first) continue;
    auto const bytes =
        step.scalar_bytes(piece ? piece->length : length_of(step.shape(), step.coordinates(), parameter));
    auto const label = "orthant::models::" + (piece ? piece->array : parameter.name);
    step.add_array(label, bytes);
    if (!parameter.is_small()) step.add_array(label + "/gradient", bytes);
  }
}

template<class T>
runtime::Vector<T> TransformerParameters<T>::small_gradient(std::int64_t place, std::int64_t count) const {
  return Kokkos::subview(small_gradients_,
                         std::pair(static_cast<std::size_t>(place), static_cast<std::size_t>(place + count)));
}

/// Allocates and initializes a parameter: biases with 0, scales with 1, weights at random. The random streams of the parameters
/// differ in their layer number, which is the parameter's index in the list.
template<class T>
Parameter<T> TransformerParameters<T>::make(PlannedTransformerParameter const& planned, std::uint64_t seed) {
  auto const label = "orthant::models::" + planned.name;
  Parameter<T> parameter;
  parameter.name = planned.name;
  parameter.role = planned.role;
  parameter.layer = planned.layer;
  parameter.is_frozen = planned.is_frozen;
  auto const& placement = planned.placement;
  auto const length = length_of(grid_.shape(), grid_.coordinates(), planned);
  if (planned.is_vector()) {
    auto const& layout = placement.layout;
    parameter.vector =
        pmm::DistVector<T>(grid_, layout.columns, placement.extents.columns, label, layout.column_granule);
    parameter.vector_gradient =
        pmm::DistVector<T>(grid_, layout.columns, placement.extents.columns,
                           small_gradient(planned.place, length), layout.column_granule);
    if (planned.role == ParameterRole::norm_scale) Kokkos::deep_copy(parameter.vector.local(), T{1});
    return parameter;
  }
  if (auto const& piece = planned.of_expert) {
    auto& arrays = expert_arrays_[piece->array];
    auto const of_array = "orthant::models::" + piece->array;
    if (piece->is_first)
      arrays = {runtime::make_zeros<T>(of_array, static_cast<std::size_t>(piece->length)),
                runtime::make_zeros<T>(of_array + "/gradient", static_cast<std::size_t>(piece->length))};
    auto const part =
        std::pair(static_cast<std::size_t>(piece->begin), static_cast<std::size_t>(piece->begin + length));
    parameter.is_of_expert = true;
    parameter.matrix = {grid_, placement, runtime::Vector<T>(Kokkos::subview(arrays.numbers, part))};
    parameter.matrix_gradient = {grid_, placement,
                                 runtime::Vector<T>(Kokkos::subview(arrays.gradient, part))};
    draw_normal(parameter.matrix, planned.deviation,
                {seed, runtime::Purpose::weights, 0, static_cast<std::uint32_t>(list_.size())});
    return parameter;
  }
  parameter.matrix = pmm::DistMatrix<T>(grid_, placement, label);
  parameter.matrix_gradient =
      planned.is_small() ? pmm::DistMatrix<T>(grid_, placement, small_gradient(planned.place, length))
                         : pmm::DistMatrix<T>(grid_, placement, label + "/gradient");
  draw_normal(parameter.matrix, planned.deviation,
              {seed, runtime::Purpose::weights, 0, static_cast<std::uint32_t>(list_.size())});
  return parameter;
}

template<class T>
TransformerParameters<T>::TransformerParameters(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                                                std::uint64_t seed)
    : grid_(grid) {
  auto const planned = parameters_of(grid.shape(), grid.coordinates(), plan);
  small_gradients_ = runtime::Vector<T>(
      "orthant::models::small_gradients",
      static_cast<std::size_t>(num_small_gradients(grid.shape(), grid.coordinates(), planned)));
  for (auto const& parameter : planned)
    list_.push_back(make(parameter, seed));
  gradient_order_ = gradient_order_of(planned);

  std::size_t next = 0;
  auto const& settings = plan.settings;
  auto const take_matrix = [&](LinearParameters<T>& linear) {
    linear.weight = list_[next].matrix;
    linear.weight_gradient = list_[next++].matrix_gradient;
  };
  auto const take_vector = [&](pmm::DistVector<T>& vector, pmm::DistVector<T>& gradient) {
    vector = list_[next].vector;
    gradient = list_[next++].vector_gradient;
  };
  auto const take_linear = [&](LinearParameters<T>& linear) {
    take_matrix(linear);
    if (settings.has_bias) take_vector(linear.bias, linear.bias_gradient);
  };
  auto const take_norm = [&](NormParameters<T>& norm) {
    take_vector(norm.scale, norm.scale_gradient);
    if (settings.norm == NormKind::layer && settings.has_bias) take_vector(norm.shift, norm.shift_gradient);
  };
  take_matrix(embedding_);
  if (settings.positions == Positions::learned) take_matrix(positions_);
  for (std::int64_t l = 0; l < settings.num_layers; ++l) {
    auto& block = blocks_.emplace_back();
    take_norm(block.attention_norm);
    take_linear(block.qkv);
    if (settings.has_head_norms)
      for (auto* const norm : {&block.head_norms.queries, &block.head_norms.keys})
        take_vector(norm->scale, norm->scale_gradient);
    take_linear(block.projection);
    take_norm(block.feed_forward_norm);
    if (settings.experts.has_layer(l)) {
      auto const arrays_of = [&](char const* suffix) {
        return expert_arrays_.at("h." + std::to_string(l) + ".mlp.experts.all" + suffix);
      };
      auto const up = arrays_of(".c_fc.weight"), down = arrays_of(".c_proj.weight");
      block.experts = {list_[next].matrix, list_[next].matrix_gradient, up.numbers, up.gradient, down.numbers,
                       down.gradient};
      next += 1 + 2 * static_cast<std::size_t>(settings.experts.num_experts);
      if (!settings.experts.has_shared()) continue;
      take_matrix(block.up);
      take_matrix(block.down);
      continue;
    }
    take_linear(block.up);
    take_linear(block.down);
  }
  take_norm(final_norm_);
  if (!settings.tied_head) take_matrix(head_);
}

template<class T>
void TransformerParameters<T>::sum_small_gradients(runtime::DefaultExec const& exec) const {
  if (small_gradients_.extent(0) > 0) runtime::all_reduce(exec, grid_.over(pmm::Axis::z), small_gradients_);
}

template class TransformerParameters<float>;
template class TransformerParameters<double>;

} // namespace orthant::models
