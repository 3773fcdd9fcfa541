#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What full-graph and mini-batch training share: the settings that their options become (`--dropout` to
// NetworkSettings::dropout), the identity that a checkpoint records, and what is printed before, during and after the epochs.

#include "cli/machine/device_memory.hpp"
#include "cli/options/command.hpp"
#include "cli/training/checkpoints.hpp"
#include "cli/training/train_options.hpp"
#include "cli/training/weight_files.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/files/network_weights.hpp"
#include "models/gnn/network/grid_choice.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "models/gnn/pruning/pruned_rows.hpp"
#include "models/training/trainer.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/report/progress.hpp"

#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

namespace orthant::cli {

/// Of --comm-dtype and --operand-dtype: fp32 is the scalar of training.
[[nodiscard]] runtime::Wire wire_of(std::string const& word);
/// What the options ask for.
[[nodiscard]] models::NetworkSettings model_of(TrainOptions const& options);
/// Axes along which the schedule rows sends while it multiplies: of `overlap` "on" all, of "off" none, of
/// "auto" on host processors those that reach other nodes. Within a node processors move the data themselves,
/// and on a device messages wait in the stream of the products. The same on all ranks. Collective.
[[nodiscard]] pmm::AxisSet hidden_axes(pmm::ProcessGrid const& grid, std::string const& overlap);
/// The same as a function of the grid.
[[nodiscard]] inline auto hidden_axes_of(TrainOptions const& options) {
  return [&options](pmm::ProcessGrid const& grid) { return hidden_axes(grid, options.overlap); };
}
/// Throws UserError if the options contradict each other. `eval_every`: --eval-every.
[[nodiscard]] models::OptimizerSettings optimizer_of(OptimizerOptions const& options,
                                                     std::int64_t eval_every);
[[nodiscard]] models::TrainSettings training_of(TrainOptions const& options);
/// Of --machine; the assumed one where none is named. Collective.
[[nodiscard]] pmm::Machine machine_of(runtime::Communicator const& world, std::string const& name);
/// Which files get weights at the end of a training of a graph network. Collective.
[[nodiscard]] WeightFiles weight_files_of(Context const& context, TrainOptions const& options);
/// Without validation vertices nothing is the best. Throws UserError if an option needs them. Not collective.
void judge_by(WeightFiles& files, TrainOptions const& options, graph::GraphStore const& store);
/// Throws UserError if --comm-dtype or --operand-dtype does not go with --compute-dtype, or not with a device.
void require_fitting_types(TrainOptions const& options);
/// Throws UserError if rows are to be pruned where there are no owners of all of them.
void require_prunable(TrainOptions const& options);

/// What a weights file says of a training: the architecture, and which libraries multiplied.
[[nodiscard]] models::Architecture record_of_weights(models::NetworkSettings const& settings,
                                                     graph::StoreFacts const& facts);

/// Results go to stdout of rank 0.
template<class... Args>
void say(Context const& context, fmt::format_string<Args...> format, Args&&... args) {
  if (!context.world().is_root()) return;
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stdout);
  std::fflush(stdout);
}
/// "12.3 MiB".
[[nodiscard]] std::string bytes_text(std::int64_t bytes);
/// "x 1.0 MiB, y 0 B, z 0 B, data 2.0 MiB; sent 3.0 MiB": expert and data only where something was communicated along them.
[[nodiscard]] std::string bytes_by_axis_text(models::CommunicatedBytes const& bytes);

/// The first line of the metrics, with the fields of `more` at its end. Collective.
void begin_metrics(Context& context, pmm::ProcessGrid const& grid, TrainOptions const& options,
                   models::Schedule schedule, Checkpoints const& checkpoints,
                   nlohmann::ordered_json const& more);
void describe_graph(Context const& context, graph::GraphStore const& store);
void describe_grid(Context const& context, pmm::ProcessGrid const& grid, models::Schedule schedule);
/// Which rows move between owners of vertices, and the share that was found; nothing if all rows were asked
/// for.
void describe_gather(Context const& context, models::NetworkPlan const& plan, pmm::NeededRows const* needed);

/// How many rows and non-zeros each layer keeps in a training step.
void describe_pruning(Context const& context, models::PrunedRows const& pruned);

