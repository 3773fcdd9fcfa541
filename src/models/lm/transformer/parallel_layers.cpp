// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/parallel_layers.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/rows/column_sums.hpp"

#include <utility>

namespace orthant::models {
namespace {

using pmm::Form, pmm::ProductPlan;

struct ParallelProducts {
  explicit ParallelProducts(LinearPlan3d const& plan)
      : product{"Z = X W", Form::product, plan.input, plan.weight, plan.output, {plan.wire, plan.wire}},
        input_back{"dX = dZ W^T", Form::left_grad, plan.output,
                   plan.weight,   plan.input,      {plan.wire, plan.wire}},
        weight_back{"dW = X^T dZ", Form::right_grad, plan.input, plan.output, plan.weight, {}} {}
  ProductPlan product, input_back, weight_back;
};

} // namespace

void plan_linear(pmm::StepPlan& step, LinearPlan3d const& plan, bool has_bias) {
  plan_product(step, ParallelProducts(plan).product);
  if (has_bias) pmm::plan_add_bias(step, plan.output);
}

void plan_linear_backward(pmm::StepPlan& step, LinearPlan3d const& plan, bool has_bias, BackwardPart part) {
  ParallelProducts const products(plan);
  if (has_bias && part != BackwardPart::inputs) pmm::plan_sum_columns(step, plan.output);
  if (part != BackwardPart::weights) plan_product(step, products.input_back);
  if (part != BackwardPart::inputs) plan_product(step, products.weight_back);
}

void plan_linear_buffers(LinearWorkPlan& work, std::size_t turn, pmm::StepPlan const& step,
                         LinearPlan3d const& plan, bool has_bias) {
  ParallelProducts const products(plan);
  plan_buffers(work[turn], step, products.product);
  plan_buffers(work[turn], step, products.input_back);
  plan_buffers(work[turn], step, products.weight_back);
  auto const output = step.block(plan.output);
  if (has_bias) pmm::reserve_column_sums(work[turn], output.stored_rows.size(), output.columns.size());
}

template<class T>
LinearWork<T>::LinearWork(pmm::ProcessGrid const& grid)
    : instruments_(grid.world().instruments()),
      gathers_ahead_(pmm::can_hide_messages(grid.over(pmm::Axis::z))) {
  for (auto& buffer : buffers_)
    buffer = std::make_shared<pmm::Workspace<T>>();
}

template<class T>
void LinearWork<T>::begin_pass(std::vector<WeightUse<T>> const& uses) {
  uses_ = &uses;
  next_ = 0;
  is_gathered_ahead_ = false;
  num_finished_ = 0;
}

template<class T>
void LinearWork<T>::begin_use(runtime::DefaultExec const& exec, WeightUse<T> const& use) {
  ORTHANT_REQUIRE(uses_ != nullptr && next_ < uses_->size() && (*uses_)[next_].linear == use.linear &&
                      (*uses_)[next_].direction == use.direction,
                  "weight ", next_, " of a pass is used out of turn");
  ++next_;
  if (!gathers_ahead_) return;
  // Gathers always start in the order of the uses, so that a tape also records them in this order.
  if (!std::exchange(is_gathered_ahead_, false)) use.linear->prefetch(exec, use.direction);
  if (next_ == uses_->size()) return;
  auto const& following = (*uses_)[next_];
  if (following.linear->turn() == use.linear->turn()) return;
  runtime::TapeScope const scope(instruments_, following.tape);
  following.linear->prefetch(exec, following.direction);
  is_gathered_ahead_ = true;
}

template<class T>
void LinearWork<T>::finish(std::size_t turn) {
  auto* const product = std::exchange(unfinished_[turn], nullptr);
  if (product == nullptr) return;
  product->finish();
  ++num_finished_;
}

template<class T>
void LinearWork<T>::finish_all() {
  for (std::size_t turn = 0; turn < num_turns; ++turn)
    finish(turn);
}

template class LinearWork<float>;
template class LinearWork<double>;

/// The products can share buffers, because only the weight is gathered, and only the weight's gradient is reduced outside its own
/// memory.
template<class T>
ParallelLinear<T>::ParallelLinear(pmm::ProcessGrid const& grid, LinearPlan3d const& plan,
                                  LinearParameters<T> parameters, LinearWork<T>& work, std::size_t turn)
    : parameters_(std::move(parameters)),
      work_(work),
      turn_(turn),
      has_bias_(parameters_.bias.length() > 0),
      product_(grid, ParallelProducts(plan).product, work.buffers(turn)),
      input_back_(grid, ParallelProducts(plan).input_back, work.buffers(turn)),
      weight_back_(grid, ParallelProducts(plan).weight_back, work.buffers(turn)) {
  auto const output = block_of(grid, plan.output);
  if (has_bias_)
    pmm::reserve_column_sums(*work_.buffers(turn_), output.stored_rows.size(), output.columns.size());
}

template<class T>
void ParallelLinear<T>::prefetch(runtime::DefaultExec const& exec, Direction direction) {
  (direction == Direction::forward ? product_ : input_back_).prefetch_right(exec, parameters_.weight);
}

template<class T>
void ParallelLinear<T>::forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& input,
                                pmm::DistMatrix<T> const& output) {
  work_.begin_use(exec, {this, Direction::forward});
  // Z[z,b] := sum_a X[z,a] W[a,b]
  product_.run(exec, input, parameters_.weight, output);
  if (has_bias_) pmm::add_bias(exec, output, parameters_.bias);
}

