#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One graph convolution, forward and backward side by side (network_plan.hpp says where everything lies):
//
//   aggregate first   H = A^ F, Q = H W + 1 b^T          transform first   U = F W, Q = A^ U + 1 b^T
//                     db = 1^T dQ                                          db = 1^T dQ
//                     dW = H^T dQ                                          dU = A^^T dQ
//                     dH = dQ W^T                                          dW = F^T dU
//                     dF = A^^T dH                                         dF = dU W^T
//
// A vertex itself may add a term to its output (self_term.hpp). A layer may have one of the two products alone:
//
//   dense   Q = F W + 1 b^T      dW = F^T dQ      dF = dQ W^T               propagation   Q = A^ F      dF = A^^T dQ
//
// What is aggregated may get a share of H0 (teleport.hpp), and W may stand for a map near the identity (propagation_terms.hpp).
//
// F, H, U, Q and their gradients hold numbers of T. If these have 16 bits, products read a copy of W that is rounded in
// each forward pass, sums are fp32 and rounded once, and logits are never rounded.
//
// Source: Kipf & Welling (arXiv 1609.02907); Plexus (arXiv 2505.04083), algorithms 1 and 2.

#include "models/gnn/layers/aggregation.hpp"
#include "models/gnn/layers/attention_aggregation.hpp"
#include "models/gnn/layers/maximum_aggregation.hpp"
#include "models/gnn/layers/self_term.hpp"
#include "models/gnn/layers/teleport.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "runtime/arrays/allocation.hpp"

#include <memory>
#include <optional>
#include <type_traits>

namespace orthant::models {

using runtime::GrowingVector;

struct NetworkLayerOptions {
  bool has_bias = true;
  bool needs_input_gradient = true;
  bool overlaps = true;
  /// The caller adds the bias, and leaves the local column sums of dQ in bias_gradient() before backward():
  /// its activation does so in passing.
  bool is_activated = false;
  bool shares_outputs = false;
  NumberFormats formats{}; // of activations and their gradients; weights and theirs: native
};

struct NetworkScratchPlan;

/// Memory that all layers use in turn, as long as the largest needs. `gradient`: what comes from the layer above, then dQ,
/// then dF. `middle`: U, dU or dH. If outputs share memory (NetworkLayerPlaces), `gradient` is of 16-bit logits or of trained
/// features, and `middle` is U or dU, if these are not in place. The activations use `residual_gradient` and `row_sums`; but
/// if a layer has a residual within the rank, dQ and then dF lie in `residual_gradient`, and what comes from above stays. With
/// perceptrons `gradient` and `middle` take turns (network/network_arrays.hpp).
template<class T>
struct NetworkScratch {
  GrowingVector<T> gradient{"orthant::models::gradient"};
  GrowingVector<T> residual_gradient{"orthant::models::residual_gradient"};
  GrowingVector<runtime::SumOf<T>> row_sums{"orthant::models::row_sums"};
  GrowingVector<T> middle{"orthant::models::middle"};
  SelfScratch<T> self;
  AttentionScratch<runtime::SumOf<T>> attention;
  MaximumScratch<runtime::SumOf<T>> maximum;
  using Workspace = pmm::Workspace<runtime::SumOf<T>>;
  std::shared_ptr<Workspace> workspace = std::make_shared<Workspace>();
  std::shared_ptr<Workspace> overlapped =
      std::make_shared<Workspace>(); // of a product beside which others run

  /// Makes it that long, before layers are made with it; workspaces and what reads edges apart.
  void reserve(NetworkScratchPlan const& needed);
};

/// Memory that a layer has to itself: what the backward pass reads, and the logits.
template<class T>
struct NetworkLayerMemory {
  GrowingVector<T> middle{"orthant::models::aggregated"}; // H
  GrowingVector<T> self{"orthant::models::self"};         // S
  GrowingVector<T> output{"orthant::models::output"};
  GrowingVector<runtime::SumOf<T>> logits{"orthant::models::output"}; // if they are not of T
  GrowingVector<T> weight{"orthant::models::operand_weight"};         // if it is rounded or mapped
  MaximumPlaces maximum{"orthant::models::maximum_places"};
  std::unique_ptr<EdgeAttentionMemory<runtime::SumOf<T>>> attention; // apart, as few models have it
};

/// A weight as products read it: the parameter itself, or a copy of numbers T that is rounded in each forward pass, or its
/// identity map.
template<class T>
class OperandWeight {
 public:
  using Sum = runtime::SumOf<T>;

  OperandWeight(pmm::DistMatrix<Sum> weight, GrowingVector<T>& memory,
                std::optional<double> map_share = std::nullopt);
  /// Rounds or maps it, if it is. Enqueues on exec. Throws Error if a finite number does not fit fp16.
  void update(runtime::DefaultExec const& exec) const;
  [[nodiscard]] pmm::DistMatrix<T> const& matrix() const { return matrix_; }
  /// From the gradient of matrix() to that of the weight, in place.
  void finish_gradient(runtime::DefaultExec const& exec, pmm::DistMatrix<Sum> const& gradient) const;

 private:
  std::optional<double> map_share_;
  pmm::DistMatrix<Sum> parameter_;
  pmm::DistMatrix<T> matrix_;
};

/// Lists the memory of an OperandWeight.
void plan_operand_weight(pmm::StepPlan& step, pmm::Placement const& weight, NumberFormats const& formats,
                         bool is_mapped = false);

/// The same before it exists. The longest of what the layers need.
struct NetworkScratchPlan {
  std::int64_t gradient = 0; // numbers
  std::int64_t residual_gradient = 0;
  std::int64_t row_sums = 0;
  std::int64_t middle = 0;
  SelfScratchPlan self;
  pmm::WorkspacePlan workspace;
  pmm::WorkspacePlan overlapped;

