// SPDX-License-Identifier: Apache-2.0
#include "models/batches/mini_batch.hpp"

#include "runtime/comm/same_value.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace orthant::models {
namespace {

using Clock = std::chrono::steady_clock;
using pmm::Axis;
using runtime::ScopedTimer;

/// Refuses what cannot be trained in batches before anything is read.
void require_trainable(pmm::ProcessGrid const& grid, GcnSettings const& model, TrainSettings const& settings,
                       MiniBatchSettings const& batches) {
  if (model.trains_features)
    runtime::throw_user(
        "--trainable-features trains every vertex in every step, which mini-batches do not; leave "
        "it out or use --mode full");
  for (auto const axis : pmm::spatial_axes)
    if (batches.batch_size < grid.size(axis))
      runtime::throw_user(
          "a batch of {} vertices for {} ranks along {}; give --batch {} or more, or another --grid",
          batches.batch_size, grid.size(axis), pmm::name_of(axis), grid.size(axis));
  if (batches.num_full_epochs > settings.num_epochs)
    runtime::throw_user("--finish-full {} of {} epochs; give at most as many as --epochs",
                        batches.num_full_epochs, settings.num_epochs);
}

sampling::VertexSamplerOptions sampling_of(pmm::ProcessGrid const& grid, GcnSettings const& model,
                                           MiniBatchSettings const& batches) {
  return {.seed = model.seed,
          .batch_size = batches.batch_size,
          .num_groups = grid.size(Axis::data),
          .num_accumulated = batches.num_accumulated,
          .train_fraction = batches.train_fraction};
}

/// Dropout of a batch is keyed by this: no two batches of a run have one, and full-graph epochs (their
/// number) have others.
std::uint64_t dropout_step(std::int64_t epoch, std::int64_t batch) {
  return static_cast<std::uint64_t>(batch + 1) << 32 | static_cast<std::uint64_t>(epoch);
}

} // namespace

template<class T>
MiniBatchTrainer<T>::MiniBatchTrainer(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                      GcnSettings const& model_settings, TrainSettings const& settings,
                                      MiniBatchSettings const& batch_settings)
    : grid_(grid),
      settings_(settings),
      batch_settings_(batch_settings),
      sampler_((require_trainable(grid, model_settings, settings, batch_settings),
                sampling_of(grid, model_settings, batch_settings)),
               store.facts().num_vertices, store.facts().split_sizes[0]),
      plan_(plan_gcn(store, model_settings)),
      parameters_(std::make_shared<GcnParameters<T>>(grid, plan_, model_settings)),
      full_loss_(make_vertex_loss<T>(grid, store, plan_.logits())),
      batch_loss_(full_loss_),
      nominal_count_(std::max<std::int64_t>(1, full_loss_.num_rows(0) / sampler_.num_steps())),
      network_(grid, model_settings, parameters_),
      gradient_sum_(grid, parameters_->list(), batch_settings.num_accumulated),
      update_(std::make_shared<ParameterUpdate<T>>(grid, parameters_->list(), settings)) {
  ORTHANT_ASSERT_SAME(grid.world(), model_settings.seed);
  ORTHANT_ASSERT_SAME(grid.world(), batch_settings.batch_size);
  ORTHANT_ASSERT_SAME(grid.world(), num_parameters());
  phases_.measure_on(runtime::DeviceClock::create(runtime::compat::native_stream(exec_)));
  InputFeatures<T> features;
  if (settings.eval_every > 0 || batch_settings.num_full_epochs > 0) {
    auto operands = make_full_graph_operands<T>(grid, store, plan_, model_settings);
    features = operands.features;
    full_ = std::make_unique<FullGraph>(grid, model_settings, parameters_, std::move(operands), full_loss_,
                                        settings, update_);
  } else {
    features = read_input_features<T>(grid, store, plan_.features(), model_settings.feature_norm);
  }
  source_ = std::make_unique<BatchSource<T>>(grid, store, sampler_, plan_, features,
                                             read_vertex_targets(grid, store, plan_.logits()));
}