/// A line of metrics for every epoch, and the bar, or a line of progress for every --log-every epochs, for every
/// evaluated one and for the last. Only with --log-level info and below there is progress.
class EpochLines {
 public:
  EpochLines(Context& context, TrainOptions const& options);
  void write(runtime::EpochRecord const& epoch);
  void finish() { progress_.finish(); }

 private:
  Context& context_;
  std::int64_t num_epochs_;
  std::int64_t log_every_;
  std::optional<std::pair<double, double>> last_scores_; // accuracies of valid and test: the bar keeps them
  runtime::Progress progress_;
};

/// What a rank takes from the meter's construction on, the most of any rank.
class MemoryMeter {
 public:
  struct Taken {
    std::int64_t resident = 0;      // bytes of the process at their peak
    std::int64_t device_arrays = 0; // both 0 on the host
    std::int64_t device = 0;
  };
  MemoryMeter();
  /// Collective.
  [[nodiscard]] Taken taken(runtime::Communicator const& world) const;

 private:
  std::int64_t resident_at_start_;
  DeviceMemory device_;
};

/// Why a training ended before its last epoch, and whether its weights are to be written.
struct Stop {
  std::string reason; // "SIGINT", "the time limit"
  int signal = 0;     // 0: none
  bool saves_weights = false;
};
/// Of a run that was stopped. A scheduler that ends a job gives it little time, in which there is a checkpoint;
/// somebody who asks for its end wants what there is.
template<class T>
[[nodiscard]] Stop stop_of(ResumableRun<T> const& run, WeightFiles const& files,
                           CheckpointOptions const& checkpoints) {
  auto const has_time = run.stop_signal() == SIGINT || checkpoints.checkpoint.empty();
  return {run.stopped_by(), run.stop_signal(), has_time && files.writes(run.best() != nullptr)};
}
/// Of any training that was stopped: what stopped it, where, and how to go on. Returns the status to leave with:
/// exit_requeue if there is a checkpoint to go on from, else that of a shell for the signal.
[[nodiscard]] int end_stopped(Context& context, models::TrainProgress const& progress, Stop const& stop,
                              TrainingLength const& length, WeightOptions const& weights,
                              CheckpointOptions const& checkpoints);
/// Of a training that was stopped: its scores so far, what stopped it, where, and how to go on. Returns the status
/// to leave with: exit_requeue if there is a checkpoint to go on from, else that of a shell for the signal.
[[nodiscard]] int end_stopped(Context& context, models::TrainResult const& result, Stop const& stop,
                              TrainOptions const& options);
/// Bytes per rank that were predicted: of the process on the host, and of arrays on a device.
struct PredictedMemory {
  std::int64_t resident = 0;
  std::optional<std::int64_t> device_arrays{}; // none: nothing was said of them
  std::string note{};                          // said behind the resident bytes
};
/// Says what was taken, beside what was predicted.
void describe_memory(Context const& context, MemoryMeter::Taken const& taken,
                     PredictedMemory const& predicted);
/// Its fields in the last line of the metrics.
void record_memory(nlohmann::ordered_json& done, MemoryMeter::Taken const& taken);
/// Of a training that is complete: the final table, memory beside what was predicted, and the last line of the
/// metrics. Returns the status to leave with. Collective.
[[nodiscard]] int end_complete(Context& context, models::TrainResult const& result,
                               TrainOptions const& options, MemoryMeter const& meter,
                               PredictedMemory const& predicted);

/// Grid, schedule, order of each layer's products, rows that move, overlap, and what multiplies. `seconds`: what grid and
/// schedule were chosen by. Does nothing unless such lines are printed. Not collective.
void explain_decisions(Context const& context, pmm::ProcessGrid const& grid,
                       models::EpochSeconds const& seconds, models::NetworkSettings const& settings,
                       models::NetworkPlan const& plan, TrainOptions const& options);

/// checkpoints.identify() by graph, options and batches. Collective. Throws UserError as that does.
void identify(Checkpoints& checkpoints, TrainOptions const& options, pmm::ProcessGrid const& grid,
              graph::GraphStore const& store);

/// Of the parameters of a GCN.
template<class T>
[[nodiscard]] std::int64_t host_copy_bytes(pmm::ProcessGrid const& grid, models::NetworkPlan const& plan,
                                           models::NetworkSettings const& settings, bool writes_checkpoints);

/// What a checkpoint says of the architecture.
[[nodiscard]] models::Architecture record_of_checkpoint(models::NetworkSettings const& settings);

} // namespace orthant::cli