  /// Adds what a layer needs.
  void add(pmm::StepPlan const& step, NetworkLayerPlan const& layer, NetworkLayerOptions const& options);
  /// Lists the arrays. `format`: of activations.
  void list(pmm::StepPlan& step, runtime::Wire format) const;
};

/// Whether a sparse product may use the memory of the layer's input: messages have copied what it multiplies.
[[nodiscard]] bool lends_operand(pmm::GridShape const& shape, NetworkLayerPlan const& layer,
                                 bool shares_outputs);

/// Lists the memory that a layer has to itself, but for outputs of hidden layers if they share memory.
void plan_layer_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                       NetworkLayerOptions const& options);

/// Where Q, dQ, dF, and dH or dU of a layer lie, in memory that is long enough; gnn/plan/network_settings says when outputs share it.
template<class T>
struct NetworkLayerPlaces {
  GrowingVector<T>& output; // unless these are logits of Sum
  GrowingVector<T>& output_gradient;
  GrowingVector<T>& input_gradient;
  GrowingVector<T>& middle_gradient;
};

/// What a layer has of its graph. `column_ids`: of one that takes a maximum in the schedule pmm3d; `self_path`: of one with a self
/// weight; `teleport`: of one with a site.
template<class T>
struct NetworkLayerGraph {
  Adjacency<T> adjacency;
  runtime::Vector<std::int64_t> column_ids;
  ResidualPath<T> self_path;
  std::shared_ptr<Teleport<T>> teleport;
};

template<class T>
class NetworkLayer {
 public:
  using Sum = runtime::SumOf<T>;

  /// The layer on one graph or batch, in lent memory: made anew for each, which costs a few small objects.
  /// `scratch` has its full size already: the layers share it.
  NetworkLayer(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, NetworkLayerGraph<Sum> graph,
               NetworkLayerParameters<Sum> parameters, NetworkLayerOptions const& options,
               NetworkScratch<T>& scratch, NetworkLayerMemory<T>& memory,
               NetworkLayerPlaces<T> const& places);

  /// Ahead of forward(): what drops coefficients of attention. Other layers have none, and dense ones do not aggregate.
  void begin_pass(Dropout const& coefficients) {
    if (aggregation_) aggregation_->begin_pass(coefficients);
  }
  /// Q := the layer, before activation: output(), or logits(). `F` is a DistMatrix or, in layer 0, a DistSparse.
  template<class Features>
  void forward(runtime::DefaultExec const& exec, Features const& features);
  /// The same where H = A^ F of an earlier forward() still holds. Aggregate first only.
  void forward_from_middle(runtime::DefaultExec const& exec);

  /// From dQ = output_gradient() to dW, db and, where needed, dF, which it returns (in the memory of
  /// NetworkLayerPlaces::input_gradient).
  template<class Features>
  pmm::DistMatrix<T> const& backward(runtime::DefaultExec const& exec, Features const& features);

  [[nodiscard]] NetworkLayerPlan const& plan() const { return plan_; }
  [[nodiscard]] pmm::DistMatrix<T> const& output() const { return output_; }
  /// H or U, while it is kept.
  [[nodiscard]] pmm::DistMatrix<T> const& middle() const { return middle_; }
  /// Of a layer that makes them.
  [[nodiscard]] pmm::DistMatrix<Sum> const& logits() const {
    if constexpr (std::is_same_v<T, Sum>)
      return output_;
    else
      return *logits_;
  }
  [[nodiscard]] pmm::DistMatrix<T> const& output_gradient() const { return output_gradient_; }
  /// With room for sums over the rows of its output.
  [[nodiscard]] std::shared_ptr<pmm::Workspace<Sum>> const& workspace() const { return workspace_; }

 private:
  NetworkLayer(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
               NetworkLayerProducts const& products, NetworkLayerParameters<Sum> parameters,
               NetworkLayerOptions const& options, NetworkScratch<T>& scratch, NetworkLayerMemory<T>& memory,
               NetworkLayerPlaces<T> const& places);
  void add_bias(runtime::DefaultExec const& exec) const;
  void finish_forward(runtime::DefaultExec const& exec);
  template<class Features>
  void backward_products(runtime::DefaultExec const& exec, Features const& features);
  /// The same if outputs share memory.
  template<class Features>
  void backward_in_place(runtime::DefaultExec const& exec, Features const& features);
  template<class Features>
  void backward_dense(runtime::DefaultExec const& exec, Features const& features);

  NetworkLayerPlan plan_;
  NetworkLayerOptions options_;
  bool has_own_logits_; // of Sum, in place of an output of T
  NetworkLayerParameters<Sum> parameters_;
  OperandWeight<T> weight_;
  std::shared_ptr<pmm::Workspace<Sum>> workspace_;
  pmm::DistMatrix<T> middle_, middle_gradient_, output_, output_gradient_, input_gradient_;
  std::unique_ptr<pmm::DistMatrix<Sum>> logits_;    // null: output_, or none
  std::unique_ptr<Aggregation<T>> aggregation_;     // null: a dense layer
  std::optional<pmm::Product<T>> transform_;        // one of them, but for propagations
  std::unique_ptr<pmm::Product<T, Sum>> to_logits_; // H W, of 16-bit numbers; few layers have it
  std::optional<pmm::Product<T, Sum>> weight_back_;
  std::optional<pmm::Product<T>> transform_back_;
  std::unique_ptr<SelfTerm<T>> self_; // null: none
};

extern template class NetworkLayer<float>;
extern template class NetworkLayer<double>;
extern template class NetworkLayer<runtime::Bf16Number>;
extern template class NetworkLayer<runtime::Fp16Number>;

} // namespace orthant::models
