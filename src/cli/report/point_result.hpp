#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Result of a point of a study, stored as one line of results.jsonl: its settings as resolved, the times, bytes and memory of its
// metrics, and the values that `plan` or `plan-lm` predict (step plans of all ranks, summed; docs/design.md 2.5). Tables and figures need
// only these lines.

#include "cli/options/command.hpp"
#include "cli/study/study_file.hpp"
#include "cli/study/study_folder.hpp"
#include "models/gnn/network/counted_graph.hpp"

#include <nlohmann/json.hpp>
#include <optional>

namespace orthant::cli {

/// Predicted values of a steady epoch of `train` or step of `train-lm`.
struct PointPrediction {
  std::string machine;
  double seconds = 0;
  double sparse = 0, dense = 0, passes = 0, calls = 0; // seconds
  double sent_bytes = 0;                               // sum over all ranks
  double memory_bytes = 0;                             // maximum over the ranks; 0: not predicted
  models::Exactness sent_are = models::Exactness::about;
  std::string reason; // why the sent bytes are not exact
};

struct PointResult {
  // Settings of the point.
  std::string key, experiment, curve, command, data, mode, schedule, grid;
  bool is_weak = false;
  std::int64_t ranks = 1;
  std::int64_t repeat = 1;
  // State of the point.
  std::string state; // a result of name_of(PointState)
  std::string reason;
  // Measured values, if the point is done. Without the first epoch or step if there are others.
  std::string emulated;                 // machine with virtual seconds; empty: real clock
  bool is_oversubscribed = false;       // more ranks than cores: seconds are meaningless
  bool is_pruned = false;               // --prune left out rows
  std::vector<double> seconds;          // of each epoch or step
  std::map<std::string, double> phases; // median seconds on rank 0
  double sent_bytes = 0;                // per epoch or step, sum over all ranks
  double memory_bytes = 0;              // maximum over the ranks
  std::optional<PointPrediction> predicted;

  [[nodiscard]] bool is_done() const { return !seconds.empty(); }
  /// "epoch" or "step".
  [[nodiscard]] std::string unit() const { return command == "train-lm" ? "step" : "epoch"; }
};

/// Reads the result of a point that is done from `metrics`, the text of the file `path`. Throws UserError if this is not the metrics of a
/// complete run.
[[nodiscard]] PointResult read_result(StudyPoint const& point, std::string const& metrics,
                                      std::filesystem::path const& path);
/// Result of a point that has not produced metrics.
[[nodiscard]] PointResult result_without_metrics(StudyPoint const& point, PointStatus const& status);

[[nodiscard]] nlohmann::ordered_json to_json(PointResult const& result);
/// Reads a result from JSON. Throws nlohmann's exceptions if fields are missing or have the wrong type.
[[nodiscard]] PointResult result_of(nlohmann::json const& json);

/// Reads the lines of results.jsonl. Throws UserError, which names the line, if a line is not a result or repeats a key.
[[nodiscard]] std::vector<PointResult> read_results(std::filesystem::path const& path);

/// Quantile of the numbers at `share`, with linear interpolation; there must be at least one number.
[[nodiscard]] double quantile_of(std::vector<double> numbers, double share);

/// Predicts a point for the grid and schedule that the run has chosen. Returns nothing for mini-batches, which have no step plan before
/// they are sampled. Throws UserError if the point's data cannot be read or the machine is unknown. On one rank.
[[nodiscard]] std::optional<PointPrediction> predict(Context const& context, Study const& study,
                                                     StudyPoint const& point, PointResult const& result);

} // namespace orthant::cli
