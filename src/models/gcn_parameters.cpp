// SPDX-License-Identifier: Apache-2.0
#include "models/gcn_parameters.hpp"

#include "runtime/random.hpp"

#include <cmath>

namespace orthant::models {
namespace {

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
  runtime::DefaultExec const exec;
  for (auto const& layer : plan.layers) {
    GcnLayerParameters<T> made;
    auto const name = "layer" + std::to_string(layer.index);
    made.weight = pmm::DistMatrix<T>(grid, layer.weight, "orthant::models::weight");
    made.weight_gradient = pmm::DistMatrix<T>(grid, layer.weight, "orthant::models::weight_gradient");
    draw_weight(exec, made.weight, settings.seed, static_cast<std::uint32_t>(layer.index));
    list_.push_back({name + ".weight", layer.index, made.weight, made.weight_gradient, {}, {}, false});
    if (settings.has_bias) {
      auto const axis = layer.weight.layout.columns;
      auto const length = layer.weight.extents.columns;
      made.bias = pmm::DistVector<T>(grid, axis, length, "orthant::models::bias");
      made.bias_gradient = pmm::DistVector<T>(grid, axis, length, "orthant::models::bias_gradient");
      list_.push_back({name + ".bias", layer.index, {}, {}, made.bias, made.bias_gradient, true});
    }
    layers_.push_back(made);
  }
}

template<class T>
void GcnParameters<T>::add_features(pmm::DistMatrix<T> const& features) {
  features_gradient_ =
      pmm::DistMatrix<T>(features.grid(), features.placement(), "orthant::models::feature_gradient");
  list_.push_back({"features", 0, features, features_gradient_, {}, {}, false});
}

template<class T>
std::int64_t GcnParameters<T>::num_numbers() const {
  auto count = std::int64_t{0};
  for (auto const& parameter : list_)
    count += parameter.is_bias ? parameter.bias.length()
                               : parameter.matrix.extents().rows * parameter.matrix.extents().columns;
  return count;
}

template class GcnParameters<float>;
template class GcnParameters<double>;

} // namespace orthant::models
