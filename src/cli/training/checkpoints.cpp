// SPDX-License-Identifier: Apache-2.0
#include "cli/training/checkpoints.hpp"

#include "cli/options/gemm_options.hpp"
#include "cli/training/train_minibatch.hpp"
#include "graph/store/fingerprint.hpp"
#include "models/checkpoint/checkpoint_folder.hpp"
#include "models/plan/gcn_parameters.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/temporary_path.hpp"
#include "runtime/files/writable_file.hpp"
#include "runtime/job/time_limit.hpp"
#include "runtime/report/metrics_cut.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <string_view>
#include <system_error>

namespace orthant::cli {
namespace {

using runtime::throw_user;

/// Options that a training may change when it goes on: where and how fast it runs, and what it reports. What the
/// data set is, the fingerprint says; of batches see identity_of().
constexpr std::array free_options{std::string_view("graph"),
                                  std::string_view("dataset"),
                                  std::string_view("mode"),
                                  std::string_view("grid"),
                                  std::string_view("epochs"),
                                  std::string_view("eval-every"),
                                  std::string_view("finish-full"),
                                  std::string_view("overlap"),
                                  std::string_view("order"),
                                  std::string_view("schedule"),
                                  std::string_view("gather"),
                                  std::string_view("device-graph"),
                                  std::string_view("batch"),
                                  std::string_view("accumulate"),
                                  std::string_view("batch-train-fraction"),
                                  std::string_view("sampler"),
                                  std::string_view("batch-edges"),
                                  std::string_view("init-from"),
                                  std::string_view("patience"),
                                  std::string_view("save-best"),
                                  std::string_view("save-weights"),
                                  std::string_view("force"),
                                  std::string_view("force-memory"),
                                  std::string_view("checkpoint"),
                                  std::string_view("checkpoint-every"),
                                  std::string_view("checkpoint-keep"),
                                  std::string_view("resume"),
                                  std::string_view("checkpoint-async"),
                                  std::string_view("resume-override"),
                                  std::string_view("max-walltime"),
                                  std::string_view("prune"),
                                  std::string_view("spmm-table"),
                                  std::string_view("gemm-table"),
                                  std::string_view("config"),
                                  std::string_view("log-every"),
                                  std::string_view("log-level"),
                                  std::string_view("timeout"),
                                  std::string_view("metrics"),
                                  std::string_view("trace")};

/// The word of --resume-override that lets an option differ, or none.
std::string group_of(std::string_view option) {
  if (option == "compute-dtype" || option == "gemm-math" || option == "comm-dtype" ||
      option == "operand-dtype")
    return "precision";
  if (option == "lr" || option == "lr-schedule" || option == "warmup-steps" || option == "min-lr")
    return "learning-rate";
  return {};
}

models::Identity identity_of(TrainOptions const& o, nlohmann::ordered_json const& run_record,
                             pmm::ProcessGrid const& grid, graph::GraphStore const& store) {
  auto const& facts = store.facts();
  models::Identity identity{{"number of vertices", fmt::format("{}", facts.num_vertices)},
                            {"number of non-zeros", fmt::format("{}", facts.num_entries)},
                            {"normalization", std::string(graph::name_of(facts.normalization))},
                            {"fingerprint of the data set", graph::fingerprint_of(grid.world(), store)}};
  for (auto const& [name, value] : run_record.at("configuration").items())
    if (std::ranges::find(free_options, name) == free_options.end())
      identity.push_back({"--" + name, value.is_string() ? value.get<std::string>() : value.dump(),
                          group_of(name), run_record.at("sources").at(name) == "default"});
  if (o.lr_schedule != "constant") // which ends with the last step
    for (auto const& [name, value] :
         {std::pair(std::string("--mode"), o.mode),
          std::pair(std::string("--epochs"), fmt::format("{}", o.epochs)),
          std::pair(std::string("--finish-full"), fmt::format("{}", o.finish_full))})
      identity.push_back({name, value, "learning-rate"});
  if (o.mode == "minibatch") {
    auto const num_batches = grid.size(pmm::Axis::data) * o.accumulate;
    for (auto const& [name, value] :
         {std::pair(std::string("--batch"), fmt::format("{}", batch_size_of(o, grid, facts))),
          std::pair(std::string("--sampler"), o.sampler),
          std::pair(std::string("--batch-edges"), batch_edges_of(o)),
          std::pair(std::string("number of batches per step (data groups x --accumulate)"),
                    fmt::format("{}", num_batches)),
          std::pair(std::string("--batch-train-fraction"), fmt::format("{}", o.batch_train_fraction))})
      identity.push_back({name, value, models::if_both_have_it});
    if (o.sampler == "clusters")
      identity.push_back({"clusters of the store", graph::fingerprint_of_clusters(grid.world(), store),
                          models::if_both_have_it});
  }
  return identity;
}

} // namespace

models::CheckpointInterval parse_interval(std::string const& text) {
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
  throw_user("--checkpoint-every {}: give a number of epochs, such as 10, or of minutes, such as 30min",
             text);
}

template<class T>
std::int64_t host_copy_bytes(pmm::ProcessGrid const& grid, models::GcnPlan const& plan,
                             models::GcnSettings const& settings, bool writes_checkpoints) {
  auto const num_copies = std::int64_t{writes_checkpoints ? 5 : 2};
  pmm::StepPlan const step(grid.shape(), grid.coordinates(), sizeof(T));
  auto const lengths = models::lengths_of(step, models::parameters_of(plan, settings));
  return num_copies * step.scalar_bytes(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
}

bool Checkpoints::was_given(char const* option) const {
  auto const& sources = context_.run_record.at("sources");
  return sources.contains(option) && sources.at(option) != "default";
}

void Checkpoints::require_sensible() const {
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
  if (options_.resume != "never" && options_.resume != "auto" && !options_.init_from.empty())
    throw_user("--init-from {} would be ignored: --resume {} has the weights; leave one of them out",
               options_.init_from, options_.resume);
}

Checkpoints::Checkpoints(Context const& context, TrainOptions const& options)
    : context_(context),
      options_(options),
      interval_(parse_interval(options.checkpoint_every)) {
  require_sensible();
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
    models::require_writable_folder(options_.checkpoint, numbers.empty() ? 1 : numbers.back() + 1);
  });
}

