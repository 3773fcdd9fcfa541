// SPDX-License-Identifier: Apache-2.0
#include "cli/training/train_minibatch.hpp"

#include "cli/options/gemm_options.hpp"
#include "cli/training/decisions.hpp"
#include "cli/training/memory_check.hpp"
#include "cli/training/train_full.hpp"
#include "cli/training/train_run.hpp"
#include "cli/training/weight_files.hpp"
#include "models/batches/mini_batch.hpp"
#include "models/files/gcn_weights.hpp"
#include "models/gnn/memory_estimate.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <csignal>

namespace orthant::cli {
namespace {

models::MiniBatchSettings batches_of(TrainOptions const& o) {
  models::MiniBatchSettings settings;
  settings.batch_size = o.batch;
  settings.num_accumulated = o.accumulate;
  if (o.batch_train_fraction > 0) settings.train_fraction = o.batch_train_fraction;
  settings.num_full_epochs = o.finish_full;
  settings.prefetch = o.overlap != "off" ? models::Prefetch::next_batch : models::Prefetch::none;
  return settings;
}

void describe_batches(Context const& context, pmm::ProcessGrid const& grid,
                      sampling::VertexSampler const& sampler, TrainOptions const& o) {
  auto const num_groups = grid.size(pmm::Axis::data);
  say(context,
      "batches   {} of at most {} vertices an epoch, {} step{} of {} group{} x {}: effective batch {}\n",
      sampler.num_batches(), o.batch, sampler.num_steps(), sampler.num_steps() == 1 ? "" : "s", num_groups,
      num_groups == 1 ? "" : "s", o.accumulate, num_groups * o.accumulate * o.batch);
}

template<class T>
int train(TrainOptions const& options, Context& context) {
  auto const& world = context.world();
  MemoryMeter const meter;
  auto model_settings = model_of(options);
  pmm::set_gemm_threads(1);
  pmm::ProcessGrid const grid(world, pmm::parse_grid(options.grid, world.size()));
  WeightFiles weight_files(context, options);
  Checkpoints checkpoints(context, options);
  if (!options.init_from.empty())
    models::require_architecture(world, options.init_from, models::architecture_of(model_settings));

  auto const store = open_graph_of(world, options);
  weight_files.judge_by(store);
  models::require_weighable(store, models::parse_class_weights(options.class_weights));
  auto const settings = training_of(options);
  auto const batches = batches_of(options);
  // Weights weigh more against the rows of a batch.
  auto const of_batch = models::facts_of_batch(store.facts(), batches.batch_size);
  model_settings.schedule = schedule_of(grid, of_batch, model_settings, options);
  model_settings.hidden_axes = hidden_axes(grid, options.overlap);
  auto const has_full_graph = settings.eval_every > 0 || batches.num_full_epochs > 0;
  auto const plan = models::plan_gcn(store, model_settings);
  checkpoints.identify(grid, store);
  auto estimate =
      models::estimate_mini_batch_memory<T>(grid, store.facts(), plan, model_settings, settings.optimizer,
                                            {batches.batch_size, batches.num_accumulated, has_full_graph});
  if (checkpoints.is_on() || weight_files.keeps_best())
    estimate.checkpoints = host_copy_bytes<T>(grid, plan, model_settings, checkpoints.is_on());
  if (!options.force_memory) require_memory(context, "train", estimate);
  models::MiniBatchGcn<T> trainer(grid, store, model_settings, settings, batches);
  if (!options.init_from.empty()) models::load_weights(grid, options.init_from, trainer.parameters());

  ResumableRun<T> run(checkpoints, grid, store, trainer.parameters(), trainer.update(),
                      weight_files.keeps_best());

  begin_metrics(context, grid, options, model_settings.schedule, checkpoints);
  describe_graph(context, store);
  describe_grid(context, grid, model_settings.schedule);
  explain_decisions(context, grid, of_batch, model_settings, plan, options);
  auto const predicted = runtime::all_reduced(world, estimate.peak(), runtime::Reduction::max);
  say(context, "memory    {} per rank predicted\n", bytes_text(predicted));
  describe_batches(context, grid, trainer.sampler(), options);
  say(context, "model     {}, {} layers, {} parameters, {}\n\n", options.model, options.layers,
      trainer.num_parameters(), options.compute_dtype);

  EpochLines lines(context, options);
  auto const result = run.run(
      trainer, [&](runtime::EpochRecord const& epoch) { lines.write(epoch); },
      models::record_of(model_settings));
  lines.finish();
  if (!run.stopped_by().empty()) {
    // A scheduler that ends a job gives it little time; somebody who asks for its end wants what there is.
    Stop stop{run.stopped_by(), run.stop_signal()};
    stop.has_saved_weights = (!options.save_weights.empty() || run.best() != nullptr) &&
                             (stop.signal == SIGINT || options.checkpoint.empty());
    if (stop.has_saved_weights)
      weight_files.save(grid, trainer.parameters(), record_of_weights(model_settings, store.facts()),
                        run.best());
    return end_stopped(context, result, stop, options);
  }

  weight_files.save(grid, trainer.parameters(), record_of_weights(model_settings, store.facts()), run.best());
  return end_complete(context, result, meter, {predicted, std::nullopt});
}

} // namespace

int train_minibatch(TrainOptions const& options, Context& context) {
  require_fitting_types(options);
  require_prunable(options);
  choose_gemm_math(options.gemm_math, options.compute_dtype);
  choose_gemm_libraries(context, options.gemm_table);
  return options.compute_dtype == "fp32" ? train<float>(options, context) : train<double>(options, context);
}

} // namespace orthant::cli
