#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Trained parameters of a graph network: weights and biases with their gradients. They do not depend on a graph, so networks can
// share them, for example one on mini-batches and one on the whole graph.
//
// In the schedule `rows` all weights, biases and scales of norms are stored in one array, one after the other (pmm/matrix/flat_array.hpp).
// It is gathered before a pass, and all gradients are summed after the pass. Kernels use whole parameters and write partial gradients; the
// optimizer and files use this rank's pieces.

#include "models/gnn/links/link_decoder.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "models/gnn/plan/network_settings.hpp"
#include "models/gnn/plan/relation_step.hpp"
#include "models/layers/hidden_norm.hpp"
#include "models/parameters/parameter.hpp"
#include "models/training/optimizer.hpp"
#include "pmm/matrix/flat_array.hpp"
#include "pmm/rows/bias.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orthant::models {

/// A parameter that is not allocated yet: a matrix with this placement, or a vector along the columns of such a matrix.
struct PlannedParameter {
  ParameterRole role = ParameterRole::weight;
  pmm::Placement placement;
  std::optional<std::int64_t> place = std::nullopt; // index of its first number in the array of all

  [[nodiscard]] bool is_vector() const { return models::is_vector(role); }
  /// Number of elements of the whole parameter.
  [[nodiscard]] std::int64_t num_numbers() const {
    return (is_vector() ? 1 : placement.extents.rows) * placement.extents.columns;
  }
};
/// The parameters, in the order of NetworkParameters::list().
[[nodiscard]] std::vector<PlannedParameter> parameters_of(NetworkPlan const& plan,
                                                          NetworkSettings const& settings);
/// Number of elements of each parameter on this rank, with padding.
[[nodiscard]] std::vector<std::int64_t> lengths_of(pmm::StepPlan const& step,
                                                   std::vector<PlannedParameter> const& parameters);
/// The trained parameters on this rank, and the number of elements of each running statistic. `normed`: number of elements of each trained
/// parameter in this rank's part of a norm, without padding, each element on one replica only.
struct UpdatedLengths {
  UpdatedParameters trained;
  std::vector<std::int64_t> normed, statistics;
};
[[nodiscard]] UpdatedLengths updated_lengths_of(pmm::StepPlan const& step,
                                                std::vector<PlannedParameter> const& parameters);
/// Length of the array of all parameters, without padding; 0 if each parameter has its own array.
[[nodiscard]] std::int64_t length_of_all(std::vector<PlannedParameter> const& parameters);
/// Lists the arrays of the parameters. For trained features it lists only the gradient.
void plan_parameter_arrays(pmm::StepPlan& step, std::vector<PlannedParameter> const& parameters);

/// Parameters of one layer, of the input projection or of the head. Copies share memory.
template<class T>
struct NetworkLayerParameters {
  pmm::DistMatrix<T> weight, weight_gradient;
  pmm::DistMatrix<T> self_weight, self_weight_gradient; // empty without self weights
  pmm::DistVector<T> bias, bias_gradient;               // empty without a bias
  pmm::DistVector<T> norm_scale, norm_scale_gradient;   // empty without a norm
  Boxed<CenteredNormParameters<T>> centered;            // LayerNorm and BatchNorm: all but the scale
  pmm::DistVector<T> epsilon, epsilon_gradient;         // one number; empty without self scales
  struct Attention {
    pmm::DistMatrix<T> vectors, vectors_gradient;                                              // one per head
    pmm::DistMatrix<T> edge_weight, edge_weight_gradient, edge_vectors, edge_vectors_gradient; // may be empty
  };
  Boxed<Attention> attention; // boxed because few models have it
  struct RelationParameter {
    pmm::DistMatrix<T> value, gradient; // empty if the layer has none
  };
  using Relations = ByRelationPart<RelationParameter>;
  Boxed<Relations> relations;

  /// Whether gradients are partial: NetworkParameters sums them at the end of a pass.
  [[nodiscard]] bool has_partial_gradients() const {
    return weight_gradient.layout().storage == pmm::Storage::partial;
  }
  /// `sums` := the gradient, summed over all ranks that have rows. Does nothing if gradients are partial. Collective over these ranks.
  template<class Number>
  void reduce(runtime::DefaultExec const& exec, pmm::DistMatrix<Number> const& gradient,
              pmm::DistVector<T> const& sums) const {
    if (!has_partial_gradients()) pmm::reduce_sums(exec, gradient, sums);
  }
};

template<class T>
class NetworkParameters {
 public:
  /// Draws the weights (Glorot uniform; biases 0, scales 1) with the placements of `plan`. `grid` must outlive this
  /// object. Not collective.
  NetworkParameters(pmm::ProcessGrid const& grid, NetworkPlan const& plan, NetworkSettings const& settings);

  /// Also trains these features, as the last entry of list(). `ids`: original ids of the block's rows. At most one call.
  void add_features(pmm::DistMatrix<T> const& features, std::shared_ptr<std::vector<std::int64_t> const> ids,
                    NetworkSettings const& settings);