void Checkpoints::identify(pmm::ProcessGrid const& grid, graph::GraphStore const& store) {
  if (!is_on()) return;
  auto const& world = context_.world();
  identity_ = identity_of(options_, context_.run_record, grid, store);
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
  models::require_same_training(path, facts.identity, identity_, options_.resume_override);
  auto const& progress = facts.progress;
  if (progress.step == 0) return;
  if (options_.mode != "minibatch")
    throw_user(
        "'{}' was written within epoch {}, at step {} of its mini-batches; go on with --mode minibatch",
        path.string(), progress.epoch, progress.step);
  if (progress.epoch > options_.epochs - options_.finish_full)
    throw_user("'{}' was written within epoch {}, at step {} of its mini-batches; with --epochs {} and "
               "--finish-full {} that epoch is on the full graph",
               path.string(), progress.epoch, progress.step, options_.epochs, options_.finish_full);
}

bool goes_on_from_checkpoint(TrainOptions const& options) {
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
  auto const has_lost_patience =
      options_.patience > 0 && progress.num_evaluations_since_best >= options_.patience;
  if (context_.world().is_root() && (progress.epoch > options_.epochs || has_lost_patience))
    context_.log().info("the training is complete in '{}'", resumed_->path.string());
  else if (context_.world().is_root())
    context_.log().info("goes on from '{}' at epoch {}{}", resumed_->path.string(), progress.epoch,
                        progress.step == 0 ? std::string() : fmt::format(", step {}", progress.step + 1));
  return progress;
}

void Checkpoints::prepare_metrics(nlohmann::ordered_json& run_record) const {
  if (!is_on()) return;
  run_record["training"] = training_;
  if (!resumed_) return;
  auto const& progress = resumed_->facts.progress;
  run_record["resumed"] = {
      {"checkpoint", resumed_->path.string()}, {"epoch", progress.epoch}, {"step", progress.step}};
  runtime::cut_metrics(context_.world(), context_.metrics.path(), training_, progress.epoch);
}

models::CheckpointSettings Checkpoints::settings(models::Architecture const& architecture) const {
  models::CheckpointSettings settings;
  settings.folder = options_.checkpoint;
  settings.first_number = models::next_checkpoint_number(
      context_.world(), options_.checkpoint,
      options_.resume == "auto" && resumed_ ? resumed_->path : std::filesystem::path());
  settings.interval = interval_;
  settings.num_kept = options_.checkpoint_keep;
  settings.is_asynchronous = options_.checkpoint_async == "on";
  settings.before_commit = [metrics = std::filesystem::path(context_.metrics.path())] {
    std::error_code ignored; // records that are lost would never come again
    if (std::filesystem::is_regular_file(metrics, ignored))
      runtime::WritableFile(metrics, runtime::WritableFile::Mode::open, {"metrics", metrics}).sync();
  };
  settings.facts.training = training_;
  settings.facts.identity = identity_;
  settings.facts.configuration = context_.run_record.at("configuration");
  settings.architecture = architecture;
  settings.architecture.push_back(gemm_record());
  if (options_.trainable_features) // not in the order of weights files
    settings.architecture.emplace_back("order_of_features", "natural, of a checkpoint");
  return settings;
}

template std::int64_t host_copy_bytes<float>(pmm::ProcessGrid const&, models::GcnPlan const&,
                                             models::GcnSettings const&, bool);
template std::int64_t host_copy_bytes<double>(pmm::ProcessGrid const&, models::GcnPlan const&,
                                              models::GcnSettings const&, bool);
template models::TrainProgress Checkpoints::resume(models::TrainingState<float>&);
template models::TrainProgress Checkpoints::resume(models::TrainingState<double>&);

} // namespace orthant::cli
