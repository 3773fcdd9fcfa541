#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a GCN learns: weights and biases with their gradients. They know of no graph, so several networks may
// share them: one on mini-batches, one on the whole graph.
//
// In the schedule rows all weights, biases and scales of norms lie in one array, one after the other
// (pmm/matrix/flat_array.hpp). A pass gathers it before it begins, and sums all gradients at its end. Kernels
// use whole parameters, and leave addends of gradients; the optimiser and files know this rank's pieces.

#include "models/gnn/links/link_decoder.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "models/gnn/plan/network_settings.hpp"
#include "models/layers/centered_norm.hpp"
#include "models/parameters/parameter.hpp"
#include "pmm/matrix/flat_array.hpp"
#include "pmm/rows/bias.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orthant::models {

/// A parameter before it exists: a matrix of that placement, or a vector along the columns of one.
struct PlannedParameter {
  ParameterRole role = ParameterRole::weight;
  pmm::Placement placement;
  std::optional<std::int64_t> place = std::nullopt; // of its first number in the array of all parameters

  [[nodiscard]] bool is_vector() const { return models::is_vector(role); }
  /// Numbers of the whole parameter.
  [[nodiscard]] std::int64_t num_numbers() const {
    return (is_vector() ? 1 : placement.extents.rows) * placement.extents.columns;
  }
};
/// In the order of NetworkParameters::list().
[[nodiscard]] std::vector<PlannedParameter> parameters_of(NetworkPlan const& plan,
                                                          NetworkSettings const& settings);
/// This rank's numbers of each, with padding.
[[nodiscard]] std::vector<std::int64_t> lengths_of(pmm::StepPlan const& step,
                                                   std::vector<PlannedParameter> const& parameters);
/// Of the parameters that are trained, those whose squares this rank adds up: without padding, and one replica's.
[[nodiscard]] std::vector<std::int64_t> normed_lengths_of(pmm::StepPlan const& step,
                                                          std::vector<PlannedParameter> const& parameters);
/// The same of those that are trained, and of statistics.
struct UpdatedLengths {
  std::vector<std::int64_t> trained, statistics;
};
[[nodiscard]] UpdatedLengths updated_lengths_of(pmm::StepPlan const& step,
                                                std::vector<PlannedParameter> const& parameters);
/// Of the array of all parameters, without padding; 0 if each has an array of its own.
[[nodiscard]] std::int64_t length_of_all(std::vector<PlannedParameter> const& parameters);
/// Lists their arrays, of features that are trained the gradient.
void plan_parameter_arrays(pmm::StepPlan& step, std::vector<PlannedParameter> const& parameters);

/// The parameters of one layer, of the input projection or of the head. A copy shares the numbers.
template<class T>
struct NetworkLayerParameters {
  pmm::DistMatrix<T> weight, weight_gradient;
  pmm::DistMatrix<T> self_weight, self_weight_gradient; // empty unless the vertex itself has a weight
  pmm::DistVector<T> bias, bias_gradient;               // empty without a bias
  pmm::DistVector<T> norm_scale, norm_scale_gradient;   // empty without a norm
  Boxed<CenteredNormParameters<T>> centered;            // of LayerNorm and BatchNorm, beside the scale
  pmm::DistVector<T> epsilon, epsilon_gradient; // one number; empty without a factor for the vertex itself
  struct Attention {
    pmm::DistMatrix<T> vectors, vectors_gradient; // one per head
  };
  Boxed<Attention> attention; // apart, as few models have it

  /// Whether gradients are addends, which NetworkParameters sums.
  [[nodiscard]] bool has_partial_gradients() const {
    return weight_gradient.layout().storage == pmm::Storage::partial;
  }
  /// `sums` := its sum over all ranks that have rows of `gradient`, unless gradients are addends. Collective
  /// over these ranks.
  template<class Number>
  void reduce(runtime::DefaultExec const& exec, pmm::DistMatrix<Number> const& gradient,
              pmm::DistVector<T> const& sums) const {
    if (!has_partial_gradients()) pmm::reduce_sums(exec, gradient, sums);
  }
};

