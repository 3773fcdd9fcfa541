#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Graph convolutional network of any depth (Kipf & Welling, arXiv 1609.02907), over any grid, with the parts
// of ScaleGNN (arXiv 2604.02651), each of which may be absent:
//
//   F_0 = X W_in + b_in, else dropout(X)
//   Z_l = A^ F_l W_l + b_l      F_{l+1} = dropout(relu(rms(Z_l) g_l)) + F_l
//   logits = F_L W_out + b_out, else Z_{L-1}
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

#include "models/core/network.hpp"
#include "models/gnn/gcn_activation.hpp"
#include "models/gnn/gcn_linear.hpp"
#include "models/gnn/gcn_operands.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace orthant::models {

/// Lists the arrays of a network on one graph or batch, without its parameters and operands.
void plan_network_arrays(pmm::StepPlan& step, GcnPlan const& plan, GcnSettings const& settings,
                         std::optional<std::int64_t> num_feature_nonzeros);

template<class T>
class Gcn final : public Network<T> {
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

  pmm::DistMatrix<T> const& forward(runtime::DefaultExec const& exec, Pass pass, std::uint64_t step,
                                    runtime::PhaseTimes& phases) override;
  void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases) override;

  [[nodiscard]] pmm::DistMatrix<T> const& logits() const {
    return head_ ? head_->output() : layers_.back().output();
  }
  /// What layer l leaves to those after it: after norm, activation and residual, if it has them. The head counts
  /// as one more layer.
  [[nodiscard]] pmm::DistMatrix<T> const& output_of_layer(std::size_t l) const {
    return l < activations_.size() ? activations_[l].output() : logits();
  }
  [[nodiscard]] pmm::DistMatrix<T> const& logits_gradient() const override {
    return head_ ? head_gradient_ : layers_.back().output_gradient();
  }
  [[nodiscard]] std::vector<Parameter<T>>& parameters() override { return parameters_->list(); }
  [[nodiscard]] std::int64_t num_parameters() const { return parameters_->num_numbers(); }
  [[nodiscard]] std::shared_ptr<GcnParameters<T>> const& shared_parameters() const { return parameters_; }
  [[nodiscard]] GcnPlan const& plan() const { return plan_; }
  /// What moves between owners of vertices (schedule rows); null: all rows.
  [[nodiscard]] std::shared_ptr<pmm::NeededRows const> const& needed_rows() const { return needed_rows_; }
  [[nodiscard]] runtime::Wire narrowest_format() const override {
    auto const fp16 = runtime::Wire::fp16;
    return settings_.operand_format == fp16 ? fp16 : settings_.wire;
  }
  [[nodiscard]] bool repeats_itself() const override {
    return settings_.dropout == 0 && settings_.wire == runtime::Wire::native &&
           settings_.operand_format == runtime::Wire::native;
  }
  /// The head counts as one more layer.
  [[nodiscard]] std::int64_t first_layer_not_finite(runtime::DefaultExec const& exec) const override;
  [[nodiscard]] std::vector<std::int64_t> dead_layers(runtime::DefaultExec const& exec) const override;

 private:
  [[nodiscard]] Dropout dropout_of(std::uint64_t step, std::uint32_t layer) const;
  void require_fitting(GcnOperands<T> const& operands) const;
  void reserve_scratch();
  void make_layers(GcnOperands<T> const& operands);
  void forward_input(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases);
  void forward_layer(runtime::DefaultExec const& exec, std::size_t l);
  pmm::DistMatrix<T> const& backward_layer(runtime::DefaultExec const& exec, std::size_t l);
  void backward_input(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient);
  /// F_l, from the projection or from layer l - 1.
  [[nodiscard]] pmm::DistMatrix<T> const& hidden(std::size_t l) const {
    return l > 0 ? activations_[l - 1].output() : projection_->output();
  }

  pmm::ProcessGrid const& grid_;
  GcnSettings settings_;
  std::shared_ptr<GcnParameters<T>> parameters_;
  GcnPlan plan_;
  std::shared_ptr<pmm::NeededRows const> needed_rows_;
  GcnInput<T> input_;

  // Memory, and what lies in it.
  GcnScratch<T> scratch_;
  std::vector<GcnLayerMemory<T>> memory_;                // [layers]
  std::vector<GcnActivationMemory<T>> activated_memory_; // [layers]
  GrowingVector<T> projected_{"orthant::models::projected"};
  GrowingVector<T> logits_{"orthant::models::logits"};
  std::optional<GcnLinear<T>> projection_;
  std::vector<GcnLayer<T>> layers_;
  std::vector<GcnActivation<T>> activations_; // of layers whose output is not the logits
  std::optional<GcnLinear<T>> head_;
  pmm::DistMatrix<T> head_gradient_; // in scratch_.middle: dF_L goes to scratch_.gradient

  double dropout_in_use_ = 0; // of the last forward pass
  std::uint64_t step_in_use_ = 0;
  bool keeps_first_aggregate_ = false; // A^ F0 is the same in every pass on these operands
  bool has_first_aggregate_ = false;
};

extern template class Gcn<float>;
extern template class Gcn<double>;

} // namespace orthant::models
