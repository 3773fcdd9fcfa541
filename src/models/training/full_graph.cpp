// SPDX-License-Identifier: Apache-2.0
#include "models/training/full_graph.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/device/kokkos_compat_device.hpp"

#include <chrono>
#include <cmath>
#include <utility>

namespace orthant::models {
namespace {

using Clock = std::chrono::steady_clock;
using runtime::ScopedTimer;

/// All that a step of this grid uses: the first one, which was not recorded, has made them.
std::vector<runtime::Communicator const*> communicators_of(pmm::ProcessGrid const& grid) {
  std::vector<runtime::Communicator const*> all;
  for (auto const& [axes, comm] : grid.communicators())
    all.push_back(&comm);
  return all;
}

/// Nothing passes through the host: there is nobody to talk to, or device memory is sent by the device. Where
/// the group's ranks have a device each, so have those of every axis.
bool stays_on_device(pmm::ProcessGrid const& grid) {
  return grid.group().size() == 1 || grid.group().works_on_streams();
}

/// What others enqueued on the default instance, such as new weights, is there: queues know nothing of each
/// other.
void wait_for_default_queue() {
  runtime::compat::fence(runtime::DefaultExec(), "orthant::models::FullGraphTrainer/what others enqueued");
}

} // namespace

template<class T>
FullGraphTrainer<T>::FullGraphTrainer(pmm::ProcessGrid const& grid, Network<T>& model, pmm::RowLoss<T>& loss,
                                      TrainSettings const& settings,
                                      std::shared_ptr<ParameterUpdate<T>> update)
    : grid_(grid),
      model_(model),
      loss_(loss),
      settings_(settings),
      update_(update ? std::move(update)
                     : std::make_shared<ParameterUpdate<T>>(grid, model.parameters(), settings)),
      queue_(runtime::training_queue()),
      exec_(runtime::compat::instance_on<runtime::DefaultExec>(queue_.native())),
      recorded_(queue_) {
  phases_.measure_on(runtime::DeviceClock::create(queue_.native()));
}

template<class T>
void FullGraphTrainer<T>::enqueue_step(std::int64_t epoch, runtime::PhaseTimes& phases) {
  auto const& logits = model_.forward(exec_, Pass::training, static_cast<std::uint64_t>(epoch), phases);
  auto const scale = gradient_scale(model_.wire(), loss_, loss_.num_rows(0));
  {
    ScopedTimer const timer(grid_.world().instruments(), phases, "loss");
    loss_.loss_and_gradient(exec_, logits, model_.logits_gradient(), loss_.num_rows(0),
                            update_->numbers().loss(), scale);
  }
  model_.backward(exec_, phases);
  update_->run(exec_, {}, phases, scale);
}

template<class T>
bool FullGraphTrainer<T>::may_record() const {
  return settings_.uses_device_graph && queue_.native() != nullptr && model_.repeats_itself() &&
         stays_on_device(grid_);
}

template<class T>
void FullGraphTrainer<T>::record_step(std::int64_t epoch) {
  has_tried_to_record_ = true;
  runtime::PhaseTimes unused; // an event inside a graph tells no time
  auto const failure =
      recorded_.record(grid_.group(), communicators_of(grid_), [&] { enqueue_step(epoch, unused); });
  if (!failure.empty())
    grid_.world().instruments().log.warn_once("epochs are launched kernel by kernel, not as a graph: {}",
                                              failure);
}

template<class T>
runtime::EpochRecord FullGraphTrainer<T>::train_epoch(std::int64_t epoch) {
  runtime::EpochRecord record;
  record.epoch = epoch;
  phases_.clear();

  wait_for_default_queue();
  auto const begin = Clock::now();
  if (has_run_plainly_ && !has_tried_to_record_ && may_record()) record_step(epoch);
  if (recorded_.exists()) {
    ScopedTimer const timer(grid_.world().instruments(), phases_, "step");
    recorded_.replay();
  } else {
    enqueue_step(epoch, phases_);
  }
  has_run_plainly_ = true;
  auto const result = update_->finish(exec_);
  // The outputs of the forward pass are still there.
  if (!std::isfinite(result.loss))
    throw_loss_not_finite(fmt::format("epoch {}", epoch), result.loss, model_.first_layer_not_finite(exec_));
  if (!result.diverged.empty())
    throw_diverged(fmt::format("epoch {}: the gradient of {} is not finite", epoch, result.diverged));
  phases_.read_stamps();
  record.loss = result.loss;
  record.grad_norms = result.norms;
  record.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  record.phases = phases_.without_clock();
  return record;
}

template<class T>
Scores FullGraphTrainer<T>::evaluate() {
  // Not on the trainer's queue: Kokkos gives each its scratch memory, and that of a recorded step must not
  // grow.
  runtime::DefaultExec const exec;
  runtime::PhaseTimes phases; // evaluation is no part of an epoch
  auto const& logits = model_.forward(exec, Pass::evaluation, 0, phases);
  return loss_.evaluate(exec, logits);
}

template<class T>
TrainResult FullGraphTrainer<T>::run(std::function<void(runtime::EpochRecord const&)> const& on_epoch) {
  return run_epochs(grid_, settings_,
                    {[this](std::int64_t epoch) { return train_epoch(epoch); }, [this] { return evaluate(); },
                     [this] { update_->require_bounded_parameters(exec_); }},
                    on_epoch);
}

template class FullGraphTrainer<float>;
template class FullGraphTrainer<double>;

} // namespace orthant::models
