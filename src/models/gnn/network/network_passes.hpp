#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Forward and backward passes of a GraphNetwork (network/graph_network.hpp) with its layers, their memory and the bound operands.
// Numbers of activations and their gradients are of type T; parameters, logits and sums are of type runtime::SumOf<T>.

#include "models/gnn/layers/jump.hpp"
#include "models/gnn/layers/network_activation.hpp"
#include "models/gnn/layers/network_linear.hpp"
#include "models/gnn/layers/residual.hpp"
#include "models/gnn/network/network_arrays.hpp"
#include "models/gnn/network/network_operands.hpp"
#include "models/parameters/network.hpp"

#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

namespace orthant::models {

/// The functions are described at the functions of the same names in GraphNetwork<T>. T: the scalar type of training.
template<class T>
class NetworkPasses {
 public:
  virtual ~NetworkPasses() = default;
  virtual void unbind() = 0;
  virtual void rebind(NetworkOperands<T> operands) = 0;
  virtual pmm::DistMatrix<T> const& forward(runtime::DefaultExec const& exec, Pass pass, std::uint64_t step,
                                            runtime::PhaseTimes& phases) = 0;
  virtual void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases) = 0;
  [[nodiscard]] virtual pmm::DistMatrix<T> const& logits() const = 0;
  [[nodiscard]] virtual pmm::DistMatrix<T> const& logits_gradient() const = 0;
  [[nodiscard]] virtual pmm::DistMatrix<T> const& output_of_layer(std::size_t l) const = 0;
  [[nodiscard]] virtual std::int64_t first_layer_not_finite(runtime::DefaultExec const& exec) const = 0;
  [[nodiscard]] virtual std::vector<std::int64_t> dead_layers(runtime::DefaultExec const& exec) const = 0;
  [[nodiscard]] virtual NetworkPlan const& plan() const = 0;
  [[nodiscard]] virtual std::shared_ptr<pmm::NeededRows const> const& needed_rows() const = 0;
};

/// Makes passes with activations in settings.operand_format. A 16-bit format requires T = float; otherwise throws Error.
template<class T>
[[nodiscard]] std::unique_ptr<NetworkPasses<T>>
make_network_passes(pmm::ProcessGrid const& grid, NetworkSettings const& settings,
                    std::shared_ptr<NetworkParameters<T>> parameters);

/// T: the element type of activations.
template<class T>
class TypedNetworkPasses final : public NetworkPasses<runtime::SumOf<T>> {
 public:
  using Sum = runtime::SumOf<T>;

  TypedNetworkPasses(pmm::ProcessGrid const& grid, NetworkSettings const& settings,
                     std::shared_ptr<NetworkParameters<Sum>> parameters);

