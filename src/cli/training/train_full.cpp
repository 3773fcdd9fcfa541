// SPDX-License-Identifier: Apache-2.0
#include "cli/training/train_modes.hpp"

#include "cli/options/shared_options.hpp"
#include "cli/training/choose_grid.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/stragglers.hpp"
#include "cli/training/train_settings.hpp"
#include "cli/training/weight_files.hpp"
#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"
#include "models/gnn/files/network_weights.hpp"
#include "models/gnn/links/link_loss.hpp"
#include "models/gnn/network/graph_network.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/operands/graph_operands.hpp"
#include "models/gnn/pruning/pruned_network.hpp"
#include "models/training/trainer.hpp"
#include "models/training/vertex_loss.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/machine/process_memory.hpp"

namespace orthant::cli {
namespace {

/// Rows that a training step keeps; nullopt for all. `auto` prunes if that promises a gain and fits in memory. Replaces `estimate` by the
/// estimate with pruning. Collective. Throws UserError if --prune on does not fit in memory.
template<class T>
std::optional<models::PrunedRows>
choose_pruning(Context const& context, TrainOptions const& options, pmm::ProcessGrid const& grid,
               graph::GraphStore const& store, models::NetworkPlan const& plan,
               models::NetworkSettings const& model, models::TrainSettings const& settings,
               models::MemoryEstimate& estimate) {
  auto const prune = models::parse_prune(options.prune);
  if (prune == models::Prune::off || model.norm == models::Norm::batch || models::predicts_links(model) ||
      !models::is_prunable(plan))
    return std::nullopt;
  auto const is_asked_for = prune == models::Prune::on;
  auto rows = models::find_pruned_rows(grid, store, plan);
  if (!is_asked_for && rows.share() > models::most_kept) return std::nullopt;
  auto const evaluates = settings.eval_every > 0 || !options.save_weights.empty();
  auto const pruned = models::estimate_pruned_memory<T>(grid, store.facts(), plan, model, settings.optimizer,
                                                        rows, evaluates, estimate);
  try {
    if (!options.force_memory) require_memory(context, "train --prune", pruned);
  } catch (runtime::UserError const&) {
    if (is_asked_for) throw;
    return std::nullopt;
  }
  estimate = pruned;
  return rows;
}

template<class T>
TrainEnd train_in_full(TrainOptions const& options, Context& context) {
  auto const& world = context.world();
  MemoryMeter const meter;
  auto model_settings = model_of(options);
  auto const settings = models::with_num_steps(training_of(options), options.epochs);
  pmm::set_gemm_threads(1);
  require_full_graph_grid(options.grid, world.size());
  auto const machine = machine_of(world, options.machine);
  auto weight_files = weight_files_of(context, options);
  Checkpoints checkpoints(context, options, {"epoch", options.epochs, options.patience}, options);

  auto opened = open_measured_graph(world, options);
  auto& store = opened.store;
  models::use_operator(store, model_settings);
  if (!options.init_from.empty())
    models::require_architecture(world, options.init_from, architecture_of_init(options, model_settings));
  require_operator(context, store, model_settings, precision_of<T>);
  if (is_first_seed(options)) warn_of_data(context, store);
  judge_by(weight_files, options, store);
  auto const seconds = models::full_graph_seconds(store.facts(), model_settings, machine);
  auto const chosen = choose_by_full_graph_steps<T>(
      {context, store, model_settings, settings, hidden_axes_of(options), options.measure_top,
       options.force_memory ? 0 : memory_of_rank(context)},
      models::rank_grids(
          {world.size(), options.grid, std::string(models::open_schedules(model_settings, options.schedule))},
          seconds));
  std::optional<runtime::MappedArrays> mapped(std::in_place); // kept until all arrays are allocated
  pmm::ProcessGrid const grid(world, chosen.choice.shape);
  model_settings.schedule = chosen.choice.schedule;
  model_settings.hidden_axes = hidden_axes(grid, options.overlap);
  auto const plan = models::plan_network(store, model_settings);
  identify(checkpoints, options, grid, store);
  auto estimate = models::estimate_memory<T>(grid, store.facts(), plan, model_settings, settings.optimizer);
  if (checkpoints.is_on() || weight_files.keeps_best())
    estimate.checkpoints = host_copy_bytes<T>(grid, plan, model_settings, checkpoints.is_on());
  if (models::predicts_links(model_settings))
    estimate.judging = models::bytes_of_link_scores(store.facts());
  else if (settings.finds_roc_auc)
    estimate.judging = models::bytes_of_areas(grid, store.facts(), plan.logits());
  if (!options.force_memory && options.prune != "on") require_memory(context, "train", estimate);
  describe_graph(context, store);
  describe_grid(context, grid, model_settings.schedule);
  explain_decisions(context, grid, seconds, model_settings, plan, options);
  auto pruned = choose_pruning<T>(context, options, grid, store, plan, model_settings, settings, estimate);
  auto const* const kept = pruned ? &*pruned : nullptr;
  auto const predicted =
      runtime::all_reduced(world, peak_with_graph(estimate, opened.in_memory), runtime::Reduction::max);
  say(context, "memory    {} per rank predicted\n", bytes_text(predicted));

  auto const run = [&](auto& model, auto& trainer, models::ParameterUpdate<T>& update,
                       pmm::NeededRows const* needed) {
    if (!options.init_from.empty())
      models::load_weights(grid, options.init_from, model.parameters(), options.init_skip);
    describe_gather(context, plan, needed);
    if (kept != nullptr) describe_pruning(context, *kept);
    say(context, "model     {}, {} layers, {} parameters, {}\n\n", options.model, model_settings.num_layers(),
        model.num_parameters(), options.compute_dtype);

    ResumableRun<T> resumable(checkpoints, grid, model.parameters(), update, weight_files.keeps_best());
    // No check can fail from here on, so files are written now.
    auto facts = nlohmann::ordered_json::object();
    if (!chosen.record.is_null()) facts["measured"] = chosen.record;
    if (kept != nullptr)
      for (auto const& layer : kept->layers)
        facts["kept"].push_back({{"rows", layer.num_rows}, {"nonzeros", layer.num_nonzeros}});
    begin_metrics(context, grid, options, model_settings.schedule, checkpoints, facts);
    pruned.reset();
    mapped.reset();
    EpochLines lines(context, options);
    Stragglers stragglers(context, grid, options.stragglers, "epoch");
    auto const result = resumable.run(
        trainer,
        [&](runtime::EpochRecord const& epoch) {
          lines.write(epoch);
          stragglers.add(epoch);
        },
        models::record_of(model_settings));
    lines.finish();
    stragglers.report();
    auto const save = [&] {
      weight_files.save(grid, model.parameters(), record_of_weights(model_settings, store.facts()),
                        resumable.best());
    };
    if (!resumable.stopped_by().empty()) {
      auto const stop = stop_of(resumable, weight_files, options);
      if (stop.saves_weights) save();
      return TrainEnd{end_stopped(context, result, stop, options)};
    }

    if (weight_files.writes(false) && options.eval_every == 0)
      if (auto const sign = models::sign_of_divergence(trainer.evaluate()); !sign.empty())
        models::throw_diverged("the weights are not saved: " + sign);
    save();
    return TrainEnd{end_complete(context, result, options, meter, {predicted, estimate.arrays}),
                    result.progress};
  };
  if (pruned) {
    models::PrunedNetwork<T> model(grid, store, model_settings, settings, *pruned);
    return run(model, model, model.update(), nullptr);
  }
  if (models::predicts_links(model_settings)) {
    models::LinkLoss<T> loss(grid, store, plan.layers.front().owners.value().roles, plan.logits(),
                             model_settings.seed);
    models::LinkBatches<T> batches(loss);
    models::GraphNetwork<T> model(grid, store, model_settings);
    if (model_settings.decoder_width > 0) loss.use_decoder(model.shared_parameters()->decoder());
    auto const update = std::make_shared<models::ParameterUpdate<T>>(grid, model.parameters(), settings);
    models::Trainer<T> trainer(grid, model, loss, batches, settings, update);
    return run(model, trainer, *update, model.needed_rows().get());
  }
  auto loss = models::make_vertex_loss<T>(grid, store, plan.logits(), settings.loss);
  models::GraphNetwork<T> model(grid, store, model_settings);
  auto const update = std::make_shared<models::ParameterUpdate<T>>(grid, model.parameters(), settings);
  models::Trainer<T> trainer(grid, model, loss, settings, update);
  if (settings.finds_roc_auc) trainer.judge_also_by(models::judge_by_areas<T>(grid, store, plan.logits()));
  return run(model, trainer, *update, model.needed_rows().get());
}

} // namespace

graph::GraphStore open_graph_of(runtime::Communicator const& world, TrainOptions const& options) {
  if (options.graph.empty() == options.dataset.empty())
    runtime::throw_user("give one of --graph graph.h5 and --dataset karate|sbm|rmat|grid2d|ring[:k=v,..]");
  if (options.split == "all") runtime::throw_user("--split all is for train: give the number of a split");
  auto const split = std::stoll(options.split);
  if (!options.graph.empty()) {
    auto store = graph::GraphStore::open(world, options.graph);
    store.use_split(split);
    require_fitting_labels(store, options);
    return store;
  }
  if (split > 0) runtime::throw_user("--split {}: --dataset makes one split, number 0: leave it out", split);
  graph::PartitionOptions how;
  how.seed = static_cast<std::uint64_t>(options.dataset_seed.value_or(options.seed));
  auto store = make_graph_in_memory(
      world,
      [&](runtime::Communicator const& self) { return graph::open_dataset(self, options.dataset, how.seed); },
      how, options.force_memory);
  require_fitting_labels(store, options);
  return store;
}

MeasuredGraph open_measured_graph(runtime::Communicator const& world, TrainOptions const& options) {
  ResidentPeak const making;
  auto store = open_graph_of(world, options);
  auto const in_memory = options.graph.empty() ? making.of(store.facts()) : GraphInMemory{};
  return {std::move(store), in_memory};
}

void require_full_graph_grid(std::string const& grid, int num_ranks) {
  auto const shape = pmm::parse_grid(grid, num_ranks);
  if (shape.data != 1)
    runtime::throw_user(
        "--grid {}: full-graph work has no data axis; the first factor must be 1, such as --grid {}",
        shape.to_string(), pmm::near_cubic(num_ranks).to_string());
}

TrainEnd train_full(TrainOptions const& options, Context& context) {
  require_fitting_types(options);
  choose_gemm_math(options.gemm_math, options.compute_dtype);
  choose_gemm_libraries(context, options.gemm_table);
  return options.compute_dtype == "fp32" ? train_in_full<float>(options, context)
                                         : train_in_full<double>(options, context);
}

} // namespace orthant::cli
