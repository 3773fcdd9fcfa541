#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One graph convolution, forward and backward (placements: gnn/plan/network_plan.hpp):
//
//   aggregate first   H = A^ F, Q = H W + 1 b^T          transform first   U = F W, Q = A^ U + 1 b^T
//                     db = 1^T dQ                                          db = 1^T dQ
//                     dW = H^T dQ                                          dU = A^^T dQ
//                     dH = dQ W^T                                          dW = F^T dU
//                     dF = A^^T dH                                         dF = dU W^T
//
// A term of the vertex itself may be added (self_term.hpp). A layer may have only one of the two products:
//
//   dense   Q = F W + 1 b^T      dW = F^T dQ      dF = dQ W^T               propagation   Q = A^ F      dF = A^^T dQ
//
// With relations, a layer is Q = sum_r A_r F W_r + F W' + 1 b^T (relation_aggregation.hpp).
//
// A share of H0 may be added to the aggregate (teleport.hpp), and W may be replaced by a combination of W and the identity
// (models/layers/propagation_terms.hpp).
//
// F, H, U, Q and their gradients have elements of type T. If T has 16 bits, products read a copy of W that is rounded in each forward
// pass, sums are fp32 and rounded once, and logits are never rounded.
//
// Source: Kipf & Welling (arXiv 1609.02907); Plexus (arXiv 2505.04083), algorithms 1 and 2.

#include "models/gnn/aggregation/aggregation.hpp"
#include "models/gnn/aggregation/attention_aggregation.hpp"
#include "models/gnn/aggregation/maximum_aggregation.hpp"
#include "models/gnn/aggregation/own_aggregation.hpp"
#include "models/gnn/aggregation/relation_aggregation.hpp"
#include "models/gnn/aggregation/self_term.hpp"
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
  /// The caller adds the bias, and writes the local column sums of dQ to bias_gradient() before backward(): the kernels
  /// of its activation do both.
  bool is_activated = false;
  bool shares_outputs = false;
  NumberFormats formats{}; // of activations and their gradients; weights and their gradients are native
};

struct NetworkScratchPlan;

/// Memory that all layers share. Its size is that of the layer that needs most.
///
///   gradient            the gradient from the layer above, then dQ, then dF
///   middle              U, dU or dH
///   residual_gradient   of activations. With a residual within the rank: dQ, then dF, while `gradient` keeps the gradient from above
///   row_sums            of activations
///
/// If outputs share memory (NetworkLayerPlaces), `gradient` holds gradients of 16-bit logits or of trained features, and `middle`
/// holds U or dU unless these are computed in place. With perceptrons `gradient` and `middle` alternate
/// (gnn/network/network_arrays.hpp).
template<class T>
struct NetworkScratch {
  GrowingVector<T> gradient{"orthant::models::gradient"};
  GrowingVector<T> residual_gradient{"orthant::models::residual_gradient"};
  GrowingVector<runtime::SumOf<T>> row_sums{"orthant::models::row_sums"};
  GrowingVector<T> middle{"orthant::models::middle"};
  SelfScratch<T> self;
  AttentionScratch<runtime::SumOf<T>> attention;
  MaximumScratch<runtime::SumOf<T>> maximum;
  RelationScratch<runtime::SumOf<T>> relations;
  RelationAttentionScratch<runtime::SumOf<T>> relation_attention;
  GrowingVector<runtime::SumOf<T>> powers{"orthant::models::powers"}; // A^ Y of a layer with powers of A^
  using Workspace = pmm::Workspace<runtime::SumOf<T>>;
  std::shared_ptr<Workspace> workspace = std::make_shared<Workspace>();
  std::shared_ptr<Workspace> overlapped = std::make_shared<Workspace>(); // of a product that overlaps others

  /// Grows the arrays to the planned sizes, except workspaces and the scratch of layers that read edges. Must be called before
  /// layers are made with this object.
  void reserve(NetworkScratchPlan const& needed);
};