  /// Whether all parameters are stored in one array (schedule `rows`).
  [[nodiscard]] bool are_in_one_array() const { return values_.whole().extent(0) > 0; }
  /// Gathers the one array to all ranks; no-op otherwise. Call it after pieces have changed and before a pass. Enqueues on exec.
  /// Collective over z, x and y.
  void gather(runtime::DefaultExec const& exec) const { values_.gather(exec); }
  /// Sums the gradients of a pass over all ranks if they are stored in one array; no-op otherwise. Enqueues on exec. Collective over y, x
  /// and z.
  void sum_gradients(runtime::DefaultExec const& exec) const { gradients_.sum(exec); }

  [[nodiscard]] std::size_t num_layers() const { return layers_.size(); }
  [[nodiscard]] NetworkLayerParameters<T> const& layer(std::size_t l) const { return layers_[l]; }
  /// The second layer of layer l's perceptron, which the plan must have.
  [[nodiscard]] NetworkLayerParameters<T> const& second(std::size_t l) const { return seconds_.at(l); }
  /// The map of layer l's residual, which the plan must have.
  [[nodiscard]] NetworkLayerParameters<T> const& residual(std::size_t l) const { return residuals_.at(l); }
  /// The weight by which the head reads layer l's result, if it reads the concatenation of several.
  [[nodiscard]] NetworkLayerParameters<T> const& jump(std::size_t l) const { return jumps_.at(l); }
  /// Empty if the plan has none.
  [[nodiscard]] NetworkLayerParameters<T> const& projection() const { return projection_; }
  [[nodiscard]] NetworkLayerParameters<T> const& head() const { return head_; }
  /// Parameters of the perceptron that scores links; empty without such a perceptron.
  [[nodiscard]] DecoderParameters<T> decoder() const;
  /// Empty unless features are trained.
  [[nodiscard]] pmm::DistMatrix<T> const& features_gradient() const { return features_gradient_; }

  /// All parameters, for the optimizer and for files: "input.weight", "layer0.weight", "layer0.bias", "layer0.self_weight",
  /// "layer0.comp", "layer0.roots", "layer0.biases", "layer0.target_weight", "layer0.norm", "layer0.norm_shift", "layer0.norm_mean", "layer0.norm_variance", "layer0.epsilon", "layer0.attention", "layer0.edge_weight", "layer0.edge_attention",
  /// "layer0.second.weight", .., "layer0.residual.weight", "head.weight", "layer0.jump.weight", "decoder.weight", "decoder.second.weight", "features". Copies share memory.
  [[nodiscard]] std::vector<Parameter<T>>& list() { return list_; }
  [[nodiscard]] std::vector<Parameter<T>> const& list() const { return list_; }
  /// Number of trained elements over the whole grid.
  [[nodiscard]] std::int64_t num_numbers() const;

 private:
  /// `number`: index of the weight within its layer. `fan`: rows and columns of each matrix in the weight; 0: of the weight itself.
  NetworkLayerParameters<T> make(std::string const& name, std::int64_t index, NetworkSettings const& settings,
                                 std::uint64_t number = 0, bool has_self_weight = false,
                                 std::int64_t fan = 0);
  /// Adds the parameters of relations besides the weight.
  void add_relations(std::int64_t index, RelationPlan const& relations, std::uint64_t seed,
                     NetworkLayerParameters<T>& layer);
  void add_attention(std::int64_t index, AttentionPlan const& attention, std::uint64_t seed,
                     NetworkLayerParameters<T>& layer);
  void add_epsilon(std::int64_t index, NetworkLayerParameters<T>& layer);
  void add_norm(std::int64_t index, Norm kind, NetworkLayerParameters<T>& layer);
  /// Adds the next planned parameter, filled with zeros, to list(). Returns the whole parameter, as kernels use it.
  Parameter<T> add(std::string const& name, std::int64_t layer, std::string const& label);
  /// Places `whole` in the array of all parameters. Returns this rank's piece of it.
  Parameter<T> place_in_array(Parameter<T>& whole, PlannedParameter const& planned);

  pmm::ProcessGrid const& grid_;
  std::vector<PlannedParameter> planned_; // in the order of list_
  pmm::FlatValues<T> values_;             // of all parameters, if they are in one array
  pmm::FlatSums<T> gradients_;
  NetworkLayerParameters<T> projection_;
  std::vector<NetworkLayerParameters<T>> layers_;
  // Of the layers that have them.
  std::map<std::size_t, NetworkLayerParameters<T>> seconds_, residuals_, jumps_;
  NetworkLayerParameters<T> head_;
  NetworkLayerParameters<T> decoder_, decoder_second_; // empty without a perceptron that scores links
  pmm::DistMatrix<T> features_gradient_;
  std::vector<Parameter<T>> list_;
};

extern template class NetworkParameters<float>;
extern template class NetworkParameters<double>;

} // namespace orthant::models
