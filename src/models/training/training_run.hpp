#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Common parts of full-graph and mini-batch training: settings, the loop over epochs with evaluations and records, and the result.
// The loop may stop after any step, and start at any step. Dropout, batches and records depend only on epoch and step, so a resumed
// run equals an uninterrupted one.

#include "models/training/gradient_sum.hpp"
#include "models/training/optimizer.hpp"
#include "models/training/vertex_loss.hpp"
#include "runtime/report/metrics.hpp"

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orthant::models {

/// Criterion for the best evaluation: accuracy of the validation part (links: ROC-AUC, regression: R2), its loss, both, or the mean
/// absolute error of a regression. See TrainProgress::add_evaluation().
enum class Monitor : std::uint8_t { accuracy, loss, both, absolute_error };

/// Accepts "accuracy", "loss", "both", "r2" (as accuracy) or "mae". Throws UserError for other words.
[[nodiscard]] Monitor parse_monitor(std::string_view word);

struct TrainSettings {
  OptimizerSettings optimizer;
  double weight_decay = 0;
  std::optional<double>
      weight_decay_first_layer; // replaces weight_decay for layer 0; biases are never decayed
  std::optional<double> weight_decay_last_layer; // the same for the last layer, head or decoder
  std::vector<std::string> without_decay;        // patterns of names of weights that are not decayed
  std::optional<double> clip_norm;               // bound of the norm of all gradients together
  std::int64_t num_epochs = 100;
  std::string unit = "epoch";   // name of an epoch in messages: language models count steps
  std::int64_t eval_every = 10; // 0: never; otherwise the last epoch is always evaluated
  Monitor monitor = Monitor::accuracy;
  std::int64_t patience = 0; // stop after N evaluations in a row without improvement; 0: never
  VertexLossSettings loss;
  bool finds_roc_auc = false;    // evaluations also compute areas under the ROC curve
  bool uses_device_graph = true; // full graph on a device: record and replay epochs
  GradientSumSettings gradient_sum;
};

/// How the states of a training are sharded over the batch axes.
[[nodiscard]] inline ShardSettings shards_of(TrainSettings const& settings, std::int64_t num_accumulated) {
  return {settings.optimizer.zero_stage, num_accumulated, settings.gradient_sum.bucket_bytes};
}

/// Names of the splits in metrics, where a score is "val_acc".
inline constexpr std::array<char const*, num_splits> split_names{"train", "val", "test"};
/// Scores of a split except its loss, by their names in metrics: "acc" and so on, "r2" and "mae" for regression, "mrr" and so on for links.
[[nodiscard]] std::vector<std::pair<std::string, double>> named_measures(SplitScore const& score);

/// The middle one of the values; of an even number the larger one, and 0 of none.
[[nodiscard]] double median(std::vector<double> values);

/// The same settings for a training with `num_steps` steps in total, over which the learning rate decays. The warm-up must be
/// shorter; otherwise throws UserError.
[[nodiscard]] TrainSettings with_num_steps(TrainSettings settings, std::int64_t num_steps);

/// The epoch with the best evaluation.
struct BestEpoch {
  std::int64_t epoch = 0; // 0: no evaluation so far
  Scores scores;
};

/// Best values of the validation part over all evaluations; the two may come from different evaluations.
struct ValidationRecords {
  double merit = 0; // largest SplitScore::merit(), or with Monitor::absolute_error -mae
  double loss = 0;  // smallest loss
};

/// Progress of a training: the position of the next step, and earlier results. Together with the parameters and the optimizer's
/// state it suffices to resume.
struct TrainProgress {
  std::int64_t epoch = 1;     // epoch of the next step, from 1; num_epochs + 1 after the last one
  std::int64_t step = 0;      // its step within that epoch, from 0
  double loss_sum = 0;        // sum of losses over the rows of that epoch's steps so far
  double loss_count = 0;      // number of these rows
  double last_loss = 0;       // loss of the last complete epoch
  std::optional<Scores> last; // scores of the last evaluation
  BestEpoch best;
  std::optional<ValidationRecords> records; // nullopt: no evaluation so far
  std::int64_t num_without_gain = 0;        // evaluations in a row without improvement
  Plateau plateau;                          // of the validation loss; used if the learning rate depends on it

  /// Records the scores of an evaluation after epoch `after_epoch`.
  ///
  ///   accuracy, loss   an evaluation that is better than all earlier ones is the best; any other one is without gain
  ///   both             an evaluation that equals or beats the highest accuracy and the lowest loss is the best; one that does neither is
  ///                    without gain, as in the program of GAT's authors
  void add_evaluation(Monitor monitor, std::int64_t after_epoch, Scores const& scores);

  void begin_epoch(std::int64_t next) {
    epoch = next;
    step = 0;
    loss_sum = loss_count = 0;
  }
};

/// Called after every step; true ends the run. All ranks call it with the same progress, and must return the same value. At the end of
/// an epoch it is called after on_epoch.
using StopRequest = std::function<bool(TrainProgress const&)>;

/// Bytes over the communicators of a grid: counted along each axis, counted over all communicators, and sent over all communicators.
struct CommunicatedBytes {
  std::array<std::int64_t, pmm::nested_axes.size()>
      by_axis{}; // axis data: includes sums over data and other axes together
  std::int64_t counted = 0;
  std::int64_t sent = 0;
  runtime::WireLoss loss; // of encoded messages

  [[nodiscard]] std::int64_t along(pmm::Axis axis) const { return by_axis[static_cast<std::size_t>(axis)]; }
};

struct TrainResult {
  TrainProgress progress;          // after the last step
  bool is_complete = false;        // all epochs are done, or the run stopped early
  bool has_stopped_early = false;  // `patience` was exceeded
  double median_epoch_seconds = 0; // of this run; excludes the first epoch if there are others
  CommunicatedBytes epoch_bytes;   // per epoch, sum over ranks
};

/// Bytes of this rank since the grid was made.
[[nodiscard]] CommunicatedBytes communicated_bytes(pmm::ProcessGrid const& grid);
/// Difference between two readings, summed over the ranks. Collective over the grid's world.
[[nodiscard]] CommunicatedBytes sum_of_difference(pmm::ProcessGrid const& grid,
                                                  CommunicatedBytes const& before,
                                                  CommunicatedBytes const& after);

/// Functions that run_epochs() calls: training steps of an epoch, evaluation, and the check of the parameters after the last epoch.
struct EpochWork {
  /// Runs the steps of an epoch from the step in the progress, which is updated. Returns a record of loss, norms, seconds and
  /// phases; nullopt if stopped before the last step.
  std::function<std::optional<runtime::EpochRecord>(TrainProgress&, StopRequest const&)> train;
  std::function<Scores()> evaluate;
  std::function<std::vector<std::int64_t>()>
      dead_layers; // layers without positive outputs in the last evaluation
  std::function<void()> require_bounded_parameters;
  std::function<void(double)> set_rate_reduction; // factor of the learning rate, from plateaus
};

/// Trains all epochs from `start` on, or until `should_stop` (empty: never) returns true, evaluates as the settings say, and adds
/// bytes and scores to the records. `on_epoch` is called after each epoch on every rank, with the same record. If the run starts
/// within an epoch, the record has the loss of the whole epoch, but seconds, bytes and phases of these steps only. Throws Error if
/// a loss after an update is not finite, before the record is passed to on_epoch, or if the parameters are not bounded at the end.
/// Collective over the grid's world.
TrainResult run_epochs(pmm::ProcessGrid const& grid, TrainSettings const& settings, EpochWork const& work,
                       std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                       TrainProgress const& start = {}, StopRequest const& should_stop = {});

/// Throws Error. `what`: the epoch (and step). `layer`: the first layer whose output is not finite, or -1; the message then names
/// the decoder if there is one.
[[noreturn]] void throw_loss_not_finite(std::string const& what, double loss, std::int64_t layer,
                                        bool has_decoder);
/// Throws Error: the training has diverged. `sign`: description of the evidence.
[[noreturn]] void throw_diverged(std::string const& sign);
/// If the same class is predicted for all vertices of splits that have several classes, a description; else empty. `dead`:
/// layers to name as the cause.
[[nodiscard]] std::string sign_of_collapse(Scores const& scores, std::vector<std::int64_t> const& dead);
/// Whether sign_of_collapse() returns a description.
[[nodiscard]] bool are_all_alike(Scores const& scores);
/// Description of the first split whose loss is not finite, "the loss of the train vertices is nan"; else empty.
[[nodiscard]] std::string sign_of_divergence(Scores const& scores);

} // namespace orthant::models
