#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the user asks of the experts of a transformer: feed-forward parts of which each token takes a few.

#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::models {

/// Whose tokens fill the experts: those of all ranks, in their order, so that the grid does not change who is dropped; or those of one
/// rank along data and expert, which has experts' slots of its own, as in DeepSpeed.
enum class CapacityGroup : std::uint8_t { step, rank };

struct ExpertSettings {
  std::int64_t num_experts = 0; // 0: no layer has experts
  std::int64_t top_k = 1;       // experts of a token
  std::int64_t every = 1;       // each N-th layer has experts, the last of every N
  std::int64_t num_shared = 0;  // experts beside them that every token passes through, without a weight
  std::optional<double> capacity =
      std::nullopt; // of an expert, in mean loads of a training pass; none: nothing is dropped
  CapacityGroup capacity_group = CapacityGroup::step;
  double balance_loss = 0; // coefficients of the losses of the router (pmm/experts/routing.hpp)
  double z_loss = 0;
  double noise = 0; // deviation of what is added to the logits for the choice, in training
  /// Of predictions that do not know the loads: the most chosen expert over the mean. None: 1 for seconds, the middle of what is possible
  /// for memory (plan_for_memory()).
  std::optional<double> planned_imbalance = std::nullopt;
  /// How often each expert was chosen in an earlier run, by layers with experts: they are placed by it. Empty: in order.
  std::vector<std::vector<std::int64_t>> past_loads = {};

  [[nodiscard]] bool is_on() const { return num_experts > 0; }
  [[nodiscard]] bool has_layer(std::int64_t layer) const { return is_on() && (layer + 1) % every == 0; }
  [[nodiscard]] bool has_shared() const { return is_on() && num_shared > 0; }
  [[nodiscard]] bool has_all_layers() const { return is_on() && every == 1; }
  friend bool operator==(ExpertSettings const&, ExpertSettings const&) = default;
};

/// Throws UserError if the settings contradict one another, such as more experts of a token than there are.
void require_valid(ExpertSettings const& settings, std::int64_t num_layers);

} // namespace orthant::models
