#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// --measure-top K: trains three steps on each of the K grids that are predicted to be fastest, within the job, and keeps the fastest one.
// Each candidate gets a network of its own, which is destroyed before the next one is built. So the training that follows gives bitwise
// the same results as one that is started on that grid.

#include "cli/options/command.hpp"
#include "models/gnn/batches/mini_batch.hpp"
#include "models/gnn/network/grid_choice.hpp"

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

namespace orthant::cli {

inline constexpr std::int64_t num_measured_steps = 3;

/// A grid to measure.
struct Candidate {
  nlohmann::ordered_json name;  // {"grid": .., "schedule": ..}; language models have no schedule
  double predicted_seconds = 0; // per step
};

/// Index of the fastest candidate, and the record of all candidates for the metrics.
struct Measured {
  std::size_t best = 0;
  nlohmann::ordered_json record = nlohmann::ordered_json::array();
};

/// Measures the candidates. `steps_of(i)` trains candidate i and returns the seconds of each step on this rank; an empty list, on all
/// ranks, if the candidate does not fit. The time of a step is that of its slowest rank; the fastest step of a candidate counts. Logs the
/// outcome. Returns the same on all ranks; the first candidate if none fits. Collective.
[[nodiscard]] Measured measure(Context const& context, std::vector<Candidate> const& candidates,
                               std::function<std::vector<double>(std::size_t)> const& steps_of);

/// Stops a training after `num_measured_steps` steps and records the seconds of each.
class StepClock {
 public:
  explicit StepClock(runtime::RunClock& clock) : clock_(clock) {}
  [[nodiscard]] models::StopRequest stop();
  [[nodiscard]] std::vector<double> const& seconds() const { return seconds_; }

 private:
  runtime::RunClock& clock_;
  runtime::RunClock::Clock::time_point last_{};
  std::vector<double> seconds_;
};

/// Data and settings that all candidates of a graph network share.
struct MeasuredTraining {
  Context const& context;
  graph::GraphStore const& store;
  models::NetworkSettings model; // schedule and hidden axes are set per candidate
  models::TrainSettings settings;
  std::function<pmm::AxisSet(pmm::ProcessGrid const&)> hidden_axes;
  std::int64_t num_candidates = 0; // --measure-top
  std::int64_t memory = 0;         // bytes that a rank can hold; 0: no limit
};

struct ChosenGrid {
  models::GridChoice choice;
  nlohmann::ordered_json record; // for the metrics; null if nothing was measured
};

/// Measures the first `num_candidates` choices and returns the fastest one; returns the first choice if there are fewer than two
/// candidates. T is the scalar of training. Collective.
template<class T>
[[nodiscard]] ChosenGrid choose_by_full_graph_steps(MeasuredTraining const& training,
                                                    std::vector<models::GridChoice> choices);
template<class T>
[[nodiscard]] ChosenGrid
choose_by_mini_batch_steps(MeasuredTraining const& training, std::vector<models::GridChoice> choices,
                           models::MiniBatchSettings const& batches, std::int64_t num_steps);

} // namespace orthant::cli
