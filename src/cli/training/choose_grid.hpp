#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// --measure-top K: the K grids that are predicted to be fastest train three steps each, in the job itself, and the fastest is kept.
// Each candidate has a network of its own, which is gone before the next one begins; so the training that follows is to the
// bit the one that a user starts on that grid.

#include "cli/options/command.hpp"
#include "models/gnn/batches/mini_batch.hpp"
#include "models/gnn/network/grid_choice.hpp"

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace orthant::cli {

inline constexpr std::int64_t num_measured_steps = 3;

/// A grid that is tried.
struct Candidate {
  nlohmann::ordered_json name;  // "grid", and "schedule" if there is one
  double predicted_seconds = 0; // of a step
};

/// Which of them is the fastest, and what is to be said in the metrics of all.
struct Measured {
  std::size_t best = 0;
  nlohmann::ordered_json record = nlohmann::ordered_json::array();
};

/// `steps_of(i)` trains candidate i and returns the seconds of each step on this rank; none if it does not fit, on all ranks alike.
/// The least step counts, on the rank that takes longest in it. The same on all ranks; if nothing fits the first. Logs the outcome.
/// Collective.
[[nodiscard]] Measured measure(Context const& context, std::vector<Candidate> const& candidates,
                               std::function<std::vector<double>(std::size_t)> const& steps_of);

/// A stop after the measured steps that keeps the seconds of each.
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

/// What the candidates of a graph network train on.
struct MeasuredTraining {
  Context const& context;
  graph::GraphStore const& store;
  models::NetworkSettings model; // but schedule and hidden axes
  models::TrainSettings settings;
  std::function<pmm::AxisSet(pmm::ProcessGrid const&)> hidden_axes;
  std::int64_t num_candidates = 0; // --measure-top
  std::int64_t memory = 0;         // that a rank can hold; 0: any
};

struct ChosenGrid {
  models::GridChoice choice;
  nlohmann::ordered_json record; // of the metrics; empty if nothing was measured
};

/// Of the first `num_candidates` choices the fastest one in fact; the first if there are fewer than two. T is the scalar of training.
/// Collective.
template<class T>
[[nodiscard]] ChosenGrid choose_by_full_graph_steps(MeasuredTraining const& training,
                                                    std::vector<models::GridChoice> choices);
template<class T>
[[nodiscard]] ChosenGrid
choose_by_mini_batch_steps(MeasuredTraining const& training, std::vector<models::GridChoice> choices,
                           models::MiniBatchSettings const& batches, std::int64_t num_steps);

} // namespace orthant::cli
