// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/transformer_parameters.hpp"

#include "models/parameters/device_copy.hpp"
#include "runtime/numbers/random.hpp"

namespace orthant::models {
namespace {

/// Fills the matrix with normal random values, keyed by global row and column.
template<class T>
void draw_normal(pmm::DistMatrix<T> const& matrix, double deviation, runtime::RandomStream const& stream) {
  pmm::fill(
      runtime::DefaultExec(), matrix, KOKKOS_LAMBDA(std::int64_t row, std::int64_t column) {
        return static_cast<T>(deviation * stream.template normal<double>(static_cast<std::uint64_t>(row),
                                                                         static_cast<std::uint64_t>(column)));
      });
}

} // namespace

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
  parameter.is_copy = planned.is_copy;
  parameter.is_prunable = planned.is_prunable;
  auto const& placement = planned.placement;
  auto const length = length_of(grid_.shape(), grid_.coordinates(), planned);
  if (planned.is_vector()) {
    auto const& layout = placement.layout;
    if (placement.is_elsewhere()) {
      parameter.vector = parameter.vector_gradient =
          pmm::DistVector<T>::elsewhere(grid_, layout.columns, placement.extents.columns);
      return parameter;
    }
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
  if (auto const& factor = planned.factor) {
    auto const& array = factor_gradients_[factor->is_over_x ? 1 : 0];
    auto const part =
        std::pair(static_cast<std::size_t>(factor->place), static_cast<std::size_t>(factor->place + length));
    parameter.matrix_gradient = {grid_, placement, runtime::Vector<T>(Kokkos::subview(array, part))};
    if (planned.deviation > 0)
      draw_normal(parameter.matrix, planned.deviation,
                  {seed, runtime::Purpose::weights, 0, static_cast<std::uint32_t>(list_.size())});
    return parameter;
  }
  if (planned.is_small()) {
    parameter.matrix_gradient = {grid_, placement, small_gradient(planned.place, length)};
  } else if (planned.gradient.empty()) {
    parameter.matrix_gradient = {grid_, placement, label + "/gradient"};
  } else {
    auto const array = "orthant::models::" + planned.gradient + "/gradient";
    parameter.matrix_gradient = shared_gradients_.try_emplace(array, grid_, placement, array).first->second;
  }
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
  auto const lengths = lengths_of_factors(grid.shape(), grid.coordinates(), planned);
  for (std::size_t a = 0; a < lengths.size(); ++a)
    if (lengths[a] > 0)
      factor_gradients_[a] =
          runtime::Vector<T>("orthant::models::factor_gradients", static_cast<std::size_t>(lengths[a]));
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
    if (settings.query_key_norm != QueryKeyNorm::none)
      for (auto* const norm : {&block.query_key_norms.queries, &block.query_key_norms.keys})
        take_vector(norm->scale, norm->scale_gradient);
    take_linear(block.projection);
    take_norm(block.feed_forward_norm);
    if (settings.experts.has_layer(l)) {
      auto const arrays_of = [&](char const* suffix) {
        return expert_arrays_.at("h." + std::to_string(l) + ".mlp.experts.all" + suffix);
      };
      auto const up = arrays_of(".c_fc.weight"), down = arrays_of(".c_proj.weight");
      block.experts = {
          list_[next].matrix, list_[next].matrix_gradient, {}, {}, up.numbers, up.gradient, down.numbers,
          down.gradient};
      ++next;
      if (settings.experts.has_biases) take_vector(block.experts.biases, block.experts.bias_targets);
      next += 2 * static_cast<std::size_t>(settings.experts.num_experts);
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
  make_adapters(planned, settings.adapters);
}

/// The products keep the memory of an adapted weight. The list gets the base, which has its own memory.
template<class T>
void TransformerParameters<T>::make_adapters(std::vector<PlannedTransformerParameter> const& planned,
                                             AdapterSettings const& settings) {
  for (std::size_t left = 0; left < planned.size(); ++left) {
    if (!planned[left].factor || !planned[left].factor->is_left) continue;
    auto const weight = planned[left].factor->weight, right = left + 1;
    auto& parameter = list_[weight];
    pmm::DistMatrix<T> const base(grid_, planned[weight].placement,
                                  "orthant::models::" + parameter.name + "/base");
    Kokkos::deep_copy(base.storage(), parameter.matrix.storage());
    auto const slots =
        to_vector<std::int32_t>("orthant::models::adapter_slots", planned[left].factor->columns.slots);
    adapters_.push_back({base, parameter.matrix, parameter.matrix_gradient, list_[left].matrix,
                         list_[left].matrix_gradient, list_[right].matrix, list_[right].matrix_gradient,
                         slots, settings.rank, settings.scale()});
    parameter.matrix = base;
  }
}

template<class T>
void TransformerParameters<T>::merge_adapters(runtime::DefaultExec const& exec) const {
  for (auto const& adapter : adapters_)
    adapter.merge(exec);
}

template<class T>
void TransformerParameters<T>::project_adapters(runtime::DefaultExec const& exec) const {
  for (auto const& adapter : adapters_)
    adapter.project(exec);
  for (std::size_t a = 0; a < factor_gradients_.size(); ++a)
    if (factor_gradients_[a].extent(0) > 0)
      runtime::all_reduce(exec, grid_.over(pmm::group_axes.without(axes_of_factors[a])),
                          factor_gradients_[a]);
}

template<class T>
void TransformerParameters<T>::sum_small_gradients(runtime::DefaultExec const& exec) const {
  if (small_gradients_.extent(0) > 0) runtime::all_reduce(exec, grid_.over(pmm::Axis::z), small_gradients_);
}

template class TransformerParameters<float>;
template class TransformerParameters<double>;

} // namespace orthant::models
