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

#include "models/gnn/plan/network_parameters.hpp"
#include "models/gnn/plan/network_products.hpp"
#include "models/gnn/plan/network_step.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "pmm/matrix/relayout.hpp"
#include "pmm/product/product.hpp"
#include "runtime/arrays/allocation.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace orthant::models {

// A residual connection around a convolution: F_{l+1} = D + F_l. Rows of the vertex itself go the same way
// (self_term.hpp). In the schedule pmm3d, input and output of a
// layer lie on different planes and in different orders of rows (docs/design.md 2.2), so F travels to where
// the output lies, and dF_{l+1} back: one all_to_all of the group each way. Both only need what is there
// before the layer's products start. In the schedule rows both have the same owner: F is read and dF_{l+1} is kept
// where they lie, and nothing is copied.

/// The way of F from input to output of one layer, and back. Empty: the layer needs none. If
/// the output keeps fewer rows than the input, only those travel, and the others have no gradient from it. T is the
/// scalar of training; the matrices may hold 16-bit numbers.
template<class T>
struct ResidualPath {
  std::shared_ptr<pmm::Relayout<T> const> forward;  // plan.input -> plan.output
  std::shared_ptr<pmm::Relayout<T> const> backward; // plan.output -> plan.input
  bool is_local = false;                            // both lie alike: nothing needs to move
  std::shared_ptr<pmm::RowSelection const> kept{};  // of a rank's rows, those that the output keeps

  [[nodiscard]] static ResidualPath local() { return {nullptr, nullptr, true, nullptr}; }
  [[nodiscard]] static ResidualPath of_kept_rows(std::shared_ptr<pmm::RowSelection const> kept) {
    return {nullptr, nullptr, false, std::move(kept)};
  }
  [[nodiscard]] bool exists() const { return is_local || kept != nullptr || forward != nullptr; }
  /// F to where the output lies, and dF' back. Not of a local one. Collective over the group. Enqueue on exec.
  template<class Number>
  void bring(runtime::DefaultExec const& exec, pmm::DistMatrix<Number> const& from,
             pmm::DistMatrix<Number> const& to) const {
    if (kept)
      select_rows(exec, from.grid().passes(), *kept, from.storage(), from.extents().columns, to.storage());
    else
      forward->run(exec, from, to);
  }
  template<class Number>
  void bring_back(runtime::DefaultExec const& exec, pmm::DistMatrix<Number> const& from,
                  pmm::DistMatrix<Number> const& to) const {
    if (kept)
      spread_rows(exec, from.grid().passes(), *kept, from.storage(), from.extents().columns, to.storage());
    else
      backward->run(exec, from, to);
  }
};

/// Between any two placements of the same columns. `input_rows`: for each row of this rank's output block its row of the input; `output_rows`: for each row
/// of its input block its row of the output. Collective over the grid's group.
template<class T>
[[nodiscard]] ResidualPath<T>
make_residual_path(pmm::ProcessGrid const& grid, pmm::Placement const& input, pmm::Placement const& output,
                   std::vector<std::int64_t> const& input_rows, std::vector<std::int64_t> const& output_rows);
/// Lists the arrays of make_residual_path().
void plan_residual_arrays(pmm::StepPlan& step, NetworkLayerPlan const& plan,
                          NetworkEpochTraits const& traits);

/// sum := x + y, of equal placements (Error); may be one of them. Enqueues on exec.
template<class T>
void add(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& y,
         pmm::DistMatrix<T> const& sum);

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