/// Memory of one layer: what the backward pass reads, and the logits.
template<class T>
struct NetworkLayerMemory {
  GrowingVector<T> middle{"orthant::models::aggregated"}; // H
  GrowingVector<T> self{"orthant::models::self"};         // S
  GrowingVector<T> output{"orthant::models::output"};
  GrowingVector<runtime::SumOf<T>> logits{"orthant::models::output"}; // if logits are not of type T
  GrowingVector<T> weight{"orthant::models::operand_weight"};         // if the operand is rounded or mapped
  MaximumPlaces maximum{"orthant::models::maximum_places"};
  OwnMemory<runtime::SumOf<T>> own;                                  // by pointer, because few models have it
  std::unique_ptr<EdgeAttentionMemory<runtime::SumOf<T>>> attention; // by pointer, because few models have it
  std::unique_ptr<RelationLayerMemory<runtime::SumOf<T>>> relations;
  std::unique_ptr<RelationAttentionMemory<runtime::SumOf<T>>> relation_attention;
};

/// A weight as products read it: the parameter itself, a copy that each forward pass rounds to T, or (1 - beta) I + beta W.
template<class T>
class OperandWeight {
 public:
  using Sum = runtime::SumOf<T>;

  OperandWeight(pmm::DistMatrix<Sum> weight, GrowingVector<T>& memory,
                std::optional<double> map_share = std::nullopt);
  /// Recomputes the rounded or mapped copy; no-op without a copy. Enqueues on exec. Throws Error if a finite number does not fit fp16.
  void update(runtime::DefaultExec const& exec) const;
  [[nodiscard]] pmm::DistMatrix<T> const& matrix() const { return matrix_; }
  /// Converts the gradient by matrix() to the gradient of the parameter, in place.
  void finish_gradient(runtime::DefaultExec const& exec, pmm::DistMatrix<Sum> const& gradient) const;

 private:
  std::optional<double> map_share_;
  pmm::DistMatrix<Sum> parameter_;
  pmm::DistMatrix<T> matrix_;
};

/// Lists the memory of an OperandWeight.
void plan_operand_weight(pmm::StepPlan& step, pmm::Placement const& weight, NumberFormats const& formats,
                         bool is_mapped = false);

/// Sizes of a NetworkScratch: the maximum over the layers.
struct NetworkScratchPlan {
  std::int64_t gradient = 0; // elements
  std::int64_t residual_gradient = 0;
  std::int64_t row_sums = 0;
  std::int64_t middle = 0;
  std::int64_t powers = 0;
  SelfScratchPlan self;
  pmm::WorkspacePlan workspace;
  pmm::WorkspacePlan overlapped;

  /// Raises the sizes to what this layer needs.
  void add(pmm::StepPlan const& step, NetworkLayerPlan const& layer, NetworkLayerOptions const& options);
  /// Lists the arrays. `format`: of activations.
  void list(pmm::StepPlan& step, runtime::Wire format) const;
};

/// Whether a sparse product may use the memory of the layer's input as scratch, because messages hold a copy of its operand.
[[nodiscard]] bool lends_operand(pmm::GridShape const& shape, NetworkLayerPlan const& layer,
                                 bool shares_outputs);

/// Lists the memory of a layer, except outputs of hidden layers if these share memory.
void plan_layer_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                       NetworkLayerOptions const& options);

/// Memory that a layer borrows for Q, dQ, dF, and dH or dU. gnn/plan/network_settings.hpp says when outputs share memory.
template<class T>
struct NetworkLayerPlaces {
  GrowingVector<T>& output; // unless the output is logits of type Sum
  GrowingVector<T>& output_gradient;
  GrowingVector<T>& input_gradient;
  GrowingVector<T>& middle_gradient;
};

/// What a layer needs of the graph. `column_ids`: for a maximum in the schedule `pmm3d`. `self_path`: for a self weight. `teleport`: for a
/// layer that adds H0.
template<class T>
struct NetworkLayerGraph {
  Adjacency<T> adjacency;
  runtime::Vector<std::int64_t> column_ids;
  ResidualPath<T> self_path;
  std::shared_ptr<Teleport<T>> teleport;
  RelationOperand<T> relations{}; // in place of the adjacency
};

