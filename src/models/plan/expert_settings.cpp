// SPDX-License-Identifier: Apache-2.0
#include "models/plan/expert_settings.hpp"

#include "runtime/error.hpp"

#include <cmath>

namespace orthant::models {

void require_valid(ExpertSettings const& s, std::int64_t num_layers) {
  if (s.num_experts < 0) runtime::throw_user("--experts {}; 0 is none", s.num_experts);
  if (!s.is_on()) return;
  if (s.top_k < 1 || s.top_k > s.num_experts)
    runtime::throw_user("--top-k {}: a token takes at least 1 of the {} experts, and at most all of them",
                        s.top_k, s.num_experts);
  if (s.num_shared < 0) runtime::throw_user("--shared-experts {}; 0 is none", s.num_shared);
  if (s.every < 1 || s.every > num_layers)
    runtime::throw_user("--moe-every {}: no layer of {} would have experts; take 1 to {}", s.every,
                        num_layers, num_layers);
  if (s.capacity && !(*s.capacity > 0 && std::isfinite(*s.capacity)))
    runtime::throw_user("--capacity {}: an expert takes more than 0 mean loads; or none: no limit",
                        *s.capacity);
  if (s.planned_imbalance && !(*s.planned_imbalance >= 1 && std::isfinite(*s.planned_imbalance)))
    runtime::throw_user("--expert-imbalance {}: the most chosen expert has at least the mean load, 1",
                        *s.planned_imbalance);
  for (auto const coefficient : {s.balance_loss, s.z_loss, s.noise})
    if (!(coefficient >= 0 && std::isfinite(coefficient)))
      runtime::throw_user("{}: the losses and the noise of the router are at least 0", coefficient);
}

} // namespace orthant::models
