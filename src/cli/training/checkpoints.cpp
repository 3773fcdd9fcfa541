// SPDX-License-Identifier: Apache-2.0
#include "cli/training/checkpoints.hpp"

#include "cli/options/collectives_option.hpp"
#include "cli/options/gemm_options.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/files/temporary_path.hpp"
#include "runtime/report/metrics.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <fmt/ranges.h>
#include <numeric>
#include <system_error>

namespace orthant::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// Seconds that the end of a job takes in addition to a checkpoint.
constexpr double margin_seconds = 5;
/// Assumed seconds of a checkpoint until one has been measured.
constexpr double unmeasured_checkpoint_seconds = 15;

/// Why a rank wants to stop, as a number. All ranks take the largest. Signal s is time_is_over + s, so a signal on
/// any rank takes precedence over the time limit.
constexpr std::int64_t goes_on = 0;
constexpr std::int64_t time_is_over = 1;

double earlier(std::optional<double> a, double b) {
  return a ? std::min(*a, b) : b;
}

} // namespace

StopCondition::StopCondition(Context const& context, std::string_view unit)
    : context_(context),
      answer_(fmt::format(
          "\northant: interrupted: the training ends after this {}; once more ends it at once\n", unit)),
      signals_(context.world().is_root() && context.log().prints(runtime::LogLevel::info) ? answer_.c_str()
                                                                                          : nullptr),
      last_step_(Clock::now()) {}

StopCondition::StopCondition(Context const& context, std::string_view unit, std::string const& max_walltime)
    : StopCondition(context, unit) {
  auto end = context.world().is_root() ? runtime::slurm_end_time(runtime::time_sources()) : std::nullopt;
  if (!max_walltime.empty())
    end = earlier(end, runtime::unix_time() - runtime::process_seconds() +
                           runtime::parse_duration("--max-walltime", max_walltime));
  auto seconds = end.value_or(0);
  runtime::broadcast(runtime::host, context.world(), std::span(&seconds, 1), 0);
  if (seconds > 0) end_time_ = seconds;
}

bool StopCondition::is_time_over(double checkpoint_seconds) {
  auto const now = Clock::now();
  longest_step_ = std::max(longest_step_, std::chrono::duration<double>(now - last_step_).count());
  last_step_ = now;
  if (!end_time_) return false;
  // Time for one more step (50 % longer than the longest so far) and a checkpoint (twice as long as the last one).
  auto const needed = 1.5 * longest_step_ +
                      2 * (checkpoint_seconds > 0 ? checkpoint_seconds : unmeasured_checkpoint_seconds) +
                      margin_seconds;
  return runtime::unix_time() + needed > *end_time_;
}

bool StopCondition::agree(std::int64_t own) {
  auto const agreed = runtime::all_reduced(context_.world(), own, runtime::Reduction::max);
  if (agreed == goes_on) return false;
  signal_ = agreed == time_is_over ? 0 : static_cast<int>(agreed - time_is_over);
  reason_ = agreed == time_is_over ? "the time limit" : runtime::name_of_signal(signal_);
  return true;
}

bool StopCondition::is_due(bool ends_epoch, double checkpoint_seconds) {
  auto const signal = signals_.received();
  auto const counts = signal != 0 && (signal != SIGINT || ends_epoch);
  auto const is_over = is_time_over(checkpoint_seconds);
  return agree(counts ? time_is_over + signal : is_over ? time_is_over : goes_on);
}

bool StopCondition::is_due(bool ends_epoch) {
  auto const signal = signals_.received();
  return ends_epoch && agree(signal != 0 ? time_is_over + signal : goes_on);
}

