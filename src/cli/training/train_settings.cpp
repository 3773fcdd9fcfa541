// SPDX-License-Identifier: Apache-2.0
#include "cli/training/train_settings.hpp"

#include "cli/machine/emulated_machine.hpp"
#include "cli/options/collectives_option.hpp"
#include "cli/options/gemm_options.hpp"
#include "cli/training/scores_text.hpp"
#include "models/gnn/plan/network_settings.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/device/kokkos_compat.hpp"
#include "runtime/machine/process_memory.hpp"

#include <array>
#include <fmt/ranges.h>

namespace orthant::cli {
namespace {

/// True if there is a best epoch, which needs validation vertices.
bool has_best(models::TrainProgress const& progress) {
  return progress.best.scores[static_cast<std::size_t>(graph::Split::valid)].num_counted > 0;
}

nlohmann::ordered_json done_record(models::TrainResult const& result, MemoryMeter::Taken const& memory) {
  nlohmann::ordered_json record{{"loss", result.progress.last_loss},
                                {"median_epoch_seconds", result.median_epoch_seconds}};
  record_memory(record, memory);
  if (result.has_stopped_early) record["stopped_early"] = true;
  if (auto const& progress = result.progress; progress.last) {
    record["last"] = scores_json(*progress.last);
    if (has_best(progress)) {
      record["best_epoch"] = progress.best.epoch;
      record["best"] = scores_json(progress.best.scores);
    }
  }
  return record;
}

} // namespace

std::string bytes_text(std::int64_t bytes) {
  auto const value = static_cast<double>(bytes);
  if (bytes < std::int64_t{10} << 10) return fmt::format("{} B", bytes);
  if (bytes < std::int64_t{10} << 20) return fmt::format("{:.1f} KiB", value / 0x1p10);
  if (bytes < std::int64_t{10} << 30) return fmt::format("{:.1f} MiB", value / 0x1p20);
  return fmt::format("{:.1f} GiB", value / 0x1p30);
}

std::string bytes_by_axis_text(models::CommunicatedBytes const& bytes) {
  std::string text;
  for (auto const axis :
       {pmm::Axis::x, pmm::Axis::y, pmm::Axis::z, pmm::Axis::context, pmm::Axis::expert, pmm::Axis::data})
    if (axis <= pmm::Axis::z || bytes.along(axis) > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(axis), bytes_text(bytes.along(axis)));
  return text + "; sent " + bytes_text(bytes.sent);
}

models::NetworkSettings model_of(TrainOptions const& o) {
  models::NetworkSettings settings{.has_head = o.head || o.jump != "none",
                                   .has_residuals = o.residual != "none",
                                   .projects_residuals = o.residual == "project",
                                   .jump = models::parse_jump(o.jump)};
  models::choose_operator(settings, o.normalize, o.self_loops);
  set_model(settings, o);
  settings.embedding_width = o.task == "links" ? o.embedding : 0;
  settings.decoder_width = o.decoder_width();
  settings.norm = models::parse_norm(o.norm);
  settings.projected_width = o.input_projection ? o.hidden : 0;
  settings.set_layers(o.num_layers(), o.hidden);
  settings.dropout = o.dropout;
  settings.attention_dropout = o.attention_dropout;
  settings.edge_dropout = o.edge_dropout;
  settings.has_bias = o.bias;
  settings.trains_features = o.trainable_features;
  settings.trains_entries =
      models::VertexLossSettings{.function = models::parse_loss_function(o.loss)}.trains_entries();
  settings.feature_norm = models::parse_feature_norm(o.feature_norm);
  settings.order = models::parse_product_order(o.order);
  settings.gather = pmm::parse_gather(o.gather);
  ORTHANT_REQUIRE(settings.gather != pmm::Gather::needed || o.schedule == "rows",
                  "pmm3d always moves whole blocks"); // settle_idle_options()
  require_choice(o, o.schedule == "auto" || o.grid == "auto", "--grid auto or --schedule auto");
  settings.overlaps = o.overlap != "off";
  settings.wire = message_formats_of(o.comm_dtype).activations;
  settings.operand_format = format_named(o.operand_dtype);
  settings.seed = static_cast<std::uint64_t>(o.seed);
  return settings;
}

pmm::AxisSet hidden_axes(pmm::ProcessGrid const& grid, std::string const& overlap) {
  if (overlap == "on") return pmm::group_axes;
  if (overlap == "off" || !pmm::runs_on_host || grid.world().is_on_one_node()) return {};
  pmm::AxisSet axes;
  for (auto const axis : pmm::spatial_axes) {
    auto const reaches_others = grid.over(axis).is_on_one_node() ? 0 : 1;
    if (runtime::all_reduced(grid.world(), reaches_others, runtime::Reduction::max) > 0)
      axes = axes.with(axis);
  }
  return axes;
}

pmm::Machine machine_of(runtime::Communicator const& world, std::string const& name) {
  auto const* const emulated = world.instruments().clock.machine();
  auto machine = !name.empty()         ? pmm::read_machine(world, name)
                 : emulated != nullptr ? pmm::read_machine(world, emulated->name)
                                       : pmm::assumed_machine();
  if (auto const* const algorithms = world.algorithms()) machine.collectives.algorithms = algorithms->choice;
  return machine;
}

models::OptimizerSettings optimizer_of(OptimizerOptions const& o, std::int64_t eval_every) {
  models::RateSchedule schedule{models::parse_rate_decay(o.lr_schedule), o.warmup_steps, o.min_lr};
  schedule.step_length = o.lr_step;
  schedule.factor = o.lr_factor;
  schedule.decay_share = o.lr_decay_share;
  schedule.plateau_patience = o.lr_patience;
  if (o.min_lr > 0 && schedule.decay == models::RateDecay::constant)
    runtime::throw_user("--min-lr is what the learning rate decays to: it needs another --lr-schedule than "
                        "constant");
  if (o.min_lr > o.lr) runtime::throw_user("--min-lr {} is more than --lr {}", o.min_lr, o.lr);
  if (schedule.decay == models::RateDecay::step && o.lr_step == 0)
    runtime::throw_user(
        "--lr-schedule step needs --lr-step, the number of steps between two changes of the rate");
  if (schedule.decay == models::RateDecay::plateau && eval_every == 0)
    runtime::throw_user(
        "--lr-schedule plateau goes by evaluations; give --eval-every the number between them");
  if (o.betas.size() != 2)
    runtime::throw_user("--betas takes two numbers, such as 0.9,0.999, and has {}", o.betas.size());
  models::OptimizerSettings settings{models::parse_optimizer(o.optimizer), o.lr, schedule, o.betas[0],
                                     o.betas[1]};
  if (o.optimizer != "sgd" && o.optimizer != "jorge") settings.moments = models::parse_moments(o.moments);
  settings.jorge = {.tile = o.jorge_tile, .interval = o.jorge_interval};
  settings.gradient_wire = message_formats_of(o.comm_dtype).gradients;
  return settings;
}

models::TrainSettings training_of(TrainOptions const& o) {
  models::TrainSettings settings;
  settings.optimizer = optimizer_of(o, o.eval_every);
  settings.weight_decay = o.weight_decay;
  settings.weight_decay_first_layer = o.weight_decay_first_layer;
  settings.weight_decay_last_layer = o.weight_decay_last_layer;
  settings.clip_norm = o.clip_norm;
  settings.num_epochs = o.epochs;
  settings.eval_every = o.eval_every;
  settings.monitor = models::parse_monitor(o.monitor);
  settings.patience = o.patience;
  settings.loss = {models::parse_class_weights(o.class_weights), o.label_smoothing,
                   models::parse_loss_function(o.loss), o.focal_gamma};
  settings.finds_roc_auc = o.roc_auc;
  settings.uses_device_graph = o.device_graph == "on";
  return settings;
}

WeightFiles weight_files_of(Context const& context, TrainOptions const& options) {
  return {context,
          options,
          {"epoch",
           options.eval_every,
           options.patience,
           {{"--graph", FileOption::Use::input, &options.graph}},
           options}};
}

void judge_by(WeightFiles& files, TrainOptions const& options, graph::GraphStore const& store) {
  auto const is_of_links = options.task == "links";
  auto const& sizes = is_of_links ? store.facts().num_held_out : store.facts().split_sizes;
  if (sizes[static_cast<std::size_t>(graph::Split::valid)] > 0) return;
  auto const what = is_of_links ? "edges" : "vertices";
  if (options.lr_schedule == "plateau")
    runtime::throw_user(
        "--lr-schedule plateau goes by the loss of validation {}, and {} has none; give another one", what,
        store.name());
  files.judge_by_nothing(fmt::format(
      "goes by the {} of validation {}, and {} has none; leave it out",
      monitored_text(options.monitor, is_of_links                                          ? Merit::roc_auc
                                      : store.facts().label_kind == graph::LabelKind::real ? Merit::r2
                                                                                           : Merit::accuracy),
      what, store.name()));
}

void describe_graph(Context const& context, graph::GraphStore const& store) {
  auto const& facts = store.facts();
  say(context, "graph     {}: {} vertices, {} non-zeros, {} {}features, {} {}; train/valid/test {}/{}/{}\n",
      facts.name.empty() ? store.name() : facts.name, facts.num_vertices, facts.num_entries,
      facts.num_features, facts.feature_kind == graph::FeatureKind::sparse ? "sparse " : "",
      facts.num_classes, facts.label_kind == graph::LabelKind::real ? "targets of regression" : "classes",
      facts.split_sizes[0], facts.split_sizes[1], facts.split_sizes[2]);
  if (!facts.has_bare_types()) return;
  std::vector<std::string> bare;
  for (auto const& type : facts.vertex_types)
    if (type.num_features == 0) bare.push_back(fmt::format("{} {}", type.count, type.name));
  say(context, "table     a trained row for each of {}, which have no features\n", fmt::join(bare, ", "));
}

namespace {

void report_scores(Context const& context, models::TrainResult const& result, TrainOptions const& options) {
  auto const line = [&](std::string const& name, double train, double valid, double test) { // 39 characters
    say(context, "{:<18}{:>7.4f}{:>7.4f}{:>7.4f}\n", name, train, valid, test);
  };
  if (result.has_stopped_early)
    say(context, "\nstopped after epoch {}: the validation {} {} not better in {} evaluations (--patience)\n",
        result.progress.epoch - 1,
        monitored_text(options.monitor, merit_of(result.progress.last.value_or(models::Scores()))),
        options.monitor == "both" ? "were" : "was", result.progress.num_without_gain);
  if (auto const& progress = result.progress; progress.last) {
    std::vector shown{std::pair(std::string("last epoch"), &*progress.last)};
    if (has_best(progress))
      shown.emplace_back(fmt::format("best (epoch {})", progress.best.epoch), &progress.best.scores);
    if (are_of_links(*progress.last)) return say(context, "\n{}", link_table(shown));
    if (merit_of(*progress.last) == Merit::r2) return say(context, "\n{}", regression_table(shown));
    say(context, "\n{:<18}{:>7}{:>7}{:>7}\n", "accuracy", "train", "valid", "test");
    for (auto const& [name, scores] : shown) {
      auto const& [train, valid, test] = *scores;
      line(name, train.accuracy(), valid.accuracy(), test.accuracy());
      line("  macro-F1", train.macro_f1, valid.macro_f1, test.macro_f1);
      if (train.micro_f1 != train.accuracy()) // vertices with several labels
        line("  micro-F1", train.micro_f1, valid.micro_f1, test.micro_f1);
      if (train.roc_auc || valid.roc_auc || test.roc_auc)
        say(context, "{:<18}{:>7}{:>7}{:>7}\n", "  ROC-AUC", area_text(train.roc_auc),
            area_text(valid.roc_auc), area_text(test.roc_auc));
    }
    say(context, "{}", majority_text(has_best(progress) ? progress.best.scores : *progress.last));
  }
}

void report(Context const& context, models::TrainResult const& result, TrainOptions const& options) {
  report_scores(context, result, options);
  say(context, "\nseconds per epoch     {:.6f} (median{})\n", result.median_epoch_seconds,
      clock_text(context.world()));
  say(context, "bytes per epoch       {}\n", bytes_by_axis_text(result.epoch_bytes));
}

} // namespace

int end_stopped(Context& context, models::TrainProgress const& progress, Stop const& stop,
                TrainingLength const& length, WeightOptions const& weights,
                CheckpointOptions const& checkpoints) {
  say(context, "\nstopped by {} before {} {} of {}{}\n", stop.reason, length.unit, progress.epoch,
      length.num_units, progress.step == 0 ? std::string() : fmt::format(", step {}", progress.step + 1));
  if (stop.saves_weights)
    say(context, "the weights are saved{}\n",
        weights.save_weights.empty() ? std::string() : ": " + weights.save_weights);
  auto const has_checkpoint = !checkpoints.checkpoint.empty();
  if (has_checkpoint)
    say(context, "the same command with --resume auto goes on from {}\n", checkpoints.checkpoint);
  else if (!weights.save_weights.empty())
    say(context,
        "--init-from {} starts from them, with a new optimizer; with --checkpoint DIR a training can go on\n",
        weights.save_weights);
  else
    say(context,
        "with --checkpoint DIR a training can go on, with --save-weights FILE its weights are kept\n");
  nlohmann::ordered_json record{{"reason", stop.reason}, {length.unit, progress.epoch}};
  if (length.unit != "step") record["step"] = progress.step;
  context.metrics.write("stopped", record);
  constexpr int shell_status = 128; // + number of the signal
  return has_checkpoint ? runtime::exit_requeue : shell_status + stop.signal;
}

int end_stopped(Context& context, models::TrainResult const& result, Stop const& stop,
                TrainOptions const& options) {
  if (result.progress.last) report(context, result, options);
  return end_stopped(context, result.progress, stop, {"epoch", options.epochs, options.patience}, options,
                     options);
}

void describe_memory(Context const& context, MemoryMeter::Taken const& taken,
                     PredictedMemory const& predicted) {
  say(context, "memory per rank       {} (predicted {}{})\n", bytes_text(taken.resident),
      bytes_text(predicted.resident), predicted.note);
  if constexpr (!pmm::runs_on_host) {
    auto const prediction = predicted.device_arrays
                                ? fmt::format(" (predicted {})", bytes_text(*predicted.device_arrays))
                                : std::string();
    say(context, "memory of the device  {} in arrays per rank{}, {} less free\n",
        bytes_text(taken.device_arrays), prediction, bytes_text(taken.device));
  }
}

void record_memory(nlohmann::ordered_json& done, MemoryMeter::Taken const& taken) {
  done["peak_memory_bytes"] = taken.resident;
  if constexpr (!pmm::runs_on_host) {
    done["device_memory_bytes"] = taken.device_arrays;
    done["device_memory_taken_bytes"] = taken.device;
  }
}

int end_complete(Context& context, models::TrainResult const& result, TrainOptions const& options,
                 MemoryMeter const& meter, PredictedMemory const& predicted) {
  auto const taken = meter.taken(context.world());
  report(context, result, options);
  describe_memory(context, taken, predicted);
  context.metrics.write("done", done_record(result, taken));
  return runtime::exit_done;
}

void require_fitting_types(TrainOptions const& o) {
  if (o.compute_dtype != "fp32" &&
      (message_formats_of(o.comm_dtype) != MessageFormats{} || o.operand_dtype != "fp32"))
    models::refuse(models::Refused::fp64, "leave one of them out");
  if (!runtime::compat::device_multiplies_bf16() && o.operand_dtype == "bf16")
    runtime::throw_user("--operand-dtype bf16 needs a device of compute capability 8.0 or newer; take fp16");
}

models::Architecture record_of_weights(models::NetworkSettings const& settings,
                                       graph::StoreFacts const& facts) {
  auto record = models::record_of(settings, facts);
  record.push_back(gemm_record());
  return record;
}

void begin_metrics(Context& context, pmm::ProcessGrid const& grid, TrainOptions const& options,
                   models::Schedule schedule, Checkpoints const& checkpoints,
                   nlohmann::ordered_json const& more) {
  auto record = context.run_record;
  record["grid"] = grid.shape().to_string();
  record["schedule"] = std::string(models::name_of(schedule));
  record["seed"] = options.seed;
  if (auto const& asked = record["configuration"]; asked.contains("split") && asked["split"] == "all")
    record["split"] = std::stoll(options.split);
  checkpoints.prepare_metrics(record);
  record.update(more);
  context.metrics.write("run", record);
}

MemoryMeter::MemoryMeter() : resident_at_start_(runtime::resident_bytes()) {}

MemoryMeter::Taken MemoryMeter::taken(runtime::Communicator const& world) const {
  std::array bytes{runtime::peak_resident_bytes() - resident_at_start_, device_.peak_array_bytes(),
                   device_.taken_bytes()};
  runtime::all_reduce(runtime::host, world, std::span(bytes), runtime::Reduction::max);
  return {bytes[0], bytes[1], bytes[2]};
}

void describe_grid(Context const& context, pmm::ProcessGrid const& grid, models::Schedule schedule) {
  auto const num_ranks = grid.world().size();
  say(context, "grid      {} (data x X x Y x Z) on {} rank{}, schedule {}\n", grid.shape().to_string(),
      num_ranks, num_ranks == 1 ? "" : "s", models::name_of(schedule));
}

void describe_gather(Context const& context, models::NetworkPlan const& plan, pmm::NeededRows const* needed) {
  auto const& owners = plan.layers.front().owners;
  if (needed == nullptr || !owners) return;
  std::vector<std::string> parts;
  auto const add = [&](pmm::Axis axis, std::optional<double> coverage, bool moves_needed) {
    if (coverage)
      parts.push_back(fmt::format("{} rows along {} (coverage {:.3f})", moves_needed ? "needed" : "all",
                                  name_of(axis), *coverage));
  };
  add(owners->roles.c, needed->coverage_c, needed->over_c.has_value());
  add(owners->roles.a, needed->coverage_a, needed->over_a.has_value());
  if (!parts.empty()) say(context, "gather    {}\n", fmt::join(parts, ", "));
}

void describe_pruning(Context const& context, models::PrunedRows const& pruned) {
  say(context, "prune     each layer has {} rows and {} non-zeros; a training step computes\n",
      pruned.whole.num_rows, pruned.whole.num_nonzeros);
  for (std::size_t l = 0; l < pruned.layers.size(); ++l)
    say(context, "          layer {}: {} rows, {} non-zeros\n", l, pruned.layers[l].num_rows,
        pruned.layers[l].num_nonzeros);
}

EpochLines::EpochLines(Context& context, TrainOptions const& options)
    : context_(context),
      num_epochs_(options.epochs),
      log_every_(options.log_every),
      progress_(options.epochs, "epoch",
                runtime::progress_style(context.world().is_root() &&
                                        context.log().prints(runtime::LogLevel::info))) {}

void EpochLines::write(runtime::EpochRecord const& epoch) {
  context_.metrics.write(epoch);
  auto const is_of_links = epoch.score("val_mrr") || epoch.score("test_mrr");
  auto const is_of_numbers = epoch.score("train_r2").has_value();
  auto const valid = epoch.score(is_of_links ? "val_roc_auc" : is_of_numbers ? "val_r2" : "val_acc");
  auto const test = epoch.score(is_of_links ? "test_roc_auc" : is_of_numbers ? "test_r2" : "test_acc");
  auto const is_evaluated = is_of_links || is_of_numbers || epoch.score("train_acc").has_value();
  auto const is_bar = progress_.style() == runtime::ProgressStyle::bar;
  if (valid && test) last_scores_ = {*valid, *test};
  if (!is_bar && !is_evaluated && epoch.epoch % log_every_ != 0 && epoch.epoch != num_epochs_) return;
  using Unit = runtime::Progress::Unit;
  auto const unit = is_evaluated ? Unit::notable : Unit::usual;
  if (last_scores_ && (is_bar || (valid && test)))
    progress_.update(epoch.epoch,
                     {{"loss", epoch.loss},
                      {"valid", last_scores_->first},
                      {"test", last_scores_->second},
                      {"seconds", epoch.seconds}},
                     unit);
  else
    progress_.update(epoch.epoch, {{"loss", epoch.loss}, {"seconds", epoch.seconds}}, unit);
}

} // namespace orthant::cli