  void unbind() override {
    projection_.reset();
    layers_.clear();
    residuals_.clear();
    activations_.clear();
    seconds_.clear();
    head_.reset();
    head_gradient_ = {};
    teleport_.reset();
    jump_.reset();
  }
  void rebind(NetworkOperands<Sum> operands) override;
  pmm::DistMatrix<Sum> const& forward(runtime::DefaultExec const& exec, Pass pass, std::uint64_t step,
                                      runtime::PhaseTimes& phases) override;
  void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases) override;
  [[nodiscard]] pmm::DistMatrix<Sum> const& logits() const override {
    return head_ ? head_->output() : layers_.back().logits();
  }
  [[nodiscard]] pmm::DistMatrix<Sum> const& logits_gradient() const override;
  [[nodiscard]] pmm::DistMatrix<Sum> const& output_of_layer(std::size_t l) const override;
  [[nodiscard]] std::int64_t first_layer_not_finite(runtime::DefaultExec const& exec) const override;
  [[nodiscard]] std::vector<std::int64_t> dead_layers(runtime::DefaultExec const& exec) const override;
  [[nodiscard]] NetworkPlan const& plan() const override { return plan_; }
  [[nodiscard]] std::shared_ptr<pmm::NeededRows const> const& needed_rows() const override {
    return needed_rows_;
  }

 private:
  [[nodiscard]] Dropout dropout_of(std::uint64_t step, std::uint32_t layer) const;
  void require_fitting(NetworkOperands<Sum> const& operands) const;
  void reserve_scratch(NetworkOperands<Sum> const& operands);
  void make_layers(NetworkOperands<Sum> const& operands);
  /// Whether the output of layer l is kept until the next pass. If not, a later layer that gathers it may use its memory as scratch.
  [[nodiscard]] bool keeps_output(std::size_t l) const {
    return l >= activations_.size() || !shares_outputs_ ||
           (layer_of_output(plan_, l) == l && !plan_.layers[l + 1].aggregates_first);
  }
  /// The gradient of the logits as the backward pass reads it.
  [[nodiscard]] pmm::DistMatrix<T> const& rounded_logits_gradient() const {
    return head_ ? head_gradient_ : layers_.back().output_gradient();
  }
  void forward_input(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases);
  void forward_layer(runtime::DefaultExec const& exec, std::size_t l);
  /// Calls `use` with the input of layer l, which is a DistMatrix or, in layer 0, a DistSparse.
  template<class Use>
  decltype(auto) with_input(std::size_t l, Use const& use) const {
    if (l > 0 || projection_) return use(hidden(l));
    return input_.is_sparse() ? use(input_.sparse()) : use(input_.dense());
  }
  void backward_input(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient);
  /// F_l, from the projection or from layer l - 1.
  [[nodiscard]] pmm::DistMatrix<T> const& hidden(std::size_t l) const {
    if constexpr (std::is_same_v<T, Sum>)
      if (begins_teleport(l)) return teleport_->input();
    if (l == 0) return projection_->output();
    return result_of(l - 1);
  }
  /// What layer l gives to the next one, with its residual.
  [[nodiscard]] pmm::DistMatrix<T> const& result_of(std::size_t l) const {
    return seconds_[l] ? seconds_[l]->activation.output() : output_of(l);
  }
  /// The gradient of result_of(l), which the layer above writes.
  [[nodiscard]] pmm::DistMatrix<T> const& result_gradient(std::size_t l) const {
    if (seconds_[l]) return seconds_[l]->gradient;
    return l < activations_.size() ? activations_[l].gradient() : layers_[l].output_gradient();
  }
  /// Output of layer l, after the activation if it has one.
  [[nodiscard]] pmm::DistMatrix<T> const& output_of(std::size_t l) const {
    return l < activations_.size() ? activations_[l].output() : layers_[l].output();
  }
  /// Whether layer l is the first with a teleport.
  [[nodiscard]] bool begins_teleport(std::size_t l) const {
    return teleport_ != nullptr && plan_.teleport->first_layer == l;
  }
  void make_teleport(NetworkOperands<Sum> const& operands);
  void forward_head(runtime::DefaultExec const& exec);
  void backward_head(runtime::DefaultExec const& exec);
  void make_second(NetworkOperands<Sum> const& operands, std::size_t l, NetworkLayerOptions options);
  void forward_second(runtime::DefaultExec const& exec, Pass pass, std::size_t l, Dropout const& dropout);
  /// Computes the gradient of layer l's activated output from dF_{l+1}.
  void backward_second(runtime::DefaultExec const& exec, std::size_t l, Dropout const& dropout);

  /// The second layer of a perceptron, with an activation of its own.
  struct Second {
    NetworkLinear<T> linear;
    NetworkActivation<T> activation;
    pmm::DistMatrix<T> gradient; // of the linear output; the layer above writes to it
  };
  struct SecondMemory {
    GrowingVector<T> output{"orthant::models::second"};
    GrowingVector<T> weight{"orthant::models::operand_weight"};
    NetworkActivationMemory<T> activated;
  };

  pmm::ProcessGrid const& grid_;
  NetworkSettings settings_;
  std::shared_ptr<NetworkParameters<Sum>> parameters_;
  NetworkPlan plan_;
  std::shared_ptr<pmm::NeededRows const> needed_rows_;
  std::vector<pmm::DroppedBlock<Sum>> dropped_;
  NetworkInput<T> input_;

  // Memory that the objects below borrow.
  NetworkScratch<T> scratch_;
  std::vector<NetworkLayerMemory<T>> memory_;                // [layers]
  std::vector<NetworkActivationMemory<T>> activated_memory_; // [layers]
  std::vector<SecondMemory> second_memory_;                  // [layers]
  std::vector<ResidualMemory<T>> residual_memory_;           // [layers]
  TeleportMemory<T> teleport_memory_;
  JumpMemory<T> jump_memory_;
  GrowingVector<T> projected_{"orthant::models::projected"};
  GrowingVector<Sum> logits_{"orthant::models::logits"}; // output of a head
  GrowingVector<T> projection_weight_{"orthant::models::operand_weight"};
  GrowingVector<T> head_weight_{"orthant::models::operand_weight"};
  GrowingVector<T> feature_gradient_numbers_{"orthant::models::read_feature_gradient"};
  std::optional<NetworkLinear<T>> projection_;
  std::vector<NetworkLayer<T>> layers_;
  std::vector<std::unique_ptr<Residual<T>>> residuals_; // [layers]; null: none
  std::vector<NetworkActivation<T>> activations_;       // of layers that do not output the logits
  std::vector<std::unique_ptr<Second>> seconds_;        // [layers]; null: no second layer
  std::optional<NetworkLinear<T, Sum>> head_;
  std::shared_ptr<Teleport<Sum>> teleport_; // null: no teleport
  std::unique_ptr<Jump<Sum>> jump_;         // null: the head reads the last layer's result alone
  pmm::DistMatrix<T>
      feature_gradient_; // of trained, projected features; the parameter's gradient, or of the copy that is read
  pmm::DistMatrix<T> head_gradient_; // in scratch_.middle; dF_L is written to scratch_.gradient

  double dropout_in_use_ = 0; // of the last forward pass
  std::uint64_t step_in_use_ = 0;
  bool shares_outputs_ = false;
  bool keeps_first_aggregate_ = false; // A^ F0 is the same in every pass on these operands
  bool has_first_aggregate_ = false;
};

} // namespace orthant::models
