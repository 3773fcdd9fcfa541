#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Graph convolutional network of any depth (Kipf & Welling, arXiv 1609.02907), over any grid:
//
//   F_0 = dropout(X)     F_{l+1} = dropout(relu(A^ F_l W_l + b_l))     logits = the last layer's, as they are
//
// The same seed gives the same weights and the same dropout on every grid, for every permutation of the
// store.

#include "models/gcn_layer.hpp"
#include "runtime/timer.hpp"

#include <optional>
#include <string>
#include <vector>

namespace orthant::models {

struct GcnSettings {
  std::vector<std::int64_t> hidden_widths{128, 128}; // one fewer than layers
  double dropout = 0.5;
  bool has_bias = true;
  bool trains_features = false;
  FeatureNorm feature_norm = FeatureNorm::none;
  ProductOrder order = ProductOrder::automatic;
  bool overlaps = true;
  runtime::Wire wire = runtime::Wire::native;
  std::uint64_t seed = 0;

  [[nodiscard]] std::int64_t num_layers() const {
    return static_cast<std::int64_t>(hidden_widths.size()) + 1;
  }
  void set_layers(std::int64_t num_layers, std::int64_t hidden) {
    hidden_widths.assign(static_cast<std::size_t>(num_layers - 1), hidden);
  }
};

/// What is trained: "layer0.weight", "layer0.bias", .., "features". Bias or matrix, never both.
template<class T>
struct Parameter {
  std::string name;
  std::int64_t layer = 0;
  pmm::DistMatrix<T> matrix, matrix_gradient;
  pmm::DistVector<T> bias, bias_gradient;
  bool is_bias = false;

  [[nodiscard]] runtime::Vector<T> const& value() const { return is_bias ? bias.local() : matrix.storage(); }
  [[nodiscard]] runtime::Vector<T> const& gradient() const {
    return is_bias ? bias_gradient.local() : matrix_gradient.storage();
  }
};

template<class T>
class Gcn {
 public:
  /// Reads blocks and features and draws the weights (Glorot uniform; biases 0). Collective over the grid's
  /// group. Throws UserError where the store has no features or labels. `grid` must outlive the model.
  Gcn(pmm::ProcessGrid const& grid, graph::GraphStore const& store, GcnSettings const& settings);

  enum class Pass : std::uint8_t { training, evaluation };
  /// The logits. Training keys dropout by `step`; evaluation has none. Collective.
  pmm::DistMatrix<T> const& forward(runtime::DefaultExec const& exec, Pass pass, std::uint64_t step,
                                    runtime::PhaseTimes& phases);
  /// Gradients of all parameters, from what the loss wrote to logits_gradient(). After a training pass.
  /// Collective.
  void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases);

  [[nodiscard]] pmm::DistMatrix<T> const& logits() const { return layers_.back().output(); }
  [[nodiscard]] pmm::DistMatrix<T> const& logits_gradient() const { return layers_.back().output_gradient(); }
  [[nodiscard]] std::vector<Parameter<T>>& parameters() { return parameters_; }
  [[nodiscard]] std::int64_t num_parameters() const;
  [[nodiscard]] std::vector<GcnLayerPlan> const& plan() const { return plan_; }

  /// The first layer whose output is not finite anywhere, or -1. Collective over the group.
  [[nodiscard]] std::int64_t first_layer_not_finite(runtime::DefaultExec const& exec) const;

 private:
  [[nodiscard]] Dropout dropout_of(std::uint64_t step, std::uint32_t layer) const;
  void initialise(runtime::DefaultExec const& exec);

  pmm::ProcessGrid const& grid_;
  GcnSettings settings_;
  std::vector<GcnLayerPlan> plan_;
  GcnInput<T> input_;
  pmm::DistMatrix<T> input_gradient_; // trained features only
  std::vector<BlockKeys> output_keys_;
  std::vector<GcnLayer<T>> layers_;
  std::vector<Parameter<T>> parameters_;
  double dropout_in_use_ = 0; // of the last forward pass
  std::uint64_t step_in_use_ = 0;
  bool keeps_first_aggregate_ = false; // A^ F0 is the same every epoch
  bool has_first_aggregate_ = false;
};

extern template class Gcn<float>;
extern template class Gcn<double>;

/// The layers of the model that `settings` ask for on this graph. Throws UserError where the store has no
/// features or no labels, naming the partition flags that give them.
[[nodiscard]] std::vector<GcnLayerPlan> plan_gcn(graph::GraphStore const& store, GcnSettings const& settings);

} // namespace orthant::models
