// SPDX-License-Identifier: Apache-2.0
#include "cli/training/choose_grid.hpp"

#include "models/gnn/network/memory_estimate.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/ranges.h>
#include <limits>
#include <span>

namespace orthant::cli {
namespace {

std::string text_of(nlohmann::ordered_json const& name) {
  std::vector<std::string> words;
  for (auto const& [key, value] : name.items())
    words.push_back(value.get<std::string>());
  return fmt::format("{}", fmt::join(words, " "));
}

/// True if the training fits in memory on the rank that needs most; same result on all ranks. Collective.
bool fits(MeasuredTraining const& training, models::MemoryEstimate const& estimate) {
  auto const needed = pmm::runs_on_host ? estimate.peak() : estimate.arrays;
  auto const most = runtime::all_reduced(training.context.world(), needed, runtime::Reduction::max);
  return training.memory == 0 || most <= training.memory;
}

/// `steps_of(grid, settings)`: trains one choice and returns the seconds of its steps.
template<class StepsOf>
ChosenGrid choose(MeasuredTraining const& training, std::vector<models::GridChoice> choices,
                  std::int64_t num_steps, StepsOf const& steps_of) {
  // A grid is impossible if a batch has fewer vertices than an axis has ranks.
  auto const is_impossible = [](models::GridChoice const& choice) { return !std::isfinite(choice.seconds); };
  if (!is_impossible(choices.front())) std::erase_if(choices, is_impossible);
  choices.resize(
      std::min(choices.size(), static_cast<std::size_t>(std::max<std::int64_t>(1, training.num_candidates))));
  if (choices.size() == 1) return {choices.front(), nullptr};
  std::vector<Candidate> candidates;
  for (auto const& [shape, schedule, seconds] : choices)
    candidates.push_back({{{"grid", shape.to_string()}, {"schedule", std::string(models::name_of(schedule))}},
                          seconds / static_cast<double>(num_steps)});
  auto const measured = measure(training.context, candidates, [&](std::size_t i) {
    pmm::ProcessGrid const grid(training.context.world(), choices[i].shape);
    auto model = training.model;
    model.schedule = choices[i].schedule;
    model.hidden_axes = training.hidden_axes(grid);
    return steps_of(grid, model);
  });
  return {choices[measured.best], measured.record};
}

} // namespace

Measured measure(Context const& context, std::vector<Candidate> const& candidates,
                 std::function<std::vector<double>(std::size_t)> const& steps_of) {
  auto const& world = context.world();
  Measured measured;
  auto least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    auto steps = steps_of(i);
    if (steps.empty()) continue;
    runtime::all_reduce(runtime::host, world, std::span(steps), runtime::Reduction::max);
    auto const seconds = std::ranges::min(steps);
    auto record = candidates[i].name;
    record["seconds"] = seconds;
    record["predicted_seconds"] = candidates[i].predicted_seconds;
    measured.record.push_back(record);
    if (world.is_root())
      context.log().info("measured {}: {:.4g} s per step, {:.4g} s predicted", text_of(candidates[i].name),
                         seconds, candidates[i].predicted_seconds);
    if (seconds < least) measured.best = i;
    least = std::min(least, seconds);
  }
  if (world.is_root()) context.log().info("the fastest is {}", text_of(candidates[measured.best].name));
  return measured;
}

models::StopRequest StepClock::stop() {
  last_ = clock_.now();
  return [this](models::TrainProgress const&) {
    auto const now = clock_.now();
    seconds_.push_back(std::chrono::duration<double>(now - last_).count());
    last_ = now;
    return std::ssize(seconds_) >= num_measured_steps;
  };
}

template<class T>
ChosenGrid choose_by_full_graph_steps(MeasuredTraining const& training,
                                      std::vector<models::GridChoice> choices) {
  auto const& store = training.store;
  auto const steps_of = [&](pmm::ProcessGrid const& grid, models::NetworkSettings const& model) {
    auto const plan = models::plan_network(store, model);
    std::vector<double> seconds;
    if (!fits(training,
              models::estimate_memory<T>(grid, store.facts(), plan, model, training.settings.optimizer)))
      return seconds;
    auto loss = models::make_vertex_loss<T>(grid, store, plan.logits(), training.settings.loss);
    models::GraphNetwork<T> network(grid, store, model);
    models::Trainer<T> trainer(grid, network, loss, training.settings);
    for (std::int64_t epoch = 1; epoch <= num_measured_steps; ++epoch)
      seconds.push_back(trainer.train_epoch(epoch).seconds);
    return seconds;
  };
  return choose(training, std::move(choices), 1, steps_of);
}

template<class T>
ChosenGrid choose_by_mini_batch_steps(MeasuredTraining const& training,
                                      std::vector<models::GridChoice> choices,
                                      models::MiniBatchSettings const& batches, std::int64_t num_steps) {
  auto const& store = training.store;
  auto settings = training.settings;
  settings.num_epochs = num_measured_steps;
  settings.eval_every = 0;
  settings.optimizer.schedule = {}; // warm-up and decay need the length of the training
  auto only_batches = batches;
  only_batches.num_full_epochs = 0;
  auto const steps_of = [&](pmm::ProcessGrid const& grid, models::NetworkSettings const& model) {
    auto const sizes = models::sizes_of(only_batches, false);
    auto const estimate = models::estimate_mini_batch_memory<T>(
        grid, store.facts(), models::plan_network(store, model), model, settings.optimizer, sizes);
    if (!fits(training, estimate)) return std::vector<double>();
    models::MiniBatchNetwork<T> trainer(grid, store, model, settings, only_batches);
    StepClock clock(training.context.world().instruments().clock);
    std::ignore = trainer.run([](runtime::EpochRecord const&) {}, {}, clock.stop());
    return clock.seconds();
  };
  return choose(training, std::move(choices), num_steps, steps_of);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template ChosenGrid choose_by_full_graph_steps<T>(MeasuredTraining const&,                                 \
                                                    std::vector<models::GridChoice>);                        \
  template ChosenGrid choose_by_mini_batch_steps<T>(MeasuredTraining const&,                                 \
                                                    std::vector<models::GridChoice>,                         \
                                                    models::MiniBatchSettings const&, std::int64_t);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::cli
