#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a GCN learns: weights and biases with their gradients. They know of no graph, so several networks may
// share them: one on mini-batches, one on the whole graph.

#include "models/core/parameter.hpp"
#include "models/plan/gcn_settings.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orthant::models {

/// A parameter before it exists: a matrix of that placement, or a vector along the columns of one.
struct PlannedParameter {
  ParameterRole role = ParameterRole::weight;
  pmm::Placement placement;

  /// This rank's numbers, with padding.
  [[nodiscard]] std::int64_t length(pmm::GridShape const& shape, pmm::Coordinates const& coordinates) const;
};
/// In the order of GcnParameters::list().
[[nodiscard]] std::vector<PlannedParameter> parameters_of(GcnPlan const& plan, GcnSettings const& settings);
/// The lengths of all of them on this rank.
[[nodiscard]] std::vector<std::int64_t> lengths_of(pmm::StepPlan const& step,
                                                   std::vector<PlannedParameter> const& parameters);
/// Lists their arrays, of features that are trained the gradient.
void plan_parameter_arrays(pmm::StepPlan& step, std::vector<PlannedParameter> const& parameters);

/// The parameters of one layer, of the input projection or of the head. A copy shares the numbers.
template<class T>
struct GcnLayerParameters {
  pmm::DistMatrix<T> weight, weight_gradient;
  pmm::DistVector<T> bias, bias_gradient;             // empty without a bias
  pmm::DistVector<T> norm_scale, norm_scale_gradient; // empty without a norm
};

template<class T>
class GcnParameters {
 public:
  /// Draws the weights (Glorot uniform; biases 0, scales 1) where `plan` puts them. `grid` must outlive them.
  /// Not collective.
  GcnParameters(pmm::ProcessGrid const& grid, GcnPlan const& plan, GcnSettings const& settings);

  /// Trains these features too: the last of list(). Once.
  void add_features(pmm::DistMatrix<T> const& features);

  [[nodiscard]] std::size_t num_layers() const { return layers_.size(); }
  [[nodiscard]] GcnLayerParameters<T> const& layer(std::size_t l) const { return layers_[l]; }
  /// Empty where the plan has none.
  [[nodiscard]] GcnLayerParameters<T> const& projection() const { return projection_; }
  [[nodiscard]] GcnLayerParameters<T> const& head() const { return head_; }
  /// Empty unless they are trained.
  [[nodiscard]] pmm::DistMatrix<T> const& features_gradient() const { return features_gradient_; }

  /// All of them, for the optimiser and for files: "input.weight", "layer0.weight", "layer0.bias",
  /// "layer0.norm", .., "head.weight", "features". Copies share the numbers.
  [[nodiscard]] std::vector<Parameter<T>>& list() { return list_; }
  [[nodiscard]] std::vector<Parameter<T>> const& list() const { return list_; }
  /// Numbers over the whole grid.
  [[nodiscard]] std::int64_t num_numbers() const;

 private:
  GcnLayerParameters<T> make(pmm::ProcessGrid const& grid, std::string const& name, std::int64_t index,
                             pmm::Placement const& weight, GcnSettings const& settings);
  void add_norm(pmm::ProcessGrid const& grid, GcnLayerPlan const& plan, GcnLayerParameters<T>& layer);

  GcnLayerParameters<T> projection_;
  std::vector<GcnLayerParameters<T>> layers_;
  GcnLayerParameters<T> head_;
  pmm::DistMatrix<T> features_gradient_;
  std::vector<Parameter<T>> list_;
};

extern template class GcnParameters<float>;
extern template class GcnParameters<double>;

} // namespace orthant::models
