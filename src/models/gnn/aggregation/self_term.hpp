#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Term of the vertex itself in a layer's output (gnn/plan/gnn_model.hpp). R moves rows from the placement of the operand of A^ to that of
// the product with A^: a relayout in the schedule `pmm3d`, the identity in rows (docs/design.md 2.2).
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
#include <vector>

namespace orthant::models {

// Moves of rows around a convolution, for a residual F_{l+1} = D + F_l and for the term of the vertex itself. In the schedule `pmm3d` input
// and output of a layer are distributed over different planes of the grid, in different orders of rows (docs/design.md 2.2). One all_to_all
// of the group sends F to the placement of the output, and one sends dF_{l+1} back; both can start before the layer's products. In the
// schedule `rows` input and output have the same owner: F is read in place, and dF_{l+1} is kept in place. If the output keeps fewer rows
// than the input, these are selected, and the gradient of the others is 0.

/// Moves F of one layer from the placement of the input to that of the output, and gradients back. A default-constructed path is that of a
/// layer that moves nothing. If the output keeps fewer rows than the input, only these rows are moved; the gradient of the others is 0. T:
/// the scalar type of training. The matrices may have 16-bit elements.
template<class T>
struct ResidualPath {
  std::shared_ptr<pmm::Relayout<T> const> forward;  // plan.residual_source() -> plan.result()
  std::shared_ptr<pmm::Relayout<T> const> backward; // plan.result() -> plan.residual_source()
  bool is_local = false;                            // both have the same placement: nothing moves
  std::shared_ptr<pmm::RowSelection const> kept{};  // the rows of this rank that the output keeps

  [[nodiscard]] static ResidualPath local() { return {nullptr, nullptr, true, nullptr}; }
  [[nodiscard]] static ResidualPath of_kept_rows(std::shared_ptr<pmm::RowSelection const> kept) {
    return {nullptr, nullptr, false, std::move(kept)};
  }
  [[nodiscard]] bool exists() const { return is_local || kept != nullptr || forward != nullptr; }
  /// bring() moves F to the placement of the output, bring_back() moves dF' to the placement of F. Must not be called on a local path.
  /// Collective over the group. Enqueue on exec.
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

/// Makes a path between two placements with the same columns. `input_rows`: for each row of this rank's output block, the row of the input.
/// `output_rows`: for each row of its input block, the row of the output. Collective over the grid's group.
template<class T>
[[nodiscard]] ResidualPath<T>
make_residual_path(pmm::ProcessGrid const& grid, pmm::Placement const& input, pmm::Placement const& output,
                   std::vector<std::int64_t> const& input_rows, std::vector<std::int64_t> const& output_rows);
/// Lists the arrays of a path that selects rows.
void plan_selection_arrays(pmm::StepPlan& step, pmm::Placement const& input, pmm::Placement const& output);
/// Lists the arrays of make_residual_path().
void plan_residual_arrays(pmm::StepPlan& step, NetworkLayerPlan const& plan,
                          NetworkEpochTraits const& traits);

/// sum := x + y. All three must have equal placements; otherwise throws Error. `sum` may be x or y. Enqueues on exec.
template<class T>
void add(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& y,
         pmm::DistMatrix<T> const& sum);

using runtime::GrowingVector;

/// Memory that all layers share: a product, and rows that have been moved.
template<class T>
struct SelfScratch {
  GrowingVector<T> product{"orthant::models::self_product"};
  GrowingVector<T> moved{"orthant::models::self_moved"};
  GrowingVector<double> sum{"orthant::models::self_sum"}; // one element: gradient of epsilon
};

/// Sizes of the arrays of a SelfScratch, in elements.
struct SelfScratchPlan {
  std::int64_t product = 0;
  std::int64_t moved = 0;
  std::int64_t sum = 0;

  /// Raises the sizes to what this layer needs.
  void add(pmm::StepPlan const& step, NetworkLayerPlan const& layer, bool needs_input_gradient);
  void list(pmm::StepPlan& step) const;
};
/// Lists S, and the arrays of R.
void plan_self_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer);
void plan_self_path_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                           NetworkEpochTraits const& traits);

/// T: element type of activations; plan_network() rejects 16-bit types.
template<class T>
class SelfTerm {
 public:
  using Sum = runtime::SumOf<T>;

  /// Term of a layer with a self weight, in borrowed memory, which must outlive this object. `own`: memory of S. `scratch` must
  /// have its full size. `workspace`: the layer's. Not collective.
  SelfTerm(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, NumberFormats const& formats,
           NetworkLayerParameters<Sum> const& parameters, bool needs_input_gradient, ResidualPath<Sum> path,
           std::shared_ptr<pmm::Workspace<Sum>> workspace, SelfScratch<T>& scratch, GrowingVector<T>& own);

  /// Call before the layer's products. Computes S, which backward() also reads, or R V. Collective over the group. Enqueues on exec.
  template<class Features>
  void start(runtime::DefaultExec const& exec, Features const& features);
  /// Adds the term to Q, after the layer's products.
  void finish(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& output);

  /// Computes dW', and the term of dF, from dQ, which may change afterwards. Collective over the group.
  template<class Features>
  void backward(runtime::DefaultExec const& exec, Features const& features,
                pmm::DistMatrix<T> const& output_gradient);
  /// Adds the term of dF that backward() computed.
  void finish_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& input_gradient) const;

 private:
  bool aggregates_first_;
  bool needs_input_gradient_;
  ResidualPath<Sum> path_;
  pmm::DistMatrix<Sum> weight_, weight_gradient_;
  pmm::DistMatrix<T> brought_;       // S; F itself if both have the same placement
  pmm::DistMatrix<T> product_;       // V, with the placement of U
  pmm::DistMatrix<T> addend_;        // R V
  pmm::DistMatrix<T> brought_back_;  // dV, with the placement of V
  pmm::DistMatrix<T> input_product_; // dS, or the term of dF
  pmm::DistMatrix<T> input_addend_;  // the term of dF
  pmm::Product<T> transform_;
  pmm::Product<T, Sum> weight_back_;
  pmm::Product<T> transform_back_;
};

extern template class SelfTerm<float>;
extern template class SelfTerm<double>;

} // namespace orthant::models
