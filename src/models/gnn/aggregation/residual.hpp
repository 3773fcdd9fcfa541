#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A residual connection around a convolution: F_{l+1} = D + F_l. Rows of the vertex itself go the same way
// (self_term.hpp). In the schedule pmm3d, input and output of a
// layer lie on different planes and in different orders of rows (docs/design.md 2.2), so F travels to where
// the output lies, and dF_{l+1} back: one all_to_all of the group each way. Both only need what is there
// before the layer's products start. In the schedule rows both have the same owner: F is read and dF_{l+1} is kept
// where they lie, and nothing is copied.

#include "models/gnn/plan/network_step.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "pmm/matrix/relayout.hpp"

#include <memory>
#include <vector>

namespace orthant::models {

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

} // namespace orthant::models