template<class T>
void MiniBatchTrainer<T>::add_batch(std::int64_t epoch, std::int64_t k) {
  auto& instruments = grid_.world().instruments();
  auto& batch = queue_->next(instruments, phases_);
  {
    ScopedTimer const timer(instruments, phases_, "bind");
    network_.rebind(source_->operands(batch));
    batch_loss_.rebind(network_.plan().logits());
    batch_loss_.set_targets(source_->targets(batch), {batch.splits, batch.classes});
  }
  auto const& logits =
      network_.forward(exec_, Pass::training, dropout_step(epoch, batch.sample.index), phases_);
  {
    ScopedTimer const timer(instruments, phases_, "loss");
    auto const& numbers = update_->numbers();
    batch_loss_.loss_and_gradient(exec_, logits, network_.logits_gradient(), nominal_count_, numbers.loss(),
                                  gradient_scale());
    numbers.add_to_sums(exec_, k, static_cast<double>(nominal_count_),
                        static_cast<double>(batch_loss_.num_rows(0)));
  }
  network_.backward(exec_, phases_);
  gradient_sum_.add(exec_, k);
}

template<class T>
typename ParameterUpdate<T>::Result MiniBatchTrainer<T>::train_step(std::int64_t epoch, std::int64_t step) {
  for (std::int64_t k = 0; k < batch_settings_.num_accumulated; ++k)
    add_batch(epoch, k);
  {
    ScopedTimer const timer(grid_.world().instruments(), phases_, "data");
    runtime::all_reduce(exec_, grid_.along(Axis::data), update_->numbers().sums());
    gradient_sum_.finish(exec_);
  }
  // Gradients were divided by the nominal count.
  update_->run(exec_, nominal_count_, phases_, gradient_scale());
  auto result = update_->finish(exec_);
  phases_.read_stamps();
  if (!std::isfinite(result.sum))
    throw_loss_not_finite(fmt::format("epoch {}, step {}", epoch, step + 1), result.sum,
                          network_.first_layer_not_finite(exec_));
  if (!result.diverged.empty())
    throw_diverged(
        fmt::format("epoch {}, step {}: the gradient of {} is not finite", epoch, step + 1, result.diverged));
  return result;
}

template<class T>
std::optional<runtime::EpochRecord> MiniBatchTrainer<T>::train_epoch(TrainProgress& progress,
                                                                     StopRequest const& should_stop) {
  runtime::EpochRecord record;
  record.epoch = progress.epoch;
  phases_.clear();
  step_losses_.clear();
  auto const begin = Clock::now();

  while (true) {
    auto result = train_step(progress.epoch, progress.step);
    record.grad_norms = std::move(result.norms);
    step_losses_.push_back(result.count == 0 ? 0.0 : result.sum / result.count);
    progress.loss_sum += result.sum;
    progress.loss_count += result.count;
    if (++progress.step == sampler_.num_steps()) break;
    if (should_stop && should_stop(progress)) return std::nullopt;
  }
  record.loss = progress.loss_count == 0 ? 0.0 : progress.loss_sum / progress.loss_count;
  record.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  record.phases = phases_.without_clock();
  return record;
}

template<class T>
Scores MiniBatchTrainer<T>::evaluate() {
  ORTHANT_REQUIRE(full_, "there is no full graph to evaluate on: eval_every is 0");
  return full_->trainer.evaluate();
}

template<class T>
TrainResult MiniBatchTrainer<T>::run(std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                                     TrainProgress const& start, StopRequest const& should_stop) {
  ORTHANT_REQUIRE(start.step < sampler_.num_steps(), "a start at step ", start.step, " of ",
                  sampler_.num_steps());
  auto const num_sampled_epochs = settings_.num_epochs - batch_settings_.num_full_epochs;
  queue_ = std::make_unique<BatchQueue<T>>(*source_, sampler_, grid_.coordinate(Axis::data),
                                           batch_settings_.num_accumulated, num_sampled_epochs,
                                           batch_settings_.prefetch, start.epoch, start.step);
  EpochWork work;
  work.train = [&](TrainProgress& progress, StopRequest const& stop) {
    return progress.epoch <= num_sampled_epochs ? train_epoch(progress, stop)
                                                : full_->trainer.train_epoch(progress.epoch);
  };
  work.evaluate = [&] { return evaluate(); };
  work.require_bounded_parameters = [&] { update_->require_bounded_parameters(exec_); };
  return run_epochs(grid_, settings_, work, on_epoch, start, should_stop);
}

template class MiniBatchTrainer<float>;
template class MiniBatchTrainer<double>;

} // namespace orthant::models
