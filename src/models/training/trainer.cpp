// SPDX-License-Identifier: Apache-2.0
#include "models/training/trainer.hpp"

#include "models/training/gradient_sum.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <chrono>
#include <cmath>
#include <utility>

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using runtime::ScopedTimer;

/// All communicators that a step on this grid uses. The first step, which was not recorded, has created them.
std::vector<runtime::Communicator const*> communicators_of(pmm::ProcessGrid const& grid) {
  std::vector<runtime::Communicator const*> all;
  for (auto const& [axes, comm] : grid.communicators())
    all.push_back(&comm);
  return all;
}

/// Whether no message passes through the host: the group has one rank, or the device sends its own memory. If each rank of the
/// group has its own device, so has each rank of every axis.
bool stays_on_device(pmm::ProcessGrid const& grid) {
  return grid.group().size() == 1 || grid.group().works_on_streams();
}

/// Waits for work that others enqueued on the default instance, such as new weights: queues are not ordered with each other.
void wait_for_default_queue() {
  runtime::compat::fence(DefaultExec(), "orthant::models::Trainer/what others enqueued");
}

} // namespace

template<class T>
Trainer<T>::Trainer(pmm::ProcessGrid const& grid, Network<T>& network, std::unique_ptr<Objective<T>> of_rows,
                    Objective<T>* objective, TrainSettings const& settings,
                    std::shared_ptr<ParameterUpdate<T>> update, BatchSource* batches)
    : grid_(grid),
      network_(network),
      of_rows_(std::move(of_rows)),
      objective_(objective == nullptr ? *of_rows_ : *objective),
      batches_(batches == nullptr ? one_batch_ : *batches),
      nominal_count_(batches_.nominal_count()),
      order_(network.order_of_passes(batches_.num_accumulated())),
      settings_(settings),
      update_(update ? std::move(update)
                     : std::make_shared<ParameterUpdate<T>>(
                           grid, network.parameters(),
                           with_num_steps(settings, settings.num_epochs * batches_.num_steps()),
                           has_one_batch() ? nullptr
                                           : make_shards(grid, network,
                                                         shards_of(settings, batches_.num_accumulated())))),
      queue_(runtime::training_queue()),
      exec_(has_one_batch() ? runtime::compat::instance_on<DefaultExec>(queue_.native()) : DefaultExec()),
      recorded_(queue_) {
  ORTHANT_REQUIRE(grid.size(pmm::Axis::pipe) == 1 || !has_one_batch(),
                  "full-graph training has one batch and cannot be a pipeline of ",
                  grid.size(pmm::Axis::pipe), " stages");
  ORTHANT_REQUIRE(update_->pruned() == nullptr || !has_one_batch(),
                  "weights of graph networks are not pruned");
  if (!has_one_batch() && update_->pruned() == nullptr) make_gradient_sum();
  if (settings.optimizer.gradient_wire != runtime::Wire::native &&
      grid.size(pmm::batch_axes(grid.shape())) == 1)
    grid.world().instruments().log.warn_once(
        "--comm-dtype gradients= has no effect: all ranks train on the same batch");
  phases_.measure_on(runtime::DeviceClock::create(runtime::compat::native_stream(exec_)));
}

template<class T>
Trainer<T>::Trainer(pmm::ProcessGrid const& grid, Network<T>& network, pmm::RowLoss<T>& loss,
                    BatchSource& batches, TrainSettings const& settings,
                    std::shared_ptr<ParameterUpdate<T>> update)
    : Trainer(grid, network, std::make_unique<RowObjective<T>>(loss), nullptr, settings, std::move(update),
              &batches) {}

template<class T>
Trainer<T>::Trainer(pmm::ProcessGrid const& grid, Network<T>& network, Objective<T>& objective,
                    BatchSource& batches, TrainSettings const& settings,
                    std::shared_ptr<ParameterUpdate<T>> update)
    : Trainer(grid, network, nullptr, &objective, settings, std::move(update), &batches) {}

template<class T>
Trainer<T>::Trainer(pmm::ProcessGrid const& grid, Network<T>& network, pmm::RowLoss<T>& loss,
                    TrainSettings const& settings, std::shared_ptr<ParameterUpdate<T>> update)
    : Trainer(grid, network, std::make_unique<RowObjective<T>>(loss), nullptr, settings, std::move(update),
              nullptr) {}

template<class T>
void Trainer<T>::make_gradient_sum() {
  auto sums = settings_.gradient_sum;
  sums.wire = settings_.optimizer.gradient_wire;
  gradient_sum_.emplace(grid_, network_.parameters(), network_.gradient_order(), batches_.num_accumulated(),
                        sums, update_->shards(), update_->pruned());
}