template<class T>
class NetworkParameters {
 public:
  /// Draws the weights (Glorot uniform; biases 0, scales 1) where `plan` puts them. `grid` must outlive them.
  /// Not collective.
  NetworkParameters(pmm::ProcessGrid const& grid, NetworkPlan const& plan, NetworkSettings const& settings);

  /// Trains these features too: the last of list(). Once.
  void add_features(pmm::DistMatrix<T> const& features);

  /// Whether they lie in one array.
  [[nodiscard]] bool are_in_one_array() const { return values_.whole().extent(0) > 0; }
  /// If they do: brings all of them to all ranks, after pieces have changed and before a pass. Enqueues on
  /// exec. Collective over z, x and y.
  void gather(runtime::DefaultExec const& exec) const { values_.gather(exec); }
  /// If they do: sums the gradients that a pass left on all ranks. Enqueues on exec. Collective over y, x and
  /// z.
  void sum_gradients(runtime::DefaultExec const& exec) const { gradients_.sum(exec); }

  [[nodiscard]] std::size_t num_layers() const { return layers_.size(); }
  [[nodiscard]] NetworkLayerParameters<T> const& layer(std::size_t l) const { return layers_[l]; }
  /// The second layer of layer l's perceptron; empty where the plan has none.
  [[nodiscard]] NetworkLayerParameters<T> const& second(std::size_t l) const { return seconds_[l]; }
  /// Empty where the plan has none.
  [[nodiscard]] NetworkLayerParameters<T> const& projection() const { return projection_; }
  [[nodiscard]] NetworkLayerParameters<T> const& head() const { return head_; }
  /// Of the perceptron that scores links; empty unless there is one.
  [[nodiscard]] DecoderParameters<T> decoder() const;
  /// Empty unless they are trained.
  [[nodiscard]] pmm::DistMatrix<T> const& features_gradient() const { return features_gradient_; }

  /// All of them, for the optimiser and for files: "input.weight", "layer0.weight", "layer0.bias",
  /// "layer0.self_weight", "layer0.norm", "layer0.norm_shift", "layer0.norm_mean", "layer0.norm_variance", "layer0.epsilon", "layer0.attention", "layer0.second.weight", .., "head.weight", "decoder.weight", "decoder.second.weight", "features". Copies share the numbers.
  [[nodiscard]] std::vector<Parameter<T>>& list() { return list_; }
  [[nodiscard]] std::vector<Parameter<T>> const& list() const { return list_; }
  /// Trained numbers over the whole grid.
  [[nodiscard]] std::int64_t num_numbers() const;

 private:
  /// `number`: of the layer's weights. `num_weights`: that lie side by side in its weight.
  NetworkLayerParameters<T> make(std::string const& name, std::int64_t index, NetworkSettings const& settings,
                                 std::uint64_t number = 0, bool has_self_weight = false,
                                 std::int64_t num_weights = 1);
  void add_attention(std::int64_t index, AttentionPlan const& attention, std::uint64_t seed,
                     NetworkLayerParameters<T>& layer);
  void add_epsilon(std::int64_t index, NetworkLayerParameters<T>& layer);
  void add_norm(std::int64_t index, Norm kind, NetworkLayerParameters<T>& layer);
  /// Adds the next one of the plan, zero, to list(). Returns it as kernels use it.
  Parameter<T> add(std::string const& name, std::int64_t layer, std::string const& label);
  /// Puts it in the array of all, which has this rank's piece of it, too; that is returned.
  Parameter<T> place_in_array(Parameter<T>& whole, PlannedParameter const& planned);

  pmm::ProcessGrid const& grid_;
  std::vector<PlannedParameter> planned_; // in the order of list_
  pmm::FlatValues<T> values_;             // of all parameters, if they are in one array
  pmm::FlatSums<T> gradients_;
  NetworkLayerParameters<T> projection_;
  std::vector<NetworkLayerParameters<T>> layers_;
  std::vector<NetworkLayerParameters<T>> seconds_; // [layers]
  NetworkLayerParameters<T> head_;
  NetworkLayerParameters<T> decoder_, decoder_second_; // empty without a perceptron that scores links
  pmm::DistMatrix<T> features_gradient_;
  std::vector<Parameter<T>> list_;
};

extern template class NetworkParameters<float>;
extern template class NetworkParameters<double>;

} // namespace orthant::models
