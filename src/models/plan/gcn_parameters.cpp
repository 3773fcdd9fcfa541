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

template<class T>
GcnParameters<T>::GcnParameters(pmm::ProcessGrid const& grid, GcnPlan const& plan,
                                GcnSettings const& settings) {
  if (plan.projection) projection_ = make(grid, "input", projection_index, plan.projection->weight, settings);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    layers_.push_back(make(grid, "layer" + std::to_string(l), layer.index, layer.weight, settings));
    if (settings.norm == Norm::rms && is_activated(plan, l)) add_norm(grid, layer, layers_.back());
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
