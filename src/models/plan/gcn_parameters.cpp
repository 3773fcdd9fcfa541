// SPDX-License-Identifier: Apache-2.0
#include "models/plan/gcn_parameters.hpp"

#include "runtime/numbers/random.hpp"

#include <cmath>

namespace orthant::models {
namespace {

/// Of the input projection, where layers are numbered from 0: what its weights are drawn by.
constexpr std::int64_t projection_index = -1;

/// Glorot & Bengio (2010): uniform in +- sqrt(6 / (in + out)), drawn by global row and column.
template<class T>
void draw_weight(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& weight, std::uint64_t seed,
                 std::uint32_t layer) {
  auto const extents = weight.extents();
  auto const limit = std::sqrt(6.0 / static_cast<double>(extents.rows + extents.columns));
  runtime::RandomStream const stream(seed, runtime::Purpose::weights, 0, layer);
  pmm::fill(
      exec, weight, KOKKOS_LAMBDA(std::int64_t row, std::int64_t column) {
        auto const u = stream.template uniform<double>(static_cast<std::uint64_t>(row),
                                                       static_cast<std::uint64_t>(column));
        return static_cast<T>(limit * (2 * u - 1));
      });
}

} // namespace

std::int64_t PlannedParameter::length(pmm::GridShape const& shape,
                                      pmm::Coordinates const& coordinates) const {
  auto const block = pmm::block_of(shape, coordinates, placement);
  auto const is_vector = role == ParameterRole::bias || role == ParameterRole::norm_scale;
  return is_vector ? block.columns.size() : block.num_padded;
}

std::vector<PlannedParameter> parameters_of(GcnPlan const& plan, GcnSettings const& settings) {
  std::vector<PlannedParameter> all;
  auto const add = [&](pmm::Placement const& weight) {
    all.push_back({ParameterRole::weight, weight});
    if (settings.has_bias) all.push_back({ParameterRole::bias, weight});
  };
  if (plan.projection) add(plan.projection->weight);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    add(plan.layers[l].weight);
    if (is_normalised(plan, settings, l)) all.push_back({ParameterRole::norm_scale, plan.layers[l].output});
  }
  if (plan.head) add(plan.head->weight);
  if (settings.trains_features) all.push_back({ParameterRole::embedding, plan.features()});
  return all;
}

std::vector<std::int64_t> lengths_of(pmm::StepPlan const& step,
                                     std::vector<PlannedParameter> const& parameters) {
  std::vector<std::int64_t> lengths;
  for (auto const& parameter : parameters)
    lengths.push_back(parameter.length(step.shape(), step.coordinates()));
  return lengths;
}

void plan_parameter_arrays(pmm::StepPlan& step, std::vector<PlannedParameter> const& parameters) {
  for (auto const& [role, placement] : parameters) {
    auto const add_both = [&, columns = placement.layout.columns,
                           length = placement.extents.columns](std::string const& label) {
      plan_vector(step, columns, length, label);
      plan_vector(step, columns, length, label + "_gradient");
    };
    switch (role) {
    case ParameterRole::weight:
      plan_matrix(step, placement, "orthant::models::weight");
      plan_matrix(step, placement, "orthant::models::weight_gradient");
      break;
    case ParameterRole::bias:
      add_both("orthant::models::bias");
      break;
    case ParameterRole::norm_scale:
      add_both("orthant::models::norm_scale");
      break;
    case ParameterRole::embedding:
      plan_matrix(step, placement, "orthant::models::feature_gradient");
      break;
    }
  }
}

template<class T>
GcnParameters<T>::GcnParameters(pmm::ProcessGrid const& grid, GcnPlan const& plan,
                                GcnSettings const& settings) {
  if (plan.projection) projection_ = make(grid, "input", projection_index, plan.projection->weight, settings);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    layers_.push_back(make(grid, "layer" + std::to_string(l), layer.index, layer.weight, settings));
    if (is_normalised(plan, settings, l)) add_norm(grid, layer, layers_.back());
  }
  if (plan.head)
    head_ = make(grid, "head", static_cast<std::int64_t>(plan.layers.size()), plan.head->weight, settings);
}

template<class T>
GcnLayerParameters<T> GcnParameters<T>::make(pmm::ProcessGrid const& grid, std::string const& name,
                                             std::int64_t index, pmm::Placement const& weight,
                                             GcnSettings const& settings) {
  GcnLayerParameters<T> made;
  made.weight = pmm::DistMatrix<T>(grid, weight, "orthant::models::weight");
  made.weight_gradient = pmm::DistMatrix<T>(grid, weight, "orthant::models::weight_gradient");
  draw_weight(runtime::DefaultExec(), made.weight, settings.seed, static_cast<std::uint32_t>(index));
  list_.push_back(
      {name + ".weight", ParameterRole::weight, index, made.weight, made.weight_gradient, {}, {}});
  if (settings.has_bias) {
    auto const axis = weight.layout.columns;
    auto const length = weight.extents.columns;
    made.bias = pmm::DistVector<T>(grid, axis, length, "orthant::models::bias");
    made.bias_gradient = pmm::DistVector<T>(grid, axis, length, "orthant::models::bias_gradient");
    list_.push_back({name + ".bias", ParameterRole::bias, index, {}, {}, made.bias, made.bias_gradient});
  }
  return made;
}

template<class T>
void GcnParameters<T>::add_norm(pmm::ProcessGrid const& grid, GcnLayerPlan const& plan,
                                GcnLayerParameters<T>& layer) {
  auto const axis = plan.output.layout.columns;
  auto const length = plan.output.extents.columns;
  layer.norm_scale = pmm::DistVector<T>(grid, axis, length, "orthant::models::norm_scale");
  layer.norm_scale_gradient = pmm::DistVector<T>(grid, axis, length, "orthant::models::norm_scale_gradient");
  Kokkos::deep_copy(layer.norm_scale.local(), T{1});
  list_.push_back({"layer" + std::to_string(plan.index) + ".norm",
                   ParameterRole::norm_scale,
                   plan.index,
                   {},
                   {},
                   layer.norm_scale,
                   layer.norm_scale_gradient});
}

template<class T>
void GcnParameters<T>::add_features(pmm::DistMatrix<T> const& features) {
  features_gradient_ =
      pmm::DistMatrix<T>(features.grid(), features.placement(), "orthant::models::feature_gradient");
  list_.push_back({"features", ParameterRole::embedding, 0, features, features_gradient_, {}, {}});
}

template<class T>
std::int64_t GcnParameters<T>::num_numbers() const {
  auto count = std::int64_t{0};
  for (auto const& parameter : list_)
    count += parameter.num_numbers();
  return count;
}

template class GcnParameters<float>;
template class GcnParameters<double>;

} // namespace orthant::models
