// SPDX-License-Identifier: Apache-2.0
#include "models/lm/pipeline/stage_messages.hpp"

#include "pmm/pairs/pair_layers.hpp"
#include "runtime/error.hpp"
#include "runtime/range.hpp"

namespace orthant::models {
namespace {

using pmm::Axis, runtime::DefaultExec, runtime::Operation;

constexpr int stream_tag = 0, gradient_tag = 1, table_tag = 2;
constexpr auto table_label = "orthant::models::StageMessages/table";

/// A stage with a predecessor has memory for one more input than it keeps, so that the next one can arrive.
std::int64_t num_inputs(StagePlan const& stage) {
  return stage.num_in_flight + (stage.number > 0 ? 1 : 0);
}
/// One is computed while the next one arrives, or while the one before leaves.
std::int64_t num_gradients(StagePlan const& stage) {
  return stage.num_stages > 1 ? 2 : 1;
}
/// Whether this rank is on the first or on the last stage, and both have the table.
bool has_shared_table(TransformerPlan const& plan) {
  return plan.stage.num_stages > 1 && plan.settings.tied_head && plan.has_table();
}

runtime::Range part_of_stream(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                              TransformerPlan const& plan) {
  auto const length = block_of(shape, coordinates, plan.stream).num_padded;
  return runtime::balanced_range(length, shape.x, coordinates.x);
}

template<class T>
runtime::Request& of(std::vector<runtime::Request>& requests, std::vector<T> const& ring, std::int64_t k) {
  return requests[static_cast<std::size_t>(k) % ring.size()];
}

void wait_for_all(std::vector<runtime::Request>& requests) {
  for (auto& request : requests)
    request.wait();
}

} // namespace

template<class T>
StageMessages<T>::StageMessages(pmm::ProcessGrid const& grid, TransformerPlan const& plan)
    : grid_(grid),
      stage_(plan.stage),
      sums_table_(has_shared_table(plan)) {
  for (std::int64_t i = 0; i < num_inputs(stage_); ++i)
    inputs_.emplace_back(grid, plan.stream, "orthant::models::stream");
  for (std::int64_t i = 0; i < num_gradients(stage_); ++i)
    gradients_.emplace_back(grid, plan.stream, "orthant::models::stream_gradient");
  received_inputs_.resize(inputs_.size());
  sent_outputs_.resize(static_cast<std::size_t>(stage_.num_in_flight));
  received_gradients_.resize(gradients_.size());
  sent_gradients_.resize(gradients_.size());
  auto at = grid.coordinates();
  for (at.x = 0; at.x < grid.shape().x; ++at.x)
    counts_.push_back(part_of_stream(grid.shape(), at, plan).size());
  if (stage_.num_stages == 1) return;
  if (!pmm::runs_on_host && pipe().works_on_streams())
    runtime::throw_user("--pipeline {} sends device memory with MPI, but this job sends it with NCCL: build "
                        "without NCCL, or leave out --pipeline",
                        stage_.num_stages);
  if (sums_table_)
    of_other_end_ = runtime::Vector<T>(std::string(table_label),
                                       static_cast<std::size_t>(block_of(grid, plan.table).num_padded));
}

template<class T>
runtime::Vector<T> StageMessages<T>::part(pmm::DistMatrix<T> const& stream) const {
  auto const length = static_cast<std::int64_t>(stream.storage().extent(0));
  auto const own = runtime::balanced_range(length, grid_.size(Axis::x), grid_.coordinate(Axis::x));
  return runtime::Vector<T>(stream.storage().data() + own.begin, static_cast<std::size_t>(own.size()));
}

template<class T>
void StageMessages<T>::gather(DefaultExec const& exec, pmm::DistMatrix<T> const& stream) const {
  if (grid_.size(Axis::x) > 1)
    runtime::all_gatherv(exec, grid_.over(Axis::x), part(stream), stream.storage(), counts_);
}

template<class T>
void StageMessages<T>::begin(Pass pass, std::int64_t num_passes) {
  num_passes_ = num_passes;
  if (stage_.num_stages == 1) return;
  for (auto* const requests : {&received_inputs_, &sent_outputs_, &received_gradients_, &sent_gradients_})
    wait_for_all(*requests);
  ask_for_input(0);
  if (pass == Pass::training) ask_for_gradient(0);
}

template<class T>
void StageMessages<T>::ask_for_input(std::int64_t k) {
  if (stage_.has_embedding() || k >= num_passes_) return;
  auto const& to = inputs_[static_cast<std::size_t>(k) % inputs_.size()];
  of(received_inputs_, inputs_, k) =
      runtime::start_receive(DefaultExec(), pipe(), part(to), stage_.number - 1, stream_tag);
}

template<class T>
void StageMessages<T>::ask_for_gradient(std::int64_t k) {
  if (stage_.has_head() || k >= num_passes_) return;
  of(sent_gradients_, gradients_, k).wait(); // it has left the same memory
  auto const& to = gradients_[static_cast<std::size_t>(k) % gradients_.size()];
  of(received_gradients_, gradients_, k) =
      runtime::start_receive(DefaultExec(), pipe(), part(to), stage_.number + 1, gradient_tag);
}

template<class T>
pmm::DistMatrix<T> const& StageMessages<T>::input(DefaultExec const& exec, std::int64_t k) {
  auto const& input = inputs_[static_cast<std::size_t>(k) % inputs_.size()];
  of(sent_outputs_, sent_outputs_, k).wait();
  if (stage_.has_embedding()) return input;
  of(received_inputs_, inputs_, k).wait();
  ask_for_input(k + 1);
  gather(exec, input);
  return input;
}

template<class T>
void StageMessages<T>::send_output(DefaultExec const& exec, std::int64_t k,
                                   pmm::DistMatrix<T> const& output) {
  if (!stage_.has_head())
    of(sent_outputs_, sent_outputs_, k) =
        runtime::start_send(exec, pipe(), part(output), stage_.number + 1, stream_tag);
}

template<class T>
pmm::DistMatrix<T> const& StageMessages<T>::gradient(DefaultExec const& exec, std::int64_t k) {
  auto const& gradient = gradients_[static_cast<std::size_t>(k) % gradients_.size()];
  if (stage_.has_head()) {
    of(sent_gradients_, gradients_, k).wait();
    return gradient;
  }
  of(received_gradients_, gradients_, k).wait();
  ask_for_gradient(k + 1);
  gather(exec, gradient);
  return gradient;
}

template<class T>
void StageMessages<T>::send_gradient(DefaultExec const& exec, std::int64_t k) {
  if (!stage_.has_embedding())
    of(sent_gradients_, gradients_, k) =
        runtime::start_send(exec, pipe(), part(gradients_[static_cast<std::size_t>(k) % gradients_.size()]),
                            stage_.number - 1, gradient_tag);
}

template<class T>
void StageMessages<T>::sum_over_ends(DefaultExec const& exec, runtime::Vector<T> const& numbers) {
  if (!sums_table_) return;
  auto const other = stage_.has_embedding() ? stage_.num_stages - 1 : 0;
  auto arriving = runtime::start_receive(exec, pipe(), of_other_end_, other, table_tag);
  auto leaving = runtime::start_send(exec, pipe(), numbers, other, table_tag);
  arriving.wait();
  leaving.wait();
  pmm::add_numbers(exec, grid_.passes(), of_other_end_, numbers);
}

template class StageMessages<float>;
template class StageMessages<double>;

namespace {

void plan_send(pmm::StepPlan& step, TransformerPlan const& plan) {
  auto const part = part_of_stream(step.shape(), step.coordinates(), plan);
  step.add_message(Operation::send, Axis::pipe, step.scalar_bytes(part.size()));
}

void plan_receive(pmm::StepPlan& step, TransformerPlan const& plan) {
  step.add_message(Operation::receive, Axis::pipe, 0);
  step.add_call(Operation::all_gather, Axis::x, step.scalar_bytes(step.block(plan.stream).num_padded));
}

} // namespace

void plan_receive_input(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!plan.stage.has_embedding()) plan_receive(step, plan);
}

void plan_send_output(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!plan.stage.has_head()) plan_send(step, plan);
}

void plan_receive_gradient(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!plan.stage.has_head()) plan_receive(step, plan);
}

void plan_send_gradient(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!plan.stage.has_embedding()) plan_send(step, plan);
}

void plan_sum_over_ends(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!has_shared_table(plan)) return;
  auto const bytes = step.scalar_bytes(step.block(plan.table).num_padded);
  step.add_message(Operation::receive, Axis::pipe, 0);
  step.add_message(Operation::send, Axis::pipe, bytes);
  pmm::plan_add_numbers(step, step.block(plan.table).num_padded);
}

void plan_stage_messages_arrays(pmm::StepPlan& step, TransformerPlan const& plan) {
  for (std::int64_t i = 0; i < num_inputs(plan.stage); ++i)
    plan_matrix(step, plan.stream, "orthant::models::stream");
  for (std::int64_t i = 0; i < num_gradients(plan.stage); ++i)
    plan_matrix(step, plan.stream, "orthant::models::stream_gradient");
  if (has_shared_table(plan))
    step.add_array(table_label, step.scalar_bytes(step.block(plan.table).num_padded));
}

} // namespace orthant::models
