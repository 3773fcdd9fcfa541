#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a vertex itself gives to its output, beside its neighbours (gnn_model.hpp). With R what brings rows to where the
// product by A^ leaves its own (docs/design.md 2.2: a relayout in the schedule pmm3d, nothing in rows):
//
//   aggregate first   S = R F, Q += S W'               transform first   V = F W', Q += R V
//                     dW' = S^T dQ                                       dV = R^T dQ
//                     dS = dQ W'^T                                       dW' = F^T dV
//                     dF += R^T dS                                       dF += dV W'^T

#include "models/gnn/aggregation/residual.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "models/gnn/plan/network_products.hpp"
#include "pmm/product/pmm.hpp"
#include "runtime/arrays/allocation.hpp"

#include <memory>
#include <optional>

namespace orthant::models {

using runtime::GrowingVector;

/// Memory that all layers use in turn: of a product, and of what has been brought elsewhere.
template<class T>
struct SelfScratch {
  GrowingVector<T> product{"orthant::models::self_product"};
  GrowingVector<T> moved{"orthant::models::self_moved"};
  GrowingVector<double> sum{"orthant::models::self_sum"}; // one number, of a factor's gradient
};

/// The same before it exists, and what a layer has to itself. Numbers.
struct SelfScratchPlan {
  std::int64_t product = 0;
  std::int64_t moved = 0;
  std::int64_t sum = 0;

  /// Adds what a layer needs.
  void add(pmm::StepPlan const& step, NetworkLayerPlan const& layer, bool needs_input_gradient);
  void list(pmm::StepPlan& step) const;
};
/// Lists S, and the arrays of R.
void plan_self_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer);
void plan_self_path_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                           NetworkEpochTraits const& traits);

/// T: of activations; 16-bit numbers are refused by plan_network().
template<class T>
class SelfTerm {
 public:
  using Sum = runtime::SumOf<T>;

  /// Of a layer that has a self weight, in lent memory; `own`: of S. `scratch` has its full size already. `workspace`: of
  /// the layer. Not collective.
  SelfTerm(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, NumberFormats const& formats,
           NetworkLayerParameters<Sum> const& parameters, bool needs_input_gradient, ResidualPath<Sum> path,
           std::shared_ptr<pmm::Workspace<Sum>> workspace, SelfScratch<T>& scratch, GrowingVector<T>& own);

  /// Ahead of the layer's products: S, which backward() reads, too, or R V. Collective over the group. Enqueues on exec.
  template<class Features>
  void start(runtime::DefaultExec const& exec, Features const& features);
  /// Q += what start() brought.
  void finish(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& output);

  /// dW', and what dF is to get, from dQ, which may change afterwards. Collective over the group.
  template<class Features>
  void backward(runtime::DefaultExec const& exec, Features const& features,
                pmm::DistMatrix<T> const& output_gradient);
  /// dF += what backward() left.
  void finish_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& input_gradient) const;

 private:
  bool aggregates_first_;
  bool needs_input_gradient_;
  ResidualPath<Sum> path_;
  pmm::DistMatrix<Sum> weight_, weight_gradient_;
  pmm::DistMatrix<T> brought_;       // S; if it lies as F does, F itself
  pmm::DistMatrix<T> product_;       // V, where the layer's U lies
  pmm::DistMatrix<T> addend_;        // R V
  pmm::DistMatrix<T> brought_back_;  // dV where V lies
  pmm::DistMatrix<T> input_product_; // dS, or what dF gets
  pmm::DistMatrix<T> input_addend_;  // what dF gets
  pmm::Product<T> transform_;
  pmm::Product<T, Sum> weight_back_;
  pmm::Product<T> transform_back_;
};

extern template class SelfTerm<float>;
extern template class SelfTerm<double>;

} // namespace orthant::models
