// SPDX-License-Identifier: Apache-2.0
#include "cli/training/train_modes.hpp"

#include "cli/options/option_text.hpp"
#include "cli/options/shared_options.hpp"
#include "cli/training/choose_grid.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/stragglers.hpp"
#include "cli/training/train_settings.hpp"
#include "cli/training/weight_files.hpp"
#include "graph/graph_source.hpp"
#include "models/gnn/batches/batch_plan.hpp"
#include "models/gnn/batches/mini_batch.hpp"
#include "models/gnn/batches/network_batches.hpp"
#include "models/gnn/files/network_weights.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/operands/graph_operands.hpp"
#include "models/training/vertex_loss.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/machine/binding.hpp"
#include "runtime/machine/process_memory.hpp"

#include <algorithm>

namespace orthant::cli {
namespace {

/// --batch auto divides the graph into this number of batches. If vertices keep fewer neighbors than the last of these numbers, training
/// learns less than on the full graph: tests/bench/results/2026-11-22-samplers.md.
constexpr std::int64_t auto_parts = 2;
constexpr std::int64_t auto_parts_of_clusters = 16;
constexpr double least_kept_neighbours = 5;

/// True if a second thread samples batches ahead. For `overlap` "auto" only if cores are free, since it would interrupt a core that
/// computes. Hosts with a device and emulated machines are assumed to have free cores.
bool samples_ahead(runtime::Communicator const& world, std::string const& overlap) {
  if (overlap != "auto") return overlap == "on";
  if (!pmm::runs_on_host || world.instruments().clock.machine() != nullptr) return true;
  return runtime::all_reduced(world, runtime::has_spare_cores(world) ? 1 : 0, runtime::Reduction::min) == 1;
}

void describe_batches(Context const& context, pmm::ProcessGrid const& grid, sampling::Sampler const& sampler,
                      models::MiniBatchSettings const& batches) {
  auto const num_groups = grid.size(pmm::Axis::data);
  say(context, "batches   {} of {} {} vertices an epoch, {} step{} of {} group{} x {}: effective batch {}\n",
      sampler.num_batches(), batches.kind == models::SamplerKind::clusters ? "about" : "at most",
      batches.batch_size, sampler.num_steps(), sampler.num_steps() == 1 ? "" : "s", num_groups,
      num_groups == 1 ? "" : "s", batches.num_accumulated,
      num_groups * batches.num_accumulated * batches.batch_size);
}

/// Prints how many neighbors a vertex keeps in a batch, and warns if these are few.
void describe_kept_neighbours(Context const& context, graph::StoreFacts const& facts, double num_kept,
                              models::MiniBatchSettings const& batches) {
  auto const mean_degree =
      static_cast<double>(facts.num_entries - facts.num_self_loops) / static_cast<double>(facts.num_vertices);
  say(context, "edges     a vertex keeps {:.1f} of its {:.1f} neighbors on average\n", num_kept, mean_degree);
  if (num_kept >= least_kept_neighbours || num_kept > mean_degree / 2 || !context.world().is_root()) return;
  context.log().warn(
      "batches keep {:.1f} of {:.1f} neighbors of a vertex, too few to learn from: give a larger "
      "--batch{}",
      num_kept, mean_degree,
      batches.kind == models::SamplerKind::clusters
          ? ""
          : ", or --sampler clusters with a store of partition --clusters");
}

/// Weights of the edges in a batch, for the metrics.
std::string_view edges_of(TrainOptions const& options, models::MiniBatchSettings const& batches) {
  auto const traits = models::traits_of(models::parse_model(options.model), aggregator_of(options));
  if (traits.attention) return "attention";
  if (traits.takes_maximum) return "maximum";
  if (traits.has_relations) return "relations";
  return batches.edges == sampling::BatchEdges::renormalize ? "renormalize" : "rescale";
}

/// Resolved values of --batch and --batch-edges, for the metrics.
nlohmann::ordered_json record_of_batches(TrainOptions const& options, sampling::Sampler const& sampler,
                                         models::MiniBatchSettings const& batches, double num_kept) {
  return {{"sampler", options.sampler},
          {"edges", edges_of(options, batches)},
          {"vertices", batches.batch_size},
          {"number", sampler.num_batches()},
          {"kept_neighbors", num_kept}};
}

template<class T>
TrainEnd train(TrainOptions const& options, Context& context) {
  auto const& world = context.world();
  MemoryMeter const meter;
  auto model_settings = model_of(options);
  pmm::set_gemm_threads(1);
  auto const shape = pmm::parse_grid(options.grid, world.size());
  auto const machine = machine_of(world, options.machine);
  auto weight_files = weight_files_of(context, options);
  Checkpoints checkpoints(context, options, {"epoch", options.epochs, options.patience}, options);

  auto opened = open_measured_graph(world, options);
  auto& store = opened.store;
  models::use_operator(store, model_settings);
  if (!options.init_from.empty())
    models::require_architecture(world, options.init_from, architecture_of_init(options, model_settings));
  require_operator(context, store, model_settings, precision_of<T>,
                   batch_edges_of(options, store.facts()) == "renormalize" ? graph::Neighborhood::within_batch
                                                                           : graph::Neighborhood::whole);
  if (is_first_seed(options)) warn_of_data(context, store);
  judge_by(weight_files, options, store);
  auto const settings = training_of(options);
  auto batches = mini_batches_of(options, shape, store.facts());
  batches.prefetch =
      samples_ahead(world, options.overlap) ? models::Prefetch::next_batch : models::Prefetch::none;
  auto const sizes = models::sizes_of(batches, settings.eval_every > 0);
  auto const seconds = models::mini_batch_seconds(store.facts(), model_settings, sizes, machine);
  auto const [choice, measured] = choose_by_mini_batch_steps<T>(
      {context, store, model_settings, settings, hidden_axes_of(options), options.measure_top,
       options.force_memory ? 0 : memory_of_rank(context)},
      models::rank_grids(
          {world.size(), options.grid, std::string(models::open_schedules(model_settings, options.schedule))},
          seconds),
      batches, models::num_steps_of(store.facts().num_vertices, sizes, shape.data));
  // Exists until the end of the first epoch. Without it, a process on 2 ranks takes 51 MiB instead of 49.
  std::optional<runtime::MappedArrays> mapped(std::in_place);
  pmm::ProcessGrid const grid(world, choice.shape);
  model_settings.schedule = choice.schedule;
  model_settings.hidden_axes = hidden_axes(grid, options.overlap);
  auto const plan = models::plan_network(store, model_settings);
  identify(checkpoints, options, grid, store);
  auto estimate = models::estimate_mini_batch_memory<T>(grid, store.facts(), plan, model_settings,
                                                        settings.optimizer, sizes);
  if (checkpoints.is_on() || weight_files.keeps_best())
    estimate.checkpoints = host_copy_bytes<T>(grid, plan, model_settings, checkpoints.is_on());
  if (settings.finds_roc_auc) estimate.judging = models::bytes_of_areas(grid, store.facts(), plan.logits());
  if (!options.force_memory) require_memory(context, "train", estimate);
  models::MiniBatchNetwork<T> trainer(grid, store, model_settings, settings, batches);
  if (!options.init_from.empty())
    models::load_weights(grid, options.init_from, trainer.parameters(), options.init_skip);

  ResumableRun<T> run(checkpoints, grid, trainer.parameters(), trainer.update(), weight_files.keeps_best());

  auto const num_kept = trainer.num_kept_neighbours();
  nlohmann::ordered_json facts{{"batches", record_of_batches(options, trainer.sampler(), batches, num_kept)}};
  if (!measured.is_null()) facts["measured"] = measured;
  begin_metrics(context, grid, options, model_settings.schedule, checkpoints, facts);
  describe_graph(context, store);
  describe_grid(context, grid, model_settings.schedule);
  explain_decisions(context, grid, seconds, model_settings, plan, options);
  auto const predicted =
      runtime::all_reduced(world, peak_with_graph(estimate, opened.in_memory), runtime::Reduction::max);
  say(context, "memory    {} per rank predicted\n", bytes_text(predicted));
  describe_batches(context, grid, trainer.sampler(), batches);
  if (world.is_root())
    context.log().debug("batches are sampled {}", trainer.samples_by_kernels() ? "by kernels, beside the step"
                                                  : sizes.prefetches
                                                      ? "ahead, on a second thread"
                                                      : "in line: no core is free, or --overlap off");
  describe_kept_neighbours(context, store.facts(), num_kept, batches);
  say(context, "model     {}, {} layers, {} parameters, {}\n\n", options.model, model_settings.num_layers(),
      trainer.num_parameters(), options.compute_dtype);

  EpochLines lines(context, options);
  Stragglers stragglers(context, grid, options.stragglers, "epoch");
  auto const result = run.run(
      trainer,
      [&](runtime::EpochRecord const& epoch) {
        mapped.reset(); // the arrays of batches have their final size
        lines.write(epoch);
        stragglers.add(epoch);
      },
      models::record_of(model_settings));
  lines.finish();
  stragglers.report();
  auto const save = [&] {
    weight_files.save(grid, trainer.parameters(), record_of_weights(model_settings, store.facts()),
                      run.best());
  };
  if (!run.stopped_by().empty()) {
    auto const stop = stop_of(run, weight_files, options);
    if (stop.saves_weights) save();
    return {end_stopped(context, result, stop, options)};
  }

  save();
  return {end_complete(context, result, options, meter, {predicted, std::nullopt}), result.progress};
}

} // namespace

std::string batch_edges_of(TrainOptions const& options, graph::StoreFacts const& facts) {
  if (options.batch_edges != "auto") return options.batch_edges;
  // Without normalization there are no degrees by which edges could be renormalized, and with negative weights those within a batch may
  // not be positive. Batches of several strata are corrected by factors.
  auto const may_be_negative = facts.is_weighted && facts.num_negative_weights.value_or(1) > 0;
  auto const normalizes = facts.normalization != graph::Normalization::none && !may_be_negative;
  auto const has_strata = options.sampler == "degree" || options.batch_train_fraction > 0;
  return normalizes && !has_strata ? "renormalize" : "rescale";
}

std::int64_t batch_size_of(TrainOptions const& options, pmm::GridShape const& shape,
                           graph::StoreFacts const& facts) {
  if (options.batch != "auto") return parse_count("--batch", options.batch, graph::most_vertices);
  auto const wanted =
      options.sampler == "clusters" ? std::min(auto_parts_of_clusters, facts.num_clusters) : auto_parts;
  auto const num_parts = std::max<std::int64_t>(wanted, shape.data);
  return std::max<std::int64_t>(2, sampling::divided_up(facts.num_vertices, num_parts));
}

models::MiniBatchSettings mini_batches_of(TrainOptions const& o, pmm::GridShape const& shape,
                                          graph::StoreFacts const& facts) {
  models::MiniBatchSettings settings;
  settings.kind = models::parse_sampler(o.sampler);
  settings.edges = models::batch_edges_for(model_of(o), models::parse_batch_edges(batch_edges_of(o, facts)));
  settings.place = models::parse_batch_place(o.batch_source);
  settings.batch_size = batch_size_of(o, shape, facts);
  settings.num_accumulated = o.accumulate;
  if (o.batch_train_fraction > 0) settings.train_fraction = o.batch_train_fraction;
  settings.num_full_epochs = o.finish_full;
  return settings;
}

TrainEnd train_minibatch(TrainOptions const& options, Context& context) {
  require_fitting_types(options);
  choose_gemm_math(options.gemm_math, options.compute_dtype);
  choose_gemm_libraries(context, options.gemm_table);
  return options.compute_dtype == "fp32" ? train<float>(options, context) : train<double>(options, context);
}

} // namespace orthant::cli
