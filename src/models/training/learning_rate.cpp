// SPDX-License-Identifier: Apache-2.0
#include "models/training/learning_rate.hpp"

#include "runtime/error.hpp"

namespace orthant::models {

RateDecay parse_rate_decay(std::string_view word) {
  if (word == "constant") return RateDecay::constant;
  if (word == "linear") return RateDecay::linear;
  if (word == "cosine") return RateDecay::cosine;
  if (word == "step") return RateDecay::step;
  if (word == "plateau") return RateDecay::plateau;
  if (word == "wsd") return RateDecay::wsd;
  if (word == "inverse-sqrt") return RateDecay::inverse_sqrt;
  runtime::throw_user(
      "--lr-schedule is constant, step, linear, cosine, plateau, wsd or inverse-sqrt, not '{}'", word);
}

void Plateau::add(RateSchedule const& schedule, double loss) {
  constexpr double least_gain = 1e-4; // relative to the smallest loss
  if (!least_loss || loss < *least_loss * (1 - least_gain)) {
    least_loss = loss;
    num_since = 0;
    return;
  }
  if (++num_since <= schedule.plateau_patience) return;
  num_since = 0;
  reduction *= schedule.factor;
}

} // namespace orthant::models
