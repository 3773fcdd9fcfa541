#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Trainings of small transformers with pruned weights, on grids with experts and stages of pipelines.

#include "models/lm/checkpointed_training.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/plan/step_cases.hpp"

#include <cmath>
#include <numeric>

namespace orthant::testing {

using models::OptimizerKind, models::Parameter, models::PruneSettings, pmm::Axis;

struct PrunedCase {
  std::string name;
  LmCase lm;
};

inline std::vector<PrunedCase> pruned_cases() {
  std::vector<PrunedCase> all{{"gpt with a tied head", small_gpt()},
                              {"llama with dropout and a head of its own", small_gpt()},
                              {"experts", small_gpt()},
                              {"experts in every second layer, one shared", small_gpt()}};
  auto& llama = all[1].lm.settings;
  llama.norm = models::NormKind::rms;
  llama.activation = models::FeedForward::swiglu;
  llama.positions = models::Positions::rotary;
  llama.has_bias = llama.tied_head = false;
  llama.dropout = 0.1;
  llama.feed_forward = 31; // parts with padding
  for (auto* const with_experts : {&all[2], &all[3]}) {
    auto& experts = with_experts->lm.settings.experts;
    experts.num_experts = 8;
    experts.top_k = 2;
    experts.balance_loss = experts.z_loss = 0;
  }
  all[3].lm.settings.experts.every = 2;
  all[3].lm.settings.experts.num_shared = 1;
  for (auto& each : all)
    each.lm.num_sequences = 16;
  return all;
}

inline models::TrainSettings settings_of(PruneSettings const& pruning,
                                         OptimizerKind kind = OptimizerKind::adamw,
                                         std::optional<double> clip_norm = {}) {
  models::TrainSettings settings;
  settings.optimizer.kind = kind;
  settings.optimizer.learning_rate = kind == OptimizerKind::sgd ? 0.1 : 0.003;
  settings.optimizer.pruning = pruning;
  settings.weight_decay = 0.1;
  settings.clip_norm = clip_norm;
  settings.gradient_sum = {1000, true};
  return settings;
}

/// The magnitude that a serial sort of all numbers finds: N - floor(S N) of them are kept, at least one.
inline double threshold_of(std::vector<double> numbers, double share) {
  for (auto& number : numbers)
    number = std::abs(number);
  std::ranges::sort(numbers);
  auto const count = static_cast<double>(numbers.size());
  return numbers.at(std::min(static_cast<std::size_t>(std::floor(share * count)), numbers.size() - 1));
}
inline bool is_kept(double number, double threshold) {
  return std::abs(number) >= threshold && number != 0;
}

/// data, expert, x, y, z, pipe.
class PrunedTraining : public ::testing::TestWithParam<std::array<int, 6>> {
 protected:
  PrunedTraining()
      : grid_(world_, {.data = GetParam()[0],
                       .x = GetParam()[2],
                       .y = GetParam()[3],
                       .z = GetParam()[4],
                       .expert = GetParam()[1],
                       .pipe = GetParam()[5]}),
        one_(self_, {}) {}
  [[nodiscard]] bool can_train(LmCase const& the_case) const { return can_train(the_case, grid_.shape()); }
  [[nodiscard]] static bool can_train(LmCase const& the_case, pmm::GridShape const& shape) {
    return fits(the_case, shape) && (shape.expert == 1 || the_case.settings.experts.is_on());
  }
  [[nodiscard]] std::int64_t num_batch_ranks() const { return grid_.size(batch_axes(grid_.shape())); }
  /// Whether this rank has all weights of the model.
  [[nodiscard]] bool has_all_weights() const {
    return grid_.group().size() == 1 && grid_.size({Axis::expert, Axis::pipe}) == 1;
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"}, self_{MPI_COMM_SELF, "self"};
  pmm::ProcessGrid grid_, one_;
};

inline LmTraining train(pmm::ProcessGrid const& grid, LmCase const& the_case,
                        models::TrainSettings const& settings, std::int64_t num_accumulated) {
  LmTrainer training(grid, the_case, 8, num_accumulated, settings);
  return run_to_the_end(training);
}

/// All grids; with two ranks along data, also as experts, and as stages of a pipeline.
inline std::vector<std::array<int, 6>> pruning_grids() {
  std::vector<std::array<int, 6>> all;
  for (auto const& [data, x, y, z] : grids_4d(world_size())) {
    all.push_back({data, 1, x, y, z, 1});
    if (data % 2 != 0) continue;
    all.push_back({data / 2, 2, x, y, z, 1});
    all.push_back({data / 2, 1, x, y, z, 2});
  }
  return all;
}
} // namespace orthant::testing
