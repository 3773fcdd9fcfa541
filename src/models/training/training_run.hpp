#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What full-graph and mini-batch training have in common: settings, the loop over epochs with its evaluations
// and records, and the result. The loop may stop after any step, and start at any: dropout, batches and
// records follow from the epoch and the step alone, so a run that goes on is the run that never stopped.

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

/// What makes an evaluation better than those before it: the accuracy (links: ROC-AUC), the loss, or both of the validation part.
/// See TrainProgress::add_evaluation().
enum class Monitor : std::uint8_t { accuracy, loss, both };

/// "accuracy", "loss" or "both". Throws UserError for another word.
[[nodiscard]] Monitor parse_monitor(std::string_view word);

struct TrainSettings {
  OptimizerSettings optimizer;
  double weight_decay = 0;
  std::optional<double>
      weight_decay_first_layer; // in place of weight_decay, for layer 0; biases are never decayed
  std::optional<double>
      weight_decay_last_layer; // the same, for the layer with the highest number: the last one, the head or the decoder
  std::optional<double> clip_norm; // of all gradients together
  std::int64_t num_epochs = 100;
  std::string unit = "epoch";   // what messages call one: language models count steps
  std::int64_t eval_every = 10; // 0: never; the last epoch is always evaluated otherwise
  Monitor monitor = Monitor::accuracy;
  std::int64_t patience = 0; // stop after so many evaluations in a row that brought nothing better; 0: never
  VertexLossSettings loss;
  bool finds_roc_auc = false;    // in evaluations
  bool uses_device_graph = true; // full graph, on a device: replay the epochs if nothing but numbers changes
  GradientSumSettings gradient_sum;
};

/// "mrr", "hits_at_10" and so on, as metrics call them.
[[nodiscard]] std::vector<std::pair<std::string, double>> named_measures(RankingScore const& ranking);

/// The same settings for a training of that many steps in all, over which the learning rate decays. Throws
/// UserError if its warm-up leaves none of them.
[[nodiscard]] TrainSettings with_num_steps(TrainSettings settings, std::int64_t num_steps);

/// The epoch with the best evaluation.
struct BestEpoch {
  std::int64_t epoch = 0; // 0: none was evaluated
  Scores scores;
};

/// The best numbers of the validation part, each of any evaluation.
struct ValidationRecords {
  double merit = 0; // SplitScore::merit(), the highest
  double loss = 0;  // the least
};

/// How far a training has come: where its next step is, and what was found before it. This, the parameters
/// and the optimiser's state are all that it needs to go on.
struct TrainProgress {
  std::int64_t epoch = 1;     // of the next step, from 1; num_epochs + 1 after the last
  std::int64_t step = 0;      // of that epoch, from 0
  double loss_sum = 0;        // of that epoch's steps so far: the sum over their rows,
  double loss_count = 0;      // and the number of rows
  double last_loss = 0;       // of the last whole epoch
  std::optional<Scores> last; // of the last evaluation
  BestEpoch best;
  std::optional<ValidationRecords> records; // none was evaluated
  std::int64_t num_without_gain = 0;        // evaluations in a row, what patience counts
  Plateau plateau;                          // of the validation loss, if the learning rate follows from it

  /// Takes the scores of an evaluation after that epoch. accuracy, loss: an evaluation that is better than all before it
  /// is the best, and any other is one without gain. both: one that equals or beats the highest accuracy and the
  /// least loss so far is the best, and one that does neither is without gain, as in the program of GAT's authors.
  void add_evaluation(Monitor monitor, std::int64_t after_epoch, Scores const& scores);

  void begin_epoch(std::int64_t next) {
    epoch = next;
    step = 0;
    loss_sum = loss_count = 0;
  }
};

/// Asked after every step: true ends the run. All ranks are asked with the same progress and must answer
/// alike. The last step of an epoch is done when the epoch's record has been handed out.
using StopRequest = std::function<bool(TrainProgress const&)>;

/// Bytes over the communicators of a grid: counted along each axis, counted over all communicators, and sent over all.
struct CommunicatedBytes {
  std::array<std::int64_t, pmm::nested_axes.size()> by_axis{}; // data: also over {expert, data} together
  std::int64_t counted = 0;
  std::int64_t sent = 0;

  [[nodiscard]] std::int64_t along(pmm::Axis axis) const { return by_axis[static_cast<std::size_t>(axis)]; }
};

struct TrainResult {
  TrainProgress progress;          // behind the last step
  bool is_complete = false;        // all epochs are done, or its patience has ended
  bool has_stopped_early = false;  // the latter
  double median_epoch_seconds = 0; // of this run, without the first epoch if there are others
  CommunicatedBytes epoch_bytes;   // in an epoch, sum over ranks
};

/// Those of this rank since its start.
[[nodiscard]] CommunicatedBytes communicated_bytes(pmm::ProcessGrid const& grid);
/// The difference between two moments, summed over the ranks. Collective over the grid's world.
[[nodiscard]] CommunicatedBytes sum_of_difference(pmm::ProcessGrid const& grid,
                                                  CommunicatedBytes const& before,
                                                  CommunicatedBytes const& after);

/// What run_epochs() calls: the training steps of an epoch, the evaluation, and the check of the parameters
/// after the last epoch.
struct EpochWork {
  /// The steps of an epoch from where the progress is, which goes along. A record of loss, norms, seconds and
  /// phases; none if it was told to stop before the last step.
  std::function<std::optional<runtime::EpochRecord>(TrainProgress&, StopRequest const&)> train;
  std::function<Scores()> evaluate;
  std::function<std::vector<std::int64_t>()> dead_layers; // in the last evaluation
  std::function<void()> require_bounded_parameters;
  std::function<void(double)> set_rate_reduction; // of the learning rate, by plateaus
};

/// Trains all epochs from `start` on, or until `should_stop` (empty: never), evaluates those that are due, and
/// adds bytes and scores to their records; `on_epoch` is called after each, on every rank, with the same
/// record. If it starts within an epoch, that one's record has the loss of the whole epoch, but the seconds,
/// bytes and phases of these steps alone. Throws Error, before the epoch's record is handed out, if a loss
/// after its update is not finite, and if the parameters are not bounded after the last one. Collective over
/// the grid's world.
TrainResult run_epochs(pmm::ProcessGrid const& grid, TrainSettings const& settings, EpochWork const& work,
                       std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                       TrainProgress const& start = {}, StopRequest const& should_stop = {});

/// Throws Error: `what` is the epoch (and step), `layer` the first whose output is not finite, or -1; then a decoder is to
/// blame, if there is one.
[[noreturn]] void throw_loss_not_finite(std::string const& what, double loss, std::int64_t layer,
                                        bool has_decoder);
/// Throws Error: the training has diverged, as `sign` shows.
[[noreturn]] void throw_diverged(std::string const& sign);
/// Empty, or what is predicted for all vertices of the splits, which have several classes: one class. `dead`
/// are the layers that are to blame.
[[nodiscard]] std::string sign_of_collapse(Scores const& scores, std::vector<std::int64_t> const& dead);
/// Whether sign_of_collapse() has something to say.
[[nodiscard]] bool are_all_alike(Scores const& scores);
/// Empty, or the first split whose loss is not finite: "the loss of the train vertices is nan".
[[nodiscard]] std::string sign_of_divergence(Scores const& scores);

} // namespace orthant::models