namespace {

using runtime::throw_user;

/// Options that may change in every resumed training: where it runs, and what it reports.
constexpr std::array<std::string_view, 28> always_free{
    "precision",       "grid",         "eval-every",       "device-graph",
    "init-from",       "patience",     "save-best",        "save-weights",
    "force",           "force-memory", "checkpoint",       "checkpoint-every",
    "checkpoint-keep", "resume",       "checkpoint-async", "resume-override",
    "max-walltime",    "gemm-table",   "config",           "log-every",
    "log-level",       "timeout",      "metrics",          "machine",
    "measure-top",     "init-skip",    "collectives",      "stragglers"};

/// Word of --resume-override that lets an option differ; empty if there is none. The warm-up of a preset belongs to `length`, because it is
/// a share of the length.
std::string group_of(std::string_view option, std::string_view source) {
  if (option == "warmup-steps" && source == "preset") return "length";
  if (option == "compute-dtype" || option == "gemm-math" || option == "comm-dtype" ||
      option == "operand-dtype")
    return "precision";
  if (option == "lr" || option == "lr-schedule" || option == "warmup-steps" || option == "min-lr" ||
      option == "lr-step" || option == "lr-factor" || option == "lr-patience" || option == "lr-decay-share")
    return "learning-rate";
  return {};
}

/// The word that checkpoints hold for all values of an option that mean the same, so that a run may resume with another of them. A loss
/// that does not fit the labels was refused before.
std::string canonical(std::string_view option, std::string value) {
  if (option == "loss" && (value == "auto" || value == "mse")) return "cross-entropy";
  if (option == "task" && (value == "classification" || value == "regression")) return "nodes";
  if (option == "monitor" && value == "r2") return "accuracy";
  if (option == "comm-dtype") return text_of(message_formats_of(value));
  return value;
}

/// True if the warm-up that a preset gives differs from the warm-up in the checkpoint.
bool has_other_warm_up(models::Identity const& recorded, models::Identity const& wanted) {
  constexpr auto name = "--warmup-steps";
  auto const here = std::ranges::find(wanted, name, &models::IdentityPart::name);
  if (here == wanted.end() || here->group != "length") return false;
  auto const found = std::ranges::find(recorded, name, &models::IdentityPart::name);
  return found == recorded.end() || found->value != here->value;
}

} // namespace

models::Identity identity_of_options(nlohmann::ordered_json const& run_record,
                                     std::span<std::string_view const> free_options) {
  models::Identity identity;
  for (auto const& [name, value] : run_record.at("configuration").items())
    if (std::ranges::find(free_options, name) == free_options.end() &&
        std::ranges::find(always_free, name) == always_free.end()) {
      auto const word = canonical(name, value.is_string() ? value.get<std::string>() : value.dump());
      auto const is_usual = (name == "monitor" && word == "accuracy") ||
                            (name == "split" && word == "0"); // older checkpoints do not record it
      auto const source = run_record.at("sources").at(name).get<std::string>();
      identity.push_back({"--" + name, word, group_of(name, source), is_usual || source == "default"});
    }
  return identity;
}

models::IdentityPart part_of_length(std::string const& name, std::string const& value) {
  return {name, value, "length", true};
}

bool decays_to_the_end(OptimizerOptions const& options) {
  return models::RateSchedule{models::parse_rate_decay(options.lr_schedule)}.ends_with_training();
}

models::CheckpointInterval parse_interval(std::string const& text, std::string_view unit) {
  auto const* const end = text.data() + text.size();
  std::int64_t epochs = 0;
  auto const whole = std::from_chars(text.data(), end, epochs);
  if (whole.ec == std::errc() && whole.ptr == end && epochs >= 1 && epochs <= most_epochs)
    return {epochs, {}};
  double minutes = 0;
  auto const real = std::from_chars(text.data(), end, minutes);
  constexpr double most_minutes = 1e7; // 20 years
  if (real.ec == std::errc() && std::string_view(real.ptr, end) == "min" && minutes > 0 &&
      minutes <= most_minutes)
    return {0, std::chrono::duration<double>(60 * minutes)};
  throw_user("--checkpoint-every {}: give a number of {}s, such as 10, or of minutes, such as 30min", text,
             unit);
}

