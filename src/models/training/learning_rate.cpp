// SPDX-License-Identifier: Apache-2.0
#include "models/training/learning_rate.hpp"

#include "runtime/error.hpp"

namespace orthant::models {

RateDecay parse_rate_decay(std::string_view word) {
  if (word == "constant") return RateDecay::constant;
  if (word == "linear") return RateDecay::linear;
  if (word == "cosine") return RateDecay::cosine;
  runtime::throw_user("--lr-schedule is constant, linear or cosine, not '{}'", word);
}

} // namespace orthant::models