template<class T>
class NetworkLayer {
 public:
  using Sum = runtime::SumOf<T>;

  /// A layer on one graph or batch, in borrowed memory, which must outlive it. A new one is made for each batch, which costs a few small
  /// objects. `scratch` must have its full size; layers share it.
  NetworkLayer(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, NetworkLayerGraph<Sum> graph,
               NetworkLayerParameters<Sum> parameters, NetworkLayerOptions const& options,
               NetworkScratch<T>& scratch, NetworkLayerMemory<T>& memory,
               NetworkLayerPlaces<T> const& places);

  /// Call before forward() with the dropout of attention coefficients. Other layers ignore it.
  void begin_pass(Dropout const& coefficients) {
    if (aggregation_) aggregation_->begin_pass(coefficients);
    if (relations_) relations_->begin_pass(coefficients);
  }
  /// Computes Q, before activation: output(), or logits(). `Features`: DistMatrix or, in layer 0, DistSparse.
  template<class Features>
  void forward(runtime::DefaultExec const& exec, Features const& features);
  /// Like forward(), with H = A^ F of an earlier forward(), which must still be valid. The layer must aggregate first.
  void forward_from_middle(runtime::DefaultExec const& exec);

  /// Computes dW, db and, if needed, dF from dQ = output_gradient(). Returns dF, in the memory of NetworkLayerPlaces::input_gradient.
  template<class Features>
  pmm::DistMatrix<T> const& backward(runtime::DefaultExec const& exec, Features const& features);

  [[nodiscard]] NetworkLayerPlan const& plan() const { return plan_; }
  [[nodiscard]] pmm::DistMatrix<T> const& output() const { return output_; }
  /// H or U. Valid only as long as it is kept.
  [[nodiscard]] pmm::DistMatrix<T> const& middle() const { return middle_; }
  /// Only for a layer that makes the logits.
  [[nodiscard]] pmm::DistMatrix<Sum> const& logits() const {
    if constexpr (std::is_same_v<T, Sum>)
      return output_;
    else
      return *logits_;
  }
  [[nodiscard]] pmm::DistMatrix<T> const& output_gradient() const { return output_gradient_; }
  /// Includes space for sums over the rows of the layer's output.
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
  /// Backward pass if outputs share memory.
  template<class Features>
  void backward_in_place(runtime::DefaultExec const& exec, Features const& features);
  template<class Features>
  void backward_dense(runtime::DefaultExec const& exec, Features const& features);

  NetworkLayerPlan plan_;
  NetworkLayerOptions options_;
  bool has_own_logits_; // of type Sum, in place of an output of type T
  NetworkLayerParameters<Sum> parameters_;
  OperandWeight<T> weight_;
  std::shared_ptr<pmm::Workspace<Sum>> workspace_;
  pmm::DistMatrix<T> middle_, middle_gradient_, output_, output_gradient_, input_gradient_;
  std::unique_ptr<pmm::DistMatrix<Sum>> logits_; // null: the logits are output_, or the layer makes none
  std::unique_ptr<Aggregation<T>> aggregation_;  // null: a dense layer, or one with relations
  std::unique_ptr<Aggregation<T>> relations_;    // null: no relations
  std::optional<pmm::Product<T>> transform_;     // nullopt for propagations, and if to_logits_ is set
  std::unique_ptr<pmm::Product<T, Sum>>
      to_logits_; // H W, from 16-bit operands; by pointer, because few layers have it
  std::optional<pmm::Product<T, Sum>> weight_back_;
  std::optional<pmm::Product<T>> transform_back_;
  std::unique_ptr<SelfTerm<T>> self_; // null: none
};

extern template class NetworkLayer<float>;
extern template class NetworkLayer<double>;
extern template class NetworkLayer<runtime::Bf16Number>;
extern template class NetworkLayer<runtime::Fp16Number>;

} // namespace orthant::models
