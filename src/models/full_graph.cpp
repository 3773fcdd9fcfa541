// SPDX-License-Identifier: Apache-2.0
#include "models/full_graph.hpp"

#include <chrono>
#include <cmath>

namespace orthant::models {
namespace {

using Clock = std::chrono::steady_clock;
using runtime::ScopedTimer;

} // namespace

template<class T>
FullGraphTrainer<T>::FullGraphTrainer(pmm::ProcessGrid const& grid, Gcn<T>& model, pmm::RowLoss<T>& loss,
                                      TrainSettings const& settings,
                                      std::shared_ptr<ParameterUpdate<T>> update)
    : grid_(grid),
      model_(model),
      loss_(loss),
      settings_(settings),
      update_(update ? std::move(update)
                     : std::make_shared<ParameterUpdate<T>>(grid, model.parameters(), settings)) {}

template<class T>
runtime::EpochRecord FullGraphTrainer<T>::train_epoch(std::int64_t epoch) {
  auto& instruments = grid_.world().instruments();
  runtime::EpochRecord record;
  record.epoch = epoch;
  phases_.clear();
  auto const begin = Clock::now();

  auto const& logits =
      model_.forward(exec_, Gcn<T>::Pass::training, static_cast<std::uint64_t>(epoch), phases_);
  {
    ScopedTimer const timer(instruments, phases_, "loss");
    record.loss = loss_.loss_and_gradient(exec_, logits, model_.logits_gradient());
  }
  if (!std::isfinite(record.loss))
    throw_loss_not_finite(fmt::format("epoch {}", epoch), record.loss, model_.first_layer_not_finite(exec_));
  model_.backward(exec_, phases_);
  record.grad_norms = update_->run(exec_, 1.0, phases_);
  record.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  record.phases = phases_;
  return record;
}

template<class T>
Scores FullGraphTrainer<T>::evaluate() {
  runtime::PhaseTimes phases; // evaluation is no part of an epoch
  auto const& logits = model_.forward(exec_, Gcn<T>::Pass::evaluation, 0, phases);
  return loss_.evaluate(exec_, logits);
}

template<class T>
TrainResult FullGraphTrainer<T>::run(std::function<void(runtime::EpochRecord const&)> const& on_epoch) {
  return run_epochs(
      grid_, settings_,
      {[this](std::int64_t epoch) { return train_epoch(epoch); }, [this] { return evaluate(); }}, on_epoch);
}

template class FullGraphTrainer<float>;
template class FullGraphTrainer<double>;

} // namespace orthant::models