/// The sum is made late: a checkpoint may have told what is kept before the first step.
template<class T>
void Trainer<T>::prepare_pruned() {
  auto const* const pruned = update_->pruned();
  if (pruned == nullptr || (gradient_sum_ && pruned->are_chosen())) return;
  if (!pruned->are_chosen() && pruned->settings().is_pruned_after(update_->num_steps() + 1)) {
    gradient_sum_.reset(); // its memory is needed no more
    update_->prune(exec_);
  }
  if (gradient_sum_) return;
  make_gradient_sum();
  update_->read_gradients_of(*gradient_sum_);
}

template<class T>
double Trainer<T>::enqueue_forward(std::int64_t epoch, std::int64_t k, runtime::PhaseTimes& phases) {
  network_.select_batch(k);
  auto const dropout_key = batches_.next(epoch, phases);
  auto const& logits = network_.forward(exec_, Pass::training, dropout_key, phases);
  auto const divisor = nominal_count_ ? *nominal_count_ : objective_.num_terms();
  auto const scale = gradient_scale(network_.narrowest_format(), objective_, divisor);
  ScopedTimer const timer(grid_.world().instruments(), phases, "loss");
  auto const& numbers = update_->numbers();
  if (network_.has_logits())
    objective_.loss_and_gradient(exec_, logits, network_.logits_gradient(), divisor,
                                 has_one_batch() ? numbers.loss() : numbers.loss_and_count(), scale);
  if constexpr (pmm::runs_on_host) // a device keeps outputs, so the host need not wait here
    if (network_.overwrites_outputs() && !first_not_finite_) {
      runtime::compat::fence(exec_, "orthant::models::enqueue_forward/the loss is read");
      if (!std::isfinite(numbers.loss()(0))) first_not_finite_ = network_.first_layer_not_finite(exec_);
    }
  if (!has_one_batch()) numbers.add_to_sums(exec_, k, static_cast<double>(divisor));
  return scale;
}

template<class T>
void Trainer<T>::enqueue_backward(std::int64_t k, runtime::PhaseTimes& phases) {
  network_.select_batch(k);
  if (gradient_sum_ && gradient_sum_->starts_early(k))
    network_.backward_telling(exec_, phases, [&](std::size_t num_complete) {
      ScopedTimer const timer(grid_.world().instruments(), phases, "data");
      gradient_sum_->add_early(exec_, k, num_complete);
    });
  else
    network_.backward(exec_, phases);
  if (gradient_sum_) {
    ScopedTimer const timer(grid_.world().instruments(), phases, "data");
    gradient_sum_->add(exec_, k);
  }
}

/// Only the last stage of a pipeline knows the losses.
template<class T>
void Trainer<T>::sum_over_groups(runtime::PhaseTimes& phases) {
  ScopedTimer const timer(grid_.world().instruments(), phases, "data");
  auto const sum_numbers = [&](pmm::AxisSet axes) {
    if (grid_.size(axes) > 1) runtime::all_reduce(exec_, grid_.over(axes), update_->numbers().sums());
  };
  sum_numbers(pmm::batch_axes(grid_.shape()));
  gradient_sum_->finish(exec_);
  sum_numbers(pmm::Axis::pipe); // waits for all stages
  network_.sum_shared_gradients(exec_);
}

template<class T>
void Trainer<T>::enqueue_step(std::int64_t epoch, runtime::PhaseTimes& phases) {
  auto scale = 1.0; // the same for all batches
  network_.begin_passes(Pass::training, batches_.num_accumulated());
  for (auto const& action : order_)
    switch (action.kind) {
    case PassAction::Kind::forward:
      scale = enqueue_forward(epoch, action.k, phases);
      break;
    case PassAction::Kind::input_backward:
      network_.select_batch(action.k);
      network_.input_backward(exec_, phases);
      break;
    case PassAction::Kind::backward:
      enqueue_backward(action.k, phases);
      break;
    }
  if (!has_one_batch()) sum_over_groups(phases);
  auto const num_groups = has_one_batch() ? 1 : grid_.size(pmm::batch_axes(grid_.shape()));
  update_->run(exec_, nominal_count_, phases, scale, batches_.num_accumulated() * num_groups);
}

template<class T>
bool Trainer<T>::may_record() const {
  return has_one_batch() && settings_.uses_device_graph && queue_.native() != nullptr &&
         network_.repeats_itself() && objective_.repeats_itself() && update_->repeats_itself() &&
         stays_on_device(grid_);
}

template<class T>
void Trainer<T>::record_step(std::int64_t epoch) {
  has_tried_to_record_ = true;
  runtime::PhaseTimes unused; // events inside a graph cannot be timed
  auto const failure =
      recorded_.record(grid_.group(), communicators_of(grid_), [&] { enqueue_step(epoch, unused); });
  if (!failure.empty())
    grid_.world().instruments().log.warn_once("epochs are launched kernel by kernel, not as a graph: {}",
                                              failure);
}

