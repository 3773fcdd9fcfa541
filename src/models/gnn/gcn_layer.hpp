#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One graph convolution, forward and backward side by side (gcn_plan.hpp says where everything lies):
//
//   aggregate first   H = A^ F, Q = H W + 1 b^T          transform first   U = F W, Q = A^ U + 1 b^T
//                     db = 1^T dQ                                          db = 1^T dQ
//                     dW = H^T dQ                                          dU = A^^T dQ
//                     dH = dQ W^T                                          dW = F^T dU
//                     dF = A^^T dH                                         dF = dU W^T
//
// Source: Kipf & Welling (arXiv 1609.02907); Plexus (arXiv 2505.04083), algorithms 1 and 2.

#include "models/core/growing_vector.hpp"
#include "models/gnn/aggregation.hpp"
#include "models/plan/gcn_parameters.hpp"

#include <memory>
#include <optional>

namespace orthant::models {

/// Memory that all layers use in turn, as long as the largest needs. `gradient`: what comes from the layer above, then
/// dQ, then dF. `middle`: U, dU or dH. The activations use `residual_gradient` and `row_sums`; but if a layer has a
/// residual within the rank, dQ and then dF lie in `residual_gradient`, and what comes from above stays.
template<class T>
struct GcnScratch {
  GrowingVector<T> gradient{"orthant::models::gradient"};
  GrowingVector<T> residual_gradient{"orthant::models::residual_gradient"};
  GrowingVector<T> row_sums{"orthant::models::row_sums"};
  GrowingVector<T> middle{"orthant::models::middle"};
  std::shared_ptr<pmm::Workspace<T>> workspace = std::make_shared<pmm::Workspace<T>>();
  std::shared_ptr<pmm::Workspace<T>> overlapped =
      std::make_shared<pmm::Workspace<T>>(); // of a product beside which others run
};

/// Memory that a layer has to itself: what the backward pass reads.
template<class T>
struct GcnLayerMemory {
  GrowingVector<T> middle{"orthant::models::aggregated"}; // H
  GrowingVector<T> output{"orthant::models::output"};
};

/// The same before it exists. The longest of what the layers need.
struct GcnScratchPlan {
  std::int64_t gradient = 0; // numbers
  std::int64_t residual_gradient = 0;
  std::int64_t row_sums = 0;
  std::int64_t middle = 0;
  pmm::WorkspacePlan workspace;
  pmm::WorkspacePlan overlapped;

  /// Adds what a layer needs.
  void add(pmm::StepPlan const& step, GcnLayerPlan const& layer, bool needs_input_gradient,
           NumberFormats const& formats);
  /// Lists the arrays.
  void list(pmm::StepPlan& step) const;
};

/// Lists the memory that a layer has to itself.
void plan_layer_arrays(pmm::StepPlan& step, GcnLayerPlan const& layer);

struct GcnLayerOptions {
  bool has_bias = true;
  bool needs_input_gradient = true;
  bool overlaps = true;
  /// The caller adds the bias, and leaves the local column sums of dQ in bias_gradient() before backward():
  /// its activation does so in passing.
  bool is_activated = false;
  NumberFormats formats{}; // of activations and their gradients; weights and theirs: native
};

template<class T>
class GcnLayer {
 public:
  /// The layer on one graph or batch, in lent memory: made anew for each, which costs a few small objects.
  /// `scratch` has its full size already: the layers share it.
  GcnLayer(pmm::ProcessGrid const& grid, GcnLayerPlan const& plan, Adjacency<T> adjacency,
           GcnLayerParameters<T> parameters, GcnLayerOptions const& options, GcnScratch<T>& scratch,
           GcnLayerMemory<T>& memory);

  /// Q := the layer, before activation. `F` is a DistMatrix or, in layer 0, a DistSparse.
  template<class Features>
  pmm::DistMatrix<T> const& forward(runtime::DefaultExec const& exec, Features const& features);
  /// The same where H = A^ F of an earlier forward() still holds. Aggregate first only.
  pmm::DistMatrix<T> const& forward_from_middle(runtime::DefaultExec const& exec);

  /// From dQ = output_gradient() to dW, db and, where needed, dF, which it returns (in the same memory as
  /// dQ).
  template<class Features>
  pmm::DistMatrix<T> const& backward(runtime::DefaultExec const& exec, Features const& features);

  [[nodiscard]] GcnLayerPlan const& plan() const { return plan_; }
  [[nodiscard]] pmm::DistMatrix<T> const& output() const { return output_; }
  [[nodiscard]] pmm::DistMatrix<T> const& output_gradient() const { return output_gradient_; }
  /// With room for sums over the rows of its output.
  [[nodiscard]] std::shared_ptr<pmm::Workspace<T>> const& workspace() const { return workspace_; }

 private:
  GcnLayer(pmm::ProcessGrid const& grid, GcnLayerPlan const& plan, GcnLayerProducts const& products,
           Adjacency<T> adjacency, GcnLayerParameters<T> parameters, GcnLayerOptions const& options,
           GcnScratch<T>& scratch, GcnLayerMemory<T>& memory);

  GcnLayerPlan plan_;
  GcnLayerOptions options_;
  GcnLayerParameters<T> parameters_;
  std::shared_ptr<pmm::Workspace<T>> workspace_;
  pmm::DistMatrix<T> middle_, middle_gradient_, output_, output_gradient_, input_gradient_;
  std::unique_ptr<Aggregation<T>> aggregation_;
  pmm::Product<T> transform_, weight_back_, transform_back_;
};

extern template class GcnLayer<float>;
extern template class GcnLayer<double>;

} // namespace orthant::models
