#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Graph convolutional network of any depth (Kipf & Welling, arXiv 1609.02907), over any grid:
//
//   F_0 = dropout(X)     F_{l+1} = dropout(relu(A^ F_l W_l + b_l))     logits = the last layer's, as they are
//
// The same seed gives the same weights and the same dropout on every grid, for every permutation of the
// store. A network is parameters, which others may share, operands of one graph or batch, and memory for its
// activations:
//
//   auto parameters = std::make_shared<GcnParameters<float>>(grid, plan, settings);
//   Gcn<float> network(grid, settings, parameters);
//   network.rebind(operands_of_a_batch);                                           // every step
//   loss.loss_and_gradient(exec, network.forward(exec, Pass::training, step, phases),
//   network.logits_gradient()); network.backward(exec, phases); // fills the gradients

#include "models/gcn_layer.hpp"
#include "models/gcn_operands.hpp"
#include "runtime/timer.hpp"

#include <memory>
#include <vector>

namespace orthant::models {

template<class T>
class Gcn {
 public:
  /// A network that waits for rebind(). `grid` must outlive it. Not collective.
  Gcn(pmm::ProcessGrid const& grid, GcnSettings const& settings,
      std::shared_ptr<GcnParameters<T>> parameters);

  /// The whole graph, with parameters of its own. Collective over the grid's group. Throws UserError where
  /// the store has no features or labels.
  Gcn(pmm::ProcessGrid const& grid, graph::GraphStore const& store, GcnSettings const& settings);

  /// Runs on this graph or batch from now on. Activations lie in memory that grows only, so a batch no larger
  /// than those before allocates no array. Throws Error where the operands' weights do not lie as the
  /// parameters do. Not collective; not while a pass is under way.
  void rebind(GcnOperands<T> operands);

  enum class Pass : std::uint8_t { training, evaluation };
  /// The logits. Training keys dropout by `step`; evaluation has none. Collective.
  pmm::DistMatrix<T> const& forward(runtime::DefaultExec const& exec, Pass pass, std::uint64_t step,
                                    runtime::PhaseTimes& phases);
  /// Gradients of all parameters, from what the loss wrote to logits_gradient(). After a training pass.
  /// Collective.
  void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases);

  [[nodiscard]] pmm::DistMatrix<T> const& logits() const { return layers_.back().output(); }
  [[nodiscard]] pmm::DistMatrix<T> const& logits_gradient() const { return layers_.back().output_gradient(); }
  [[nodiscard]] std::vector<Parameter<T>>& parameters() { return parameters_->list(); }
  [[nodiscard]] std::int64_t num_parameters() const { return parameters_->num_numbers(); }
  [[nodiscard]] std::shared_ptr<GcnParameters<T>> const& shared_parameters() const { return parameters_; }
  [[nodiscard]] GcnPlan const& plan() const { return plan_; }

  /// The first layer whose output is not finite anywhere, or -1. Collective over the group.
  [[nodiscard]] std::int64_t first_layer_not_finite(runtime::DefaultExec const& exec) const;

 private:
  [[nodiscard]] Dropout dropout_of(std::uint64_t step, std::uint32_t layer) const;
  void require_fitting(GcnOperands<T> const& operands) const;
  void reserve_scratch();

  pmm::ProcessGrid const& grid_;
  GcnSettings settings_;
  std::shared_ptr<GcnParameters<T>> parameters_;
  GcnPlan plan_;
  GcnInput<T> input_;
  std::vector<BlockKeys> output_keys_;
  GcnScratch<T> scratch_;
  std::vector<GcnLayerMemory<T>> memory_; // [layers]
  std::vector<GcnLayer<T>> layers_;       // in scratch_ and memory_
  double dropout_in_use_ = 0;             // of the last forward pass
  std::uint64_t step_in_use_ = 0;
  bool keeps_first_aggregate_ = false; // A^ F0 is the same in every pass on these operands
  bool has_first_aggregate_ = false;
};

extern template class Gcn<float>;
extern template class Gcn<double>;

} // namespace orthant::models
