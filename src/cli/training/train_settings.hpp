#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Shared by full-graph and mini-batch training: settings made from options (`--dropout` becomes NetworkSettings::dropout), the identity
// that a checkpoint records, and the output before, during and after the epochs.

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

/// Network settings of the options. Throws UserError if they contradict each other.
[[nodiscard]] models::NetworkSettings model_of(TrainOptions const& options);
/// Axes along which the schedule `rows` overlaps messages with products. `overlap` "on": all axes; "off": none; "auto": none on a device,
/// where messages wait in the stream of the products, on the host the axes that connect different nodes, because within a node the
/// processors copy the data themselves. Same result on all ranks. Collective.
[[nodiscard]] pmm::AxisSet hidden_axes(pmm::ProcessGrid const& grid, std::string const& overlap);
/// Returns hidden_axes() as a function of the grid. Borrows `options`, which must stay valid.
[[nodiscard]] inline auto hidden_axes_of(TrainOptions const& options) {
  return [&options](pmm::ProcessGrid const& grid) { return hidden_axes(grid, options.overlap); };
}
/// Throws UserError if the options contradict each other. `eval_every`: --eval-every.
[[nodiscard]] models::OptimizerSettings optimizer_of(OptimizerOptions const& options,
                                                     std::int64_t eval_every);
[[nodiscard]] models::TrainSettings training_of(TrainOptions const& options);
/// Machine model of --machine; if none is named, the emulated machine or else the assumed one. Collective.
[[nodiscard]] pmm::Machine machine_of(runtime::Communicator const& world, std::string const& name);
/// Weights files that a training of a graph network writes at its end. Collective.
[[nodiscard]] WeightFiles weight_files_of(Context const& context, TrainOptions const& options);
/// Turns off the best epoch if the graph has no validation vertices or edges. Throws UserError if an option needs them. Not collective.
void judge_by(WeightFiles& files, TrainOptions const& options, graph::GraphStore const& store);
/// Throws UserError if --comm-dtype or --operand-dtype cannot be combined with --compute-dtype, or is not supported by the device.
void require_fitting_types(TrainOptions const& options);

/// Record of a training in a weights file: the architecture, the libraries that multiplied, and the labels.
[[nodiscard]] models::Architecture record_of_weights(models::NetworkSettings const& settings,
                                                     graph::StoreFacts const& facts);

/// Properties in which the weights of --init-from must agree with the network, except parts that --init-skip leaves out.
[[nodiscard]] models::Architecture architecture_of_init(TrainOptions const& options,
                                                        models::NetworkSettings const& settings);

/// Prints a result to stdout on rank 0.
template<class... Args>
void say(Context const& context, fmt::format_string<Args...> format, Args&&... args) {
  if (!context.world().is_root()) return;
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stdout);
  std::fflush(stdout);
}
/// Number of bytes with its unit: "12.3 MiB".
[[nodiscard]] std::string bytes_text(std::int64_t bytes);
/// Bytes by axis, such as "x 1.0 MiB, y 0 B, z 0 B, data 2.0 MiB; sent 3.0 MiB". Lists expert and data only if something was communicated
/// along them.
[[nodiscard]] std::string bytes_by_axis_text(models::CommunicatedBytes const& bytes);

/// Writes the first line of the metrics, with the fields of `more` at its end. Collective.
void begin_metrics(Context& context, pmm::ProcessGrid const& grid, TrainOptions const& options,
                   models::Schedule schedule, Checkpoints const& checkpoints,
                   nlohmann::ordered_json const& more);
void describe_graph(Context const& context, graph::GraphStore const& store);
void describe_grid(Context const& context, pmm::ProcessGrid const& grid, models::Schedule schedule);
/// Prints which rows the schedule `rows` exchanges along each axis, and their share; prints nothing if `needed` is null (all rows are
/// exchanged).
void describe_gather(Context const& context, models::NetworkPlan const& plan, pmm::NeededRows const* needed);

/// Prints how many rows and non-zeros each layer keeps in a training step.
void describe_pruning(Context const& context, models::PrunedRows const& pruned);

/// Writes a line of metrics for every epoch. Prints progress at --log-level info and below: a bar, or a line every --log-every epochs,
/// after each evaluation and after the last epoch.
class EpochLines {
 public:
  EpochLines(Context& context, TrainOptions const& options);
  void write(runtime::EpochRecord const& epoch);
  void finish() { progress_.finish(); }

