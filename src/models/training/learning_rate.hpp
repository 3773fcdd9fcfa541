#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The learning rate of step t = 1, 2, .., T. The first w steps warm up, and f = max(w, 1) is the first step at
// the full rate:
//
//   t < w       rate t / w
//   constant    rate
//   linear      u rate + (1 - u) min_rate          u = 1 - (t - f) / (T - f)
//   cosine      u rate + (1 - u) min_rate          u = (1 + cos(pi (t - f) / (T - f))) / 2
//
// The last step has min_rate. Nothing else is remembered, so a training that goes on from step t has the rates
// of one that never stopped. Sources: Loshchilov & Hutter (arXiv 1608.03983); warm-up: Goyal et al. (arXiv
// 1706.02677).

#include "runtime/device/kokkos_compat_device.hpp"

#include <cstdint>
#include <string_view>

namespace orthant::models {

enum class RateDecay : std::uint8_t { constant, linear, cosine };

/// "constant", "linear" or "cosine". Throws UserError for another word.
[[nodiscard]] RateDecay parse_rate_decay(std::string_view word);

struct RateSchedule {
  RateDecay decay = RateDecay::constant;
  std::int64_t num_warmup_steps = 0;
  double min_rate = 0;         // linear and cosine only
  std::int64_t num_steps = -1; // T, of the whole training; -1: not known, which a constant rate does without
};

/// The learning rate of step t, from 1. Steps after the last one have its rate.
KOKKOS_INLINE_FUNCTION double learning_rate_at(RateSchedule const& schedule, double rate, double t) {
  auto const num_warmup_steps = static_cast<double>(schedule.num_warmup_steps);
  if (t < num_warmup_steps) return rate * (t / num_warmup_steps);
  auto const first = num_warmup_steps > 1 ? num_warmup_steps : 1.0;
  if (schedule.decay == RateDecay::constant || t <= first) return rate;
  auto const last = static_cast<double>(schedule.num_steps);
  auto const share = t < last ? (t - first) / (last - first) : 1.0;
  constexpr auto pi = 3.14159265358979323846;
  auto const u = schedule.decay == RateDecay::linear ? 1 - share : (1 + runtime::compat::cos(pi * share)) / 2;
  return u * rate + (1 - u) * schedule.min_rate;
}

} // namespace orthant::models