std::int64_t host_copy_bytes(pmm::StepPlan const& step, std::vector<std::int64_t> const& lengths,
                             bool writes_checkpoints) {
  auto const num_copies = std::int64_t{writes_checkpoints ? 5 : 2};
  return num_copies * step.scalar_bytes(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
}

bool Checkpoints::was_given(char const* option) const {
  auto const& sources = context_.run_record.at("sources");
  return sources.contains(option) && sources.at(option) != "default";
}

void Checkpoints::require_sensible(WeightOptions const& weights) const {
  if (options_.checkpoint.empty()) {
    for (auto const* option : {"checkpoint-every", "checkpoint-keep", "checkpoint-async"})
      if (was_given(option)) throw_user("--{} needs --checkpoint and a folder", option);
    if (!options_.max_walltime.empty())
      throw_user("--max-walltime ends a training with a checkpoint; give --checkpoint and a folder");
    if (options_.resume == "auto")
      throw_user("--resume auto takes the newest checkpoint of a folder; give --checkpoint and the folder");
  }
  if (!options_.max_walltime.empty())
    static_cast<void>(runtime::parse_duration("--max-walltime", options_.max_walltime));
  if (options_.resume == "never" && !options_.resume_override.empty())
    throw_user("--resume-override needs --resume auto or --resume and a checkpoint");
  if (options_.resume != "never" && options_.resume != "auto" && !weights.init_from.empty())
    throw_user("--init-from {} would be ignored: --resume {} has the weights; leave one of them out",
               weights.init_from, options_.resume);
  if (!weights.init_skip.empty() && weights.init_from.empty())
    throw_user("--init-skip {} needs --init-from and a file of weights", fmt::join(weights.init_skip, ","));
}

Checkpoints::Checkpoints(Context const& context, CheckpointOptions const& options, TrainingLength length,
                         WeightOptions const& weights)
    : context_(context),
      options_(options),
      length_(std::move(length)),
      interval_(parse_interval(options.checkpoint_every, length_.unit)) {
  require_sensible(weights);
  if (!writes()) return;
  auto const& world = context.world();
  runtime::together(world, [&] {
    if (!world.is_root()) return;
    auto const numbers = models::checkpoint_numbers(options_.checkpoint);
    if (options_.resume == "never" && !numbers.empty())
      throw_user(
          "the folder of --checkpoint '{}' holds checkpoints; give --resume auto to go on from them, or "
          "another folder",
          options_.checkpoint);
    models::require_writable_folder(options_.checkpoint);
  });
}

void Checkpoints::identify(TrainingIdentity identity) {
  auto const& world = context_.world();
  identity_ = std::move(identity);
  training_ = fmt::format("{:016x}", runtime::draw_token(world));
  if (options_.resume == "auto")
    static_cast<void>(models::find_newest_checkpoint(world, options_.checkpoint, fits()));
  else if (options_.resume != "never") {
    auto const facts = models::read_checkpoint_facts(world, options_.resume);
    require_fits(options_.resume, facts);
    if (writes()) require_own_folder(facts.training);
  }
}

void Checkpoints::require_own_folder(std::string const& training) const {
  auto const anything = [](auto const&, auto const&) {};
  auto const newest = models::find_newest_checkpoint(context_.world(), options_.checkpoint, anything);
  if (newest && newest->facts.training != training)
    throw_user("the folder of --checkpoint '{}' holds checkpoints of another training than '{}'; give "
               "another folder",
               options_.checkpoint, options_.resume);
}

void Checkpoints::require_fits(std::filesystem::path const& path,
                               models::CheckpointFacts const& facts) const {
  auto may_differ = options_.resume_override;
  if (!identity_.decays_to_the_end && !has_other_warm_up(facts.identity, identity_.parts))
    may_differ.emplace_back("length");
  models::require_same_training(path, facts.identity, identity_.parts, may_differ);
  auto const& progress = facts.progress;
  auto const num_begun = progress.step == 0 ? progress.epoch - 1 : progress.epoch;
  if (num_begun > length_.num_units)
    throw_user("'{0}' has come to {1} {2}, and --{1}s {3} ends before it: give --{1}s {2} or more",
               path.string(), length_.unit, num_begun, length_.num_units);
  if (identity_.require_progress) identity_.require_progress(path, facts);
}

void Checkpoints::describe_length(models::CheckpointFacts const& facts, double next_rate) const {
  auto const name = fmt::format("--{}s", length_.unit);
  auto const found = std::ranges::find(facts.identity, name, &models::IdentityPart::name);
  auto const here = fmt::format("{}", length_.num_units);
  if (found == facts.identity.end() || found->value == here || !context_.world().is_root()) return;
  auto const was = facts.learning_rate
                       ? fmt::format("was {:.6g} in step {} and ", *facts.learning_rate, facts.num_steps)
                       : std::string();
  context_.log().info(
      "{} is {} here and was {}: {}", name, here, found->value,
      !identity_.decays_to_the_end && !has_other_warm_up(facts.identity, identity_.parts)
          ? std::string("the learning rate does not depend on it")
          : fmt::format("the learning rate now {} the new length, and it {}is {:.6g} in step {}",
                        identity_.decays_to_the_end ? "decays over" : "warms up by", was, next_rate,
                        facts.num_steps + 1));
}

bool goes_on_from_checkpoint(CheckpointOptions const& options) {
  if (options.resume == "auto") return !models::checkpoint_numbers(options.checkpoint).empty();
  return options.resume != "never";
}

template<class T>
models::TrainProgress Checkpoints::resume(models::TrainingState<T>& state) {
  if (options_.resume == "auto")
    resumed_ = models::resume_newest(options_.checkpoint, state, fits());
  else if (options_.resume != "never")
    resumed_ = models::resume_from(options_.resume, state, fits());
  if (!resumed_) return {};
  training_ = resumed_->facts.training;
  auto const& progress = resumed_->facts.progress;
  auto const has_lost_patience = length_.patience > 0 && progress.num_without_gain >= length_.patience;
  if (context_.world().is_root() && (progress.epoch > length_.num_units || has_lost_patience))
    context_.log().info("the training is complete in '{}'", resumed_->path.string());
  else if (context_.world().is_root())
    context_.log().info("goes on from '{}' at {} {}{}", resumed_->path.string(), length_.unit, progress.epoch,
                        progress.step == 0 ? std::string() : fmt::format(", step {}", progress.step + 1));
  state.update().set_rate_reduction(progress.plateau.reduction);
  describe_length(resumed_->facts, state.update().learning_rate(resumed_->facts.num_steps + 1));
  return progress;
}

void Checkpoints::prepare_metrics(nlohmann::ordered_json& run_record) const {
  if (!is_on()) return;
  run_record["training"] = training_;
  auto const other = runtime::set_aside_other_metrics(context_.world(), context_.metrics.path(), training_);
  if (!other.empty())
    context_.log().info("'{}' has the metrics of another training: it is '{}' from now on",
                        context_.metrics.path(), other.string());
  if (!resumed_) return;
  auto const& progress = resumed_->facts.progress;
  run_record["resumed"] = {
      {"checkpoint", resumed_->path.string()}, {"epoch", progress.epoch}, {"step", progress.step}};
  runtime::cut_metrics(context_.world(), context_.metrics.path(), training_, progress.epoch);
}

void Checkpoints::set_aside_later_checkpoints() const {
  std::vector<std::string> names;
  runtime::together(context_.world(), [&] {
    if (!context_.world().is_root()) return;
    auto const step = resumed_ ? resumed_->facts.num_steps : 0;
    auto const path = resumed_ ? resumed_->path : std::filesystem::path();
    for (auto const& name : models::set_aside_later_checkpoints(options_.checkpoint, step, path))
      names.push_back(fmt::format("'{}'", name.string()));
  });
  if (!names.empty())
    context_.log().info("checkpoints that this training does not go on from have other names now: {}",
                        fmt::join(names, ", "));
}

models::CheckpointSettings Checkpoints::settings(models::Architecture const& architecture) const {
  models::CheckpointSettings settings;
  settings.folder = options_.checkpoint;
  set_aside_later_checkpoints();
  settings.interval = interval_;
  settings.num_kept = options_.checkpoint_keep;
  settings.is_asynchronous = options_.checkpoint_async == "on";
  settings.before_commit = [metrics = std::filesystem::path(context_.metrics.path())] {
    std::error_code ignored; // older records stay, because a resumed run does not write them again
    if (std::filesystem::is_regular_file(metrics, ignored))
      runtime::WritableFile(metrics, runtime::WritableFile::Mode::open, {"metrics", metrics}).sync();
  };
  settings.facts.training = training_;
  settings.facts.identity = identity_.parts;
  settings.facts.configuration = context_.run_record.at("configuration");
  settings.architecture = architecture;
  settings.architecture.push_back(gemm_record());
  return settings;
}

template models::TrainProgress Checkpoints::resume(models::TrainingState<float>&);
template models::TrainProgress Checkpoints::resume(models::TrainingState<double>&);

} // namespace orthant::cli