 private:
  Context& context_;
  std::int64_t num_epochs_;
  std::int64_t log_every_;
  std::optional<std::pair<double, double>> last_scores_; // of validation and test, for the progress bar
  runtime::Progress progress_;
};

/// Measures the memory that a rank takes from construction on.
class MemoryMeter {
 public:
  struct Taken {
    std::int64_t resident = 0;      // peak bytes of the process
    std::int64_t device_arrays = 0; // this and the next are 0 on the host
    std::int64_t device = 0;
  };
  MemoryMeter();
  /// Maximum over the ranks. Collective.
  [[nodiscard]] Taken taken(runtime::Communicator const& world) const;

 private:
  std::int64_t resident_at_start_;
  DeviceMemory device_;
};

/// Reason why a training ended before its last epoch, and whether its weights must be written.
struct Stop {
  std::string reason; // "SIGINT", "the time limit"
  int signal = 0;     // 0: none
  bool saves_weights = false;
};
/// Describes the stop of a run. Weights are written after Ctrl-C, or if there are no checkpoints. A scheduler that ends a job leaves only
/// time for the checkpoint.
template<class T>
[[nodiscard]] Stop stop_of(ResumableRun<T> const& run, WeightFiles const& files,
                           CheckpointOptions const& checkpoints) {
  auto const has_time = run.stop_signal() == SIGINT || checkpoints.checkpoint.empty();
  return {run.stopped_by(), run.stop_signal(), has_time && files.writes(run.best() != nullptr)};
}
/// Prints and records the stop of any training: its reason, its position, and how to resume. Returns the exit status: exit_requeue if
/// there is a checkpoint to resume from, else 128 + the signal as in a shell.
[[nodiscard]] int end_stopped(Context& context, models::TrainProgress const& progress, Stop const& stop,
                              TrainingLength const& length, WeightOptions const& weights,
                              CheckpointOptions const& checkpoints);
/// Like the function above, for a training of a graph network: also prints its scores so far.
[[nodiscard]] int end_stopped(Context& context, models::TrainResult const& result, Stop const& stop,
                              TrainOptions const& options);
/// Predicted bytes per rank: of the process on the host, and of arrays on a device.
struct PredictedMemory {
  std::int64_t resident = 0;
  std::optional<std::int64_t> device_arrays{}; // nullopt: not predicted
  std::string note{};                          // printed after the resident bytes
};
/// Prints measured and predicted memory.
void describe_memory(Context const& context, MemoryMeter::Taken const& taken,
                     PredictedMemory const& predicted);
/// Adds the measured memory to the last line of the metrics.
void record_memory(nlohmann::ordered_json& done, MemoryMeter::Taken const& taken);
/// Prints the final table of a complete training, measured and predicted memory, and writes the last line of the metrics. Returns the
/// exit status. Collective.
[[nodiscard]] int end_complete(Context& context, models::TrainResult const& result,
                               TrainOptions const& options, MemoryMeter const& meter,
                               PredictedMemory const& predicted);

/// Logs the choices of the training and their reasons: grid, schedule, order of each layer's products, exchanged rows, overlap and
/// libraries. `seconds`: predicted seconds by which grid and schedule were chosen. Does nothing above --log-level debug. Not collective.
void explain_decisions(Context const& context, pmm::ProcessGrid const& grid,
                       models::EpochSeconds const& seconds, models::NetworkSettings const& settings,
                       models::NetworkPlan const& plan, TrainOptions const& options);

/// Calls checkpoints.identify() with the identity made of graph, options and batches. Collective. Throws UserError if the checkpoint to
/// resume from belongs to another training.
void identify(Checkpoints& checkpoints, TrainOptions const& options, pmm::ProcessGrid const& grid,
              graph::GraphStore const& store);

/// Host memory that copies of the parameters take on this rank (host_copy_bytes() in training/checkpoints.hpp).
template<class T>
[[nodiscard]] std::int64_t host_copy_bytes(pmm::ProcessGrid const& grid, models::NetworkPlan const& plan,
                                           models::NetworkSettings const& settings, bool writes_checkpoints);

} // namespace orthant::cli
