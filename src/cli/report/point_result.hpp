#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a point has shown: its settings as resolved, times, bytes and memory of its metrics, and what was predicted of them. One line
// of results.jsonl, which is all that tables and figures are made of.
//
// What `plan` and `plan-lm` predict of a point: the lists of the steps of all ranks, summed (docs/design.md 2.5).

#include "cli/options/command.hpp"
#include "cli/study/study_file.hpp"
#include "cli/study/study_folder.hpp"
#include "models/gnn/plan/counted_graph.hpp"

#include <nlohmann/json.hpp>
#include <optional>

namespace orthant::cli {

/// Of the steady state: an epoch of `train` or a step of `train-lm`.
struct PointPrediction {
  std::string machine;
  double seconds = 0;
  double sparse = 0, dense = 0, passes = 0, calls = 0; // seconds
  double sent_bytes = 0;                               // of all ranks together
  double memory_bytes = 0;                             // of the rank that holds most; 0: not predicted
  models::Exactness sent_are = models::Exactness::about;
  std::string reason; // why sent bytes are not exact
};

struct PointResult {
  // The point.
  std::string key, experiment, curve, command, data, mode, schedule, grid;
  bool is_weak = false;
  std::int64_t ranks = 1;
  std::int64_t repeat = 1;
  // How it ended.
  std::string state; // as name_of(PointState)
  std::string reason;
  // What it measured, if it is done. Without the first epoch or step, if there are others.
  std::string emulated; // machine whose clocks were taken; empty: seconds are of this machine's clock
  bool is_oversubscribed = false;       // there were more ranks than cores: seconds mean nothing
  bool is_pruned = false;               // rows were left out
  std::vector<double> seconds;          // of each
  std::map<std::string, double> phases; // median seconds, of rank 0
  double sent_bytes = 0;                // of each, of all ranks together
  double memory_bytes = 0;              // of the rank that took most
  std::optional<PointPrediction> predicted;

  [[nodiscard]] bool is_done() const { return !seconds.empty(); }
  /// "epoch" or "step".
  [[nodiscard]] std::string unit() const { return command == "train-lm" ? "step" : "epoch"; }
};

/// From the metrics of a point that is done, the text of the file `path`. Throws UserError if they are not those of a whole run.
[[nodiscard]] PointResult read_result(StudyPoint const& point, std::string const& metrics,
                                      std::filesystem::path const& path);
/// Of a point without a result.
[[nodiscard]] PointResult result_without_metrics(StudyPoint const& point, PointStatus const& status);

[[nodiscard]] nlohmann::ordered_json to_json(PointResult const& result);
/// Throws nlohmann's exceptions if fields are missing or of another kind.
[[nodiscard]] PointResult result_of(nlohmann::json const& json);

/// The lines of results.jsonl, which have different keys. Throws UserError, which names the line, for others.
[[nodiscard]] std::vector<PointResult> read_results(std::filesystem::path const& path);

/// The number below which that share of them lies, linear between two; there is at least one.
[[nodiscard]] double quantile_of(std::vector<double> numbers, double share);

/// Of the grid and schedule that the run has chosen. Nothing for mini-batches, which have no list before they are sampled. Throws
/// UserError if the point's data cannot be read, or the machine is not known. On one rank.
[[nodiscard]] std::optional<PointPrediction> predict(Context const& context, Study const& study,
                                                     StudyPoint const& point, PointResult const& result);

} // namespace orthant::cli
