// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/train_lm_run.hpp"

#include "cli/lm/lm_files.hpp"
#include "cli/machine/arithmetic_peak.hpp"
#include "cli/machine/emulated_machine.hpp"
#include "cli/machine/units.hpp"
#include "cli/options/shared_options.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/stragglers.hpp"
#include "cli/training/train_settings.hpp"
#include "models/lm/training/language_model.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/lm/transformer/transformer_parameters.hpp"
#include "pmm/gemm/local_gemm.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <optional>
#include <utility>
#include <vector>

namespace orthant::cli {

ModelFlops model_flops(models::TransformerSettings const& settings, std::int64_t sequence) {
  auto const hidden = settings.hidden;
  auto const key_width = settings.num_kv_heads * settings.head_dim();
  auto const query_width = settings.num_heads * settings.head_dim();
  auto const of_attention = 2 * hidden * (query_width + key_width);
  auto const num_matrices = pmm::inputs_per_output(settings.activation) + 1; // of a feed-forward layer
  auto const of_width = [&](std::int64_t width) { return hidden * num_matrices * width; };
  auto const& experts = settings.experts;
  auto const of_experts =
      (experts.top_k + experts.num_shared) * of_width(settings.expert_width()) + hidden * experts.num_experts;
  auto multiplied = settings.num_layers * of_attention + settings.vocabulary * hidden;
  for (std::int64_t l = 0; l < settings.num_layers; ++l)
    multiplied += experts.has_layer(l) ? of_experts : of_width(settings.feed_forward);
  return {6.0 * static_cast<double>(multiplied), 12.0 * static_cast<double>(settings.num_layers) *
                                                     static_cast<double>(query_width) *
                                                     static_cast<double>(sequence)};
}

StepLines::StepLines(Context& context, std::int64_t num_steps, std::int64_t log_every, StepSpeed const& speed)
    : context_(context),
      num_steps_(num_steps),
      log_every_(log_every),
      speed_(speed),
      progress_(num_steps, "step",
                runtime::progress_style(context.world().is_root() &&
                                        context.log().prints(runtime::LogLevel::info))) {}

void StepLines::write(runtime::EpochRecord const& step, std::vector<models::ExpertLoad> const& loads) {
  auto const valid_loss = step.score("val_loss");
  if (context_.metrics.is_on()) {
    nlohmann::ordered_json line{{"step", step.epoch},
                                {"loss", step.loss},
                                {"grad_norm", step.grad_norm},
                                {"lr", step.learning_rate},
                                {"tokens_per_second", speed_.tokens_per_second(step.seconds)},
                                {"seconds", step.seconds},
                                {"comm_bytes", step.comm_bytes},
                                {"sent_bytes", step.sent_bytes},
                                {"phases", step.phases.to_json()}};
    if (step.wire_error) line["wire_error"] = *step.wire_error;
    for (auto const& load : loads)
      line["experts"].push_back({{"layer", load.layer},
                                 {"tokens", load.chosen},
                                 {"dropped", load.num_dropped},
                                 {"imbalance", load.imbalance()},
                                 {"entropy", load.entropy()}});
    context_.metrics.write("step", line);
    if (valid_loss)
      context_.metrics.write(
          "eval",
          {{"step", step.epoch}, {"val_loss", *valid_loss}, {"val_acc", step.score("val_acc").value()}});
  }
  if (valid_loss) valid_loss_ = valid_loss;
  auto const is_bar = progress_.style() == runtime::ProgressStyle::bar;
  auto const is_first = std::exchange(is_first_, false); // always printed: the rate is counted from it
  if (!is_bar && !valid_loss && !is_first && step.epoch % log_every_ != 0 && step.epoch != num_steps_) return;
  auto const flop_per_s = speed_.flop_per_s(step.seconds);
  using Field = runtime::Progress::Field;
  std::vector<Field> fields{{"loss", step.loss}};
  if (valid_loss_ && (is_bar || valid_loss)) fields.push_back({"val_loss", *valid_loss_});
  fields.push_back({"tokens/s", speed_.tokens_per_second(step.seconds), 0});
  fields.push_back({"Gflop/s", flop_per_s / giga, 1});
  fields.push_back({"of peak", flop_per_s / speed_.peak_flop_per_s, 3});
  fields.push_back({"norm", step.grad_norm});
  progress_.update(step.epoch, fields,
                   valid_loss ? runtime::Progress::Unit::notable : runtime::Progress::Unit::usual);
}

namespace {

constexpr auto valid = static_cast<std::size_t>(graph::Split::valid);

models::TrainSettings training_of(TrainLmOptions const& o) {
  models::TrainSettings settings;
  settings.optimizer = optimizer_of(o);
  settings.weight_decay = o.weight_decay;
  settings.without_decay = o.no_decay;
  settings.loss.label_smoothing = o.label_smoothing;
  settings.loss.z_loss = o.logit_z_loss;
  if (o.clip_norm > 0.0) settings.clip_norm = o.clip_norm;
  settings.unit = "step";
  settings.num_epochs = o.steps;
  settings.eval_every = o.eval_every;
  settings.monitor = models::Monitor::loss;
  settings.patience = o.patience;
  return models::with_num_steps(settings, o.steps);
}

/// Identity of the training. It includes the content of the token file, but not its path.
TrainingIdentity identity_of(Context const& context, TrainLmOptions const& o, tokens::TokenFile const& file) {
  static constexpr std::array<std::string_view, 17> free_options{
      "tokens",           "preset",       "steps",       "activation-checkpointing",
      "keep-collectives", "trace",        "expert-axis", "expert-imbalance",
      "expert-placement", "expert-loads", "zero",        "zero-group",
      "context-axis",     "pipeline",     "recompute",   "pipeline-schedule",
      "context-exchange"};
  auto parts = identity_of_options(context.run_record, free_options);
  for (auto const part : tokens::all_parts)
    parts.push_back({fmt::format("checksum of the {} tokens", tokens::name_of(part)),
                     fmt::format("{:016x}", file.facts().of(part).sum)});
  parts.push_back({"checksum of the vocabulary", fmt::format("{:016x}", file.facts().sum_of_vocabulary)});
  parts.push_back(part_of_length("--steps", fmt::format("{}", o.steps)));
  return {std::move(parts), decays_to_the_end(o)};
}

/// Throws UserError if there are too few tokens for a training sequence, or for the evaluations.
void require_tokens(TrainLmOptions const& o, tokens::TokenFile const& file) {
  static_cast<void>(tokens::TrainingWindows(file.num_tokens(tokens::Part::train), o.sequence,
                                            static_cast<std::uint64_t>(o.seed)));
  if (o.eval_every > 0 && file.num_tokens(tokens::Part::valid) < 2)
    runtime::throw_user(
        "'{}' has no validation part to evaluate: give --eval-every 0, or tokenize with a smaller "
        "--train-fraction",
        o.tokens);
}

/// Throws UserError if a pattern of --freeze or --no-decay matches no parameter, or if nothing is left to train or to decay.
void require_matching_patterns(TrainLmOptions const& o,
                               std::vector<models::PlannedTransformerParameter> const& parameters) {
  std::vector<std::string> names;
  for (auto const& parameter : parameters)
    names.push_back(parameter.name);
  models::require_matches("--freeze", o.freeze, names);
  models::require_matches("--no-decay", o.no_decay, names);
  if (!o.no_decay.empty() && o.weight_decay == 0)
    runtime::throw_user("--no-decay {} with --weight-decay 0, which decays no weight: leave it out",
                        fmt::join(o.no_decay, ","));
  if (models::trained_of(parameters).empty())
    runtime::throw_user("--freeze {} leaves nothing to train", fmt::join(o.freeze, ","));
}

/// Throws UserError if the weights of --init-from do not fit the model. Ignores properties that only affect the weights in --init-skip.
void require_fitting_weights(Context const& context, TrainLmOptions const& o,
                             models::TransformerSettings const& model, tokens::TokenFile const& file) {
  auto const is_skipped = [&](char const* name) { return models::matches_any(name, o.init_skip); };
  auto const has_own_vocabulary =
      is_skipped("wte.weight") && (model.tied_head || is_skipped("lm_head.weight"));
  if (!has_own_vocabulary) require_vocabulary(context.world(), o.init_from, o.tokens, file);
  auto record = record_of(model);
  std::erase_if(record, [&](auto const& part) {
    return (part.first == "vocabulary" && has_own_vocabulary) ||
           (part.first == "positions" && is_skipped("wpe.weight"));
  });
  models::require_architecture(context.world(), o.init_from, record);
}

void describe_model(Context const& context, TrainLmOptions const& o, models::TransformerSettings const& model,
                    std::int64_t num_parameters, std::int64_t num_trained, ModelFlops const& flops) {
  say(context, "model     {}, {} layers x {}, {} heads, {} parameters, {}\n", o.arch, model.num_layers,
      model.hidden, model.num_heads, num_parameters, o.compute_dtype);
  if (num_trained < num_parameters)
    say(context, "trains    {} of {} parameters\n", num_trained, num_parameters);
  say(context, "batches   {} sequences of {} tokens per step{}\n", o.global_batch, o.sequence,
      o.accumulate == 1 ? std::string() : fmt::format(", in {} passes", o.accumulate));
  say(context, "work      {:.4g} Mflop per token: {:.4g} of products (6 N), {:.4g} of attention\n",
      flops.per_token() / mega, flops.products / mega, flops.attention / mega);
}

void report(Context const& context, models::TrainResult const& result, StepSpeed const& speed) {
  auto const& progress = result.progress;
  if (result.has_stopped_early)
    say(context,
        "\nstopped after step {}: the validation loss was not lower in {} evaluations (--patience)\n",
        progress.epoch - 1, progress.num_without_gain);
  if (progress.last) {
    auto const last = (*progress.last)[valid].loss;
    say(context, "\nvalidation loss       {:.4f} (perplexity {:.4f}); best {:.4f} after step {}\n", last,
        std::exp(last), progress.best.scores[valid].loss, progress.best.epoch);
  }
  auto const seconds = result.median_epoch_seconds;
  if (seconds > 0)
    say(context,
        "speed                 {:.6f} s per step (median{}), {:.0f} tokens/s, {:.2f} Gflop/s, {:.1f} % of "
        "the peak of products ({:.1f} Gflop/s)\n",
        seconds, clock_text(context.world()), speed.tokens_per_second(seconds),
        speed.flop_per_s(seconds) / giga, 100 * speed.flop_per_s(seconds) / speed.peak_flop_per_s,
        speed.peak_flop_per_s / giga);
  say(context, "bytes per step        {}\n", bytes_by_axis_text(result.epoch_bytes));
}

nlohmann::ordered_json done_record(models::TrainResult const& result, StepSpeed const& speed,
                                   MemoryMeter::Taken const& memory, std::int64_t predicted,
                                   std::optional<std::int64_t> predicted_by_loads) {
  auto const seconds = result.median_epoch_seconds;
  nlohmann::ordered_json record{{"loss", result.progress.last_loss}, {"median_step_seconds", seconds}};
  if (seconds > 0) {
    record["tokens_per_second"] = speed.tokens_per_second(seconds);
    record["flop_per_second"] = speed.flop_per_s(seconds);
  }
  record["flop_per_token"] = speed.flops.per_token();
  record["gemm_flop_per_second"] = speed.peak_flop_per_s;
  record_memory(record, memory);
  record["predicted_memory_bytes"] = predicted;
  if (predicted_by_loads) record["predicted_memory_bytes_by_loads"] = *predicted_by_loads;
  if (result.has_stopped_early) record["stopped_early"] = true;
  if (auto const& progress = result.progress; progress.last) {
    record["val_loss"] = (*progress.last)[valid].loss;
    record["best_step"] = progress.best.epoch;
    record["best_val_loss"] = progress.best.scores[valid].loss;
  }
  return record;
}

template<class T>
int train(TrainLmOptions const& options, Context& context) {
  auto const& world = context.world();
  MemoryMeter const meter;
  pmm::set_gemm_threads(1);
  auto const settings = training_of(options);
  auto const sequences = sequences_of(options);
  auto model = model_of(options);
  auto const inner = inner_axes_of(options);
  // Checks that need no files come first.
  auto const pipeline = static_cast<int>(options.pipeline);
  auto const shares_weights_of = weights_shared_within(options, ranks_per_node_of(world));
  if (options.grid != "auto")
    std::ignore = grid_of_stage(options, models::parse_grid(options.grid, world.size(), inner, pipeline),
                                shares_weights_of.value_or(0));
  models::require_even_stages(world.size(), pipeline);
  std::ignore =
      models::plan_stage({.pipe = pipeline}, {}, model, sequences.sequence, sequences.num_accumulated);
  require_choice(options, options.leaves_choice(), "--grid auto");
  if (options.expert_placement == "balanced")
    model.experts.past_loads = read_expert_loads(world, options.expert_loads, model);
  WeightFiles const weight_files(context, options,
                                 {"step",
                                  options.eval_every,
                                  options.patience,
                                  {{"--tokens", FileOption::Use::input, &options.tokens}},
                                  options});
  TrainingLength const length{"step", options.steps, options.patience};
  Checkpoints checkpoints(context, options, length, options);

  auto file = open_tokens(context, options.tokens);
  require_tokens(options, file);
  model.vocabulary = file.vocabulary().size();
  warn_of_attention(context, model, file, options.gemm_math);
  if (!options.init_from.empty()) require_fitting_weights(context, options, model, file);
  auto const [shape, exchange, measured] =
      choose_language_grid<T>(context,
                              {options.grid, options.machine, model, sequences, settings.optimizer,
                               options.measure_top, inner, shares_weights_of, pipeline},
                              settings, file);
  model.context_exchange = exchange;
  require_whole_tables(options, shape);
  pmm::ProcessGrid const grid(world, shape);
  auto const plan = models::plan_sequences(grid.shape(), grid.coordinates(), model, sequences);
  require_matching_patterns(options, models::parameters_of(grid.shape(), grid.coordinates(), plan));
  if (checkpoints.is_on()) checkpoints.identify(identity_of(context, options, file));

  std::int64_t copies = 0;
  if (checkpoints.is_on() || weight_files.keeps_best()) {
    pmm::StepPlan const step(grid.shape(), grid.coordinates(), sizeof(T));
    auto const lengths =
        models::lengths_of(step, models::parameters_of(grid.shape(), grid.coordinates(), plan));
    copies = host_copy_bytes(step, lengths, checkpoints.is_on());
  }
  auto const estimate_of = [&](models::TransformerPlan const& of_plan) {
    auto of_rank = models::estimate_memory<T>(grid, of_plan, sequences, settings.optimizer);
    of_rank.checkpoints = copies;
    return of_rank;
  };
  auto const estimate = estimate_of(plan);
  if (!options.force_memory) require_memory(context, "train-lm", estimate);
  auto const most_of_ranks = [&](models::MemoryEstimate const& of_rank) {
    return runtime::all_reduced(world, of_rank.peak(), runtime::Reduction::max);
  };
  auto const predicted = most_of_ranks(estimate);
  auto const predicted_at = [&](double imbalance) {
    auto of_imbalance = plan;
    of_imbalance.experts.settings.planned_imbalance = imbalance;
    return most_of_ranks(estimate_of(of_imbalance));
  };
  std::string text_of_imbalance;
  if (shape.expert > 1) {
    auto const experts = models::plan_for_memory(plan, shape).experts.settings;
    auto const if_even = predicted_at(1);
    auto const if_at_one_rank = predicted_at(models::largest_imbalance(experts, shape.expert));
    text_of_imbalance = fmt::format(
        " for an imbalance of experts of {:.3g}, {} if they are chosen equally often, {} if all tokens "
        "choose those of one rank",
        models::assumed_imbalance(experts, shape.expert, false), bytes_text(if_even),
        bytes_text(if_at_one_rank));
  }

  auto const flops = model_flops(model, sequences.sequence);
  // The peak is measured before the model is built, because the memory estimate does not include these square matrices.
  constexpr std::int64_t peak_size = pmm::runs_on_host ? 1024 : 8192, peak_repeats = 3;
  StepSpeed const speed{sequences.global_batch * sequences.sequence, flops,
                        measure_gemm_peak<T>(world, peak_size, peak_repeats)};

  models::LanguageModel<T> training(grid, model, sequences, settings, file);
  if (!options.init_from.empty()) {
    auto skip = options.init_skip;
    if (model.adapters.is_on()) skip.insert(skip.end(), {"*.lora_A", "*.lora_B"}); // they start anew
    models::load_weights(grid, options.init_from, training.parameters(), skip);
  }
  say(context, "{}", describe(file));
  say(context, "grid      {} (data x X x Y x Z){} on {} rank{}\n", models::grid_text(grid.shape()),
      pipeline > 1 ? fmt::format(" in each of {} stages", pipeline) : std::string(), world.size(),
      world.size() == 1 ? "" : "s");
  describe_shards(context, options, shape);
  if (shape.context > 1) say(context, "context   {} ranks exchange {}\n", shape.context, name_of(exchange));
  describe_model(context, options, model, training.num_parameters(), training.num_trained_parameters(),
                 flops);
  describe_placement(context, model, shape.expert);
  say(context, "memory    {} per rank predicted{}\n\n", bytes_text(predicted), text_of_imbalance);

  ResumableRun<T> run(checkpoints, grid, training.parameters(), training.update(), weight_files.keeps_best());
  // No check can fail from here on, so files are written now.
  auto record = context.run_record;
  record["grid"] = models::grid_text(grid.shape());
  if (pipeline > 1) record["pipeline"] = pipeline;
  if (shape.context > 1) record["context_exchange"] = name_of(exchange);
  record["seed"] = options.seed;
  if (!measured.is_null()) record["measured"] = measured;
  if (auto placement = record_of_placement(model, shape.expert); !placement.is_null())
    record["expert_placement"] = std::move(placement);
  checkpoints.prepare_metrics(record);
  context.metrics.write("run", record);
  StepLines lines(context, options.steps, options.log_every, speed);
  Stragglers stragglers(context, grid, options.stragglers, "step");
  auto const result = run.run(
      training,
      [&](runtime::EpochRecord const& step) {
        lines.write(step, training.expert_loads());
        stragglers.add(step);
      },
      record_of(model, options.sequence, file));
  lines.finish();
  stragglers.report();

  auto const save = [&] {
    auto architecture = record_of(model, options.sequence, file);
    architecture.push_back(gemm_record());
    weight_files.save(grid, training.parameters(), architecture, run.best());
  };
  if (!run.stopped_by().empty()) {
    auto const stop = stop_of(run, weight_files, options);
    if (stop.saves_weights) save();
    report(context, result, speed);
    return end_stopped(context, result.progress, stop, length, options, options);
  }
  save();
  report(context, result, speed);
  describe_experts(context, training.expert_loads());
  auto const taken = meter.taken(world);
  // The loads are known now if there was a training pass.
  auto by_loads = estimate;
  std::optional<std::int64_t> predicted_by_loads;
  if (has_chosen(training.expert_loads())) {
    auto plan_by_loads = plan;
    plan_by_loads.experts.loads = training.largest_dispatch_sizes();
    by_loads = estimate_of(plan_by_loads);
    predicted_by_loads = most_of_ranks(by_loads);
  }
  describe_memory(context, taken,
                  {predicted, by_loads.arrays,
                   predicted_by_loads
                       ? fmt::format("; {} by the loads of this run", bytes_text(*predicted_by_loads))
                       : std::string()});
  context.metrics.write("done", done_record(result, speed, taken, predicted, predicted_by_loads));
  return runtime::exit_done;
}

} // namespace

int train_language_model(TrainLmOptions const& options, Context& context) {
  choose_gemm_math(options.gemm_math, options.compute_dtype);
  choose_gemm_libraries(context, options.gemm_table);
  return options.compute_dtype == "fp32" ? train<float>(options, context) : train<double>(options, context);
}

} // namespace orthant::cli
