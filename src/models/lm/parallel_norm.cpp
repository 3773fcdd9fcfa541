// SPDX-License-Identifier: Apache-2.0
#include "models/lm/parallel_norm.hpp"

namespace orthant::models {
namespace {

using pmm::RowNorm, pmm::RowParts;

/// What the norms of a plan have in common on a rank.
struct PlannedNorm {
  PlannedNorm(pmm::StepPlan const& step, TransformerPlan const& plan)
      : kind(row_norm_of(plan.settings).kind),
        has_shift(kind == RowNorm::layer && plan.settings.has_bias),
        parts(step.shape().size(pmm::Axis::y) == 1 ? RowParts::whole : RowParts::summed),
        block{step.block(plan.stream).rows.size(), step.block(plan.stream).columns.size()},
        sums(step.scalar_bytes(block.rows * pmm::sums_per_row(kind))) {}
  RowNorm kind;
  bool has_shift;
  RowParts parts;
  pmm::RowBlock block;
  std::int64_t sums;
};

} // namespace

pmm::RowNormSettings row_norm_of(TransformerSettings const& settings) {
  return {settings.norm == NormKind::layer ? RowNorm::layer : RowNorm::rms, settings.hidden,
          settings.norm_epsilon};
}

void plan_norm(pmm::StepPlan& step, TransformerPlan const& plan) {
  PlannedNorm const norm(step, plan);
  if (norm.parts == RowParts::summed) {
    plan_sum_row_moments(step, norm.kind, norm.block);
    step.add_call(runtime::Operation::all_reduce, plan.stream.layout.columns, norm.sums);
  }
  plan_apply_row_norm(step, norm.kind, norm.parts, norm.has_shift, norm.block);
}

void plan_norm_backward(pmm::StepPlan& step, TransformerPlan const& plan, pmm::Residual residual) {
  PlannedNorm const norm(step, plan);
  if (norm.parts == RowParts::summed) {
    plan_sum_row_norm_gradient(step, norm.kind, norm.block);
    step.add_call(runtime::Operation::all_reduce, plan.stream.layout.columns, norm.sums);
  }
  plan_row_norm_backward(step, norm.kind, norm.parts, residual, norm.has_shift, norm.block);
}

void plan_norm_arrays(pmm::StepPlan& step, TransformerPlan const& plan) {
  PlannedNorm const norm(step, plan);
  if (norm.kind == RowNorm::layer)
    step.add_array("orthant::models::ParallelNorm/mean", step.scalar_bytes(norm.block.rows));
  step.add_array("orthant::models::ParallelNorm/inverse_deviation", step.scalar_bytes(norm.block.rows));
}

template<class T>
pmm::RowNormState<T> make_norm_state(pmm::ProcessGrid const& grid, TransformerPlan const& plan) {
  auto const num_rows = static_cast<std::size_t>(block_of(grid, plan.stream).rows.size());
  pmm::RowNormState<T> state;
  if (plan.settings.norm == NormKind::layer)
    state.mean = runtime::Vector<T>("orthant::models::ParallelNorm/mean", num_rows);
  state.inverse_deviation = runtime::Vector<T>("orthant::models::ParallelNorm/inverse_deviation", num_rows);
  return state;
}

template<class T>
ParallelNorm<T>::ParallelNorm(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                              NormParameters<T> parameters, pmm::RowNormState<T> state,
                              runtime::Vector<T> row_sums, std::shared_ptr<pmm::Workspace<T>> work)
    : grid_(grid),
      settings_(row_norm_of(plan.settings)),
      parameters_(std::move(parameters)),
      row_sums_(std::move(row_sums)),
      work_(std::move(work)),
      state_(std::move(state)) {
  reserve_norm_sums(*work_, block_of(grid, plan.stream));
}

template<class T>
void ParallelNorm<T>::forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x,
                              pmm::DistMatrix<T> const& y) {
  auto& passes = grid_.passes();
  if (parts() == RowParts::summed) {
    pmm::sum_row_moments(exec, passes, settings_.kind, x.local(), row_sums_);
    runtime::all_reduce(exec, grid_.over(x.layout().columns), row_sums_);
  }
  pmm::apply_row_norm(exec, passes, settings_, parts(), x.local(), row_sums_, parameters_.scale.local(),
                      parameters_.shift.local(), state_, y.local());
}

template<class T>
void ParallelNorm<T>::backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x,
                               pmm::DistMatrix<T> const& dy, pmm::Residual residual,
                               pmm::DistMatrix<T> const& dx) {
  auto& passes = grid_.passes();
  auto const& scale = parameters_.scale.local();
  if (parts() == RowParts::summed) {
    pmm::sum_row_norm_gradient(exec, passes, settings_.kind, x.local(), scale, state_, dy.local(), row_sums_);
    runtime::all_reduce(exec, grid_.over(x.layout().columns), row_sums_);
  }
  pmm::row_norm_backward(exec, passes, settings_, parts(), residual, x.local(), scale, state_, dy.local(),
                         row_sums_, dx.local(), parameters_.scale_gradient.local(),
                         parameters_.shift_gradient.local(), *work_);
}

template class ParallelNorm<float>;
template class ParallelNorm<double>;
template pmm::RowNormState<float> make_norm_state(pmm::ProcessGrid const&, TransformerPlan const&);
template pmm::RowNormState<double> make_norm_state(pmm::ProcessGrid const&, TransformerPlan const&);

} // namespace orthant::models