template<class T>
void Trainer<T>::require_finite(typename ParameterUpdate<T>::Result const& result, std::int64_t epoch,
                                std::int64_t step) const {
  auto const is_finite = std::isfinite(result.sum);
  if (is_finite && result.diverged.empty()) return;
  auto where = fmt::format("{} {}", settings_.unit, epoch);
  if (batches_.num_steps() > 1) where += fmt::format(", step {}", step + 1);
  if (!is_finite)
    throw_loss_not_finite(where, result.sum,
                          network_.overwrites_outputs() ? first_not_finite_.value_or(-1)
                                                        : network_.first_layer_not_finite(exec_),
                          objective_.has_decoder());
  throw_diverged(fmt::format("{}: the gradient of {} is not finite", where, result.diverged));
}

template<class T>
typename ParameterUpdate<T>::Result Trainer<T>::train_step(std::int64_t epoch, std::int64_t step) {
  prepare_pruned();
  if (has_run_plainly_ && !has_tried_to_record_ && may_record()) record_step(epoch);
  if (recorded_.exists()) {
    ScopedTimer const timer(grid_.world().instruments(), phases_, "step");
    recorded_.replay();
  } else {
    enqueue_step(epoch, phases_);
  }
  has_run_plainly_ = true;
  auto result = update_->finish(exec_);
  if (has_one_batch()) {
    result.sum = result.loss; // already a mean
    result.count = 1;
  }
  require_finite(result, epoch, step);
  phases_.read_stamps();
  return result;
}

template<class T>
std::optional<runtime::EpochRecord> Trainer<T>::train_epoch(TrainProgress& progress,
                                                            StopRequest const& should_stop) {
  runtime::EpochRecord record;
  record.epoch = progress.epoch;
  phases_.clear();
  step_losses_.clear();

  ORTHANT_REQUIRE(progress.step < batches_.num_steps(), "a start at step ", progress.step, " of an epoch of ",
                  batches_.num_steps());
  wait_for_default_queue();
  auto& clock = grid_.world().instruments().clock;
  std::optional<runtime::RunClock::EqualStep> equal_step;
  if (batches_.num_steps() == 1 && batches_.has_equal_batches()) equal_step.emplace(clock, steady_work_);
  auto const begin = clock.now();
  while (true) {
    auto result = train_step(progress.epoch, progress.step);
    record.grad_norms = std::move(result.norms);
    record.grad_norm = result.norm;
    record.learning_rate = result.learning_rate;
    step_losses_.push_back(result.count == 0 ? 0.0 : result.sum / result.count);
    progress.loss_sum += result.sum;
    progress.loss_count += result.count;
    if (++progress.step == batches_.num_steps()) break;
    if (should_stop && should_stop(progress)) return std::nullopt;
  }
  record.loss = progress.loss_count == 0 ? 0.0 : progress.loss_sum / progress.loss_count;
  record.seconds = std::chrono::duration<double>(clock.now() - begin).count();
  record.phases = phases_.without_clock();
  return record;
}

template<class T>
runtime::EpochRecord Trainer<T>::train_epoch(std::int64_t epoch) {
  TrainProgress progress;
  progress.begin_epoch(epoch);
  return train_epoch(progress, {}).value();
}

template<class T>
Scores Trainer<T>::evaluate() {
  // Uses the default queue, not the trainer's: Kokkos has scratch memory per instance, and the memory of a recorded step must not grow.
  DefaultExec const exec;
  runtime::PhaseTimes phases; // evaluation does not count as a part of an epoch
  auto const& logits = network_.forward(exec, Pass::evaluation, 0, phases);
  auto scores = objective_.evaluate(exec, logits);
  if (judge_) judge_(logits, scores);
  return scores;
}

template<class T>
std::vector<std::int64_t> Trainer<T>::dead_layers() {
  return network_.dead_layers(DefaultExec());
}

template<class T>
TrainResult Trainer<T>::run(std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                            TrainProgress const& start, StopRequest const& should_stop) {
  batches_.start_at(start.epoch, start.step);
  EpochWork work;
  work.train = [this](TrainProgress& progress, StopRequest const& stop) {
    return train_epoch(progress, stop);
  };
  work.evaluate = [this] { return evaluate(); };
  work.dead_layers = [this] { return dead_layers(); };
  work.require_bounded_parameters = [this] { update_->require_bounded_parameters(exec_); };
  work.set_rate_reduction = [this](double reduction) { update_->set_rate_reduction(reduction); };
  return run_epochs(grid_, settings_, work, on_epoch, start, should_stop);
}

template class Trainer<float>;
template class Trainer<double>;

} // namespace orthant::models
