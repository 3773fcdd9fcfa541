#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// LayerNorm or RMSNorm of the residual stream, whose columns are split over y. Each direction sends one message over y, of
// two numbers per row (RMSNorm: one). With whole rows on one rank there is none (pmm/token_rows/row_norm.hpp).

#include "models/lm/transformer_parameters.hpp"
#include "pmm/rows/column_sums.hpp"
#include "pmm/token_rows/row_norm.hpp"

namespace orthant::models {

template<class T>
class ParallelNorm {
 public:
  /// `state` is the memory from a forward pass to its backward pass. `row_sums` is lent, sums_per_row numbers per row,
  /// `work` for partial sums; norms share both. `grid` must outlive it.
  ParallelNorm(pmm::ProcessGrid const& grid, TransformerPlan const& plan, NormParameters<T> parameters,
               pmm::RowNormState<T> state, runtime::Vector<T> row_sums,
               std::shared_ptr<pmm::Workspace<T>> work);

  /// y := norm(x). Collective over y. Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& y);
  /// dx := (dx +) the gradient by x, from that by y; and this rank's addends of the parameters' gradients. Collective
  /// over y. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& dy,
                pmm::Residual residual, pmm::DistMatrix<T> const& dx);

 private:
  [[nodiscard]] pmm::RowParts parts() const {
    return grid_.size(pmm::Axis::y) == 1 ? pmm::RowParts::whole : pmm::RowParts::summed;
  }

  pmm::ProcessGrid const& grid_;
  pmm::RowNormSettings settings_;
  NormParameters<T> parameters_;
  runtime::Vector<T> row_sums_;
  std::shared_ptr<pmm::Workspace<T>> work_;
  pmm::RowNormState<T> state_;
};

/// The memory of one norm.
template<class T>
[[nodiscard]] pmm::RowNormState<T> make_norm_state(pmm::ProcessGrid const& grid, TransformerPlan const& plan);

[[nodiscard]] pmm::RowNormSettings row_norm_of(TransformerSettings const& settings);

/// Makes room for the partial sums of a backward pass. `work`: a Workspace or a WorkspacePlan. `stream`: the block.
template<class Work>
void reserve_norm_sums(Work& work, pmm::Block const& stream) {
  pmm::reserve_column_sums(work, stream.rows.size(), stream.columns.size());
}

/// List what forward() and backward() do, and the arrays of one norm.
void plan_norm(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_norm_backward(pmm::StepPlan& step, TransformerPlan const& plan, pmm::Residual residual);
void plan_norm_arrays(pmm::StepPlan& step, TransformerPlan const& plan);

extern template class ParallelNorm<float>;
extern template class ParallelNorm<double>;

} // namespace orthant::models