template<class T>
void ParallelLinear<T>::backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& input,
                                 pmm::DistMatrix<T> const& output_gradient,
                                 pmm::DistMatrix<T> const& input_gradient) {
  work_.begin_use(exec, {this, Direction::backward});
  if (has_bias_) pmm::sum_columns(exec, output_gradient, parameters_.bias_gradient, *work_.buffers(turn_));
  // dX[z,a] := sum_b dZ[z,b] W[a,b]^T is reduced while dW[a,b] := sum_z X[z,a]^T dZ[z,b] is computed. dW is reduced while the
  // next product is computed.
  input_back_.start(exec, output_gradient, parameters_.weight, input_gradient);
  work_.finish(turn_);
  weight_back_.start(exec, input, output_gradient, parameters_.weight_gradient);
  work_.leave_unfinished(turn_, weight_back_);
  input_back_.finish();
}

template<class T>
void ParallelLinear<T>::input_backward(runtime::DefaultExec const& exec,
                                       pmm::DistMatrix<T> const& output_gradient,
                                       pmm::DistMatrix<T> const& input_gradient) {
  work_.begin_use(exec, {this, Direction::backward});
  input_back_.run(exec, output_gradient, parameters_.weight, input_gradient);
}

template<class T>
void ParallelLinear<T>::weight_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& input,
                                        pmm::DistMatrix<T> const& output_gradient) {
  work_.finish(turn_);
  if (has_bias_) pmm::sum_columns(exec, output_gradient, parameters_.bias_gradient, *work_.buffers(turn_));
  weight_back_.start(exec, input, output_gradient, parameters_.weight_gradient);
  work_.leave_unfinished(turn_, weight_back_);
}

template class ParallelLinear<float>;
template class ParallelLinear<double>;

namespace {

using pmm::RowNorm, pmm::RowParts;

/// Shape and sizes of the norms of a plan on one rank.
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

void plan_repeated_norm(pmm::StepPlan& step, TransformerPlan const& plan) {
  PlannedNorm const norm(step, plan);
  plan_apply_row_norm(step, norm.kind, RowParts::kept, norm.has_shift, norm.block);
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
void ParallelNorm<T>::repeat(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x,
                             pmm::DistMatrix<T> const& y) {
  pmm::apply_row_norm(exec, grid_.passes(), settings_, RowParts::kept, x.local(), row_sums_,
                      parameters_.scale.local(), parameters_.shift.local(), state_, y.local());
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
