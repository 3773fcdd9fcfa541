#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The learning rate of step t = 1, 2, .., T. The first w steps are warm-up; f = max(w, 1) is the first step with the full rate:
//
//   t < w       rate t / w
//   constant    rate
//   linear      u rate + (1 - u) min_rate          u = 1 - (t - f) / (T - f)
//   cosine      u rate + (1 - u) min_rate          u = (1 + cos(pi (t - f) / (T - f))) / 2
//   step        max(u rate, min_rate)              u = factor^k, k = (t - f) div step_length
//   plateau     max(u rate, min_rate)              u = factor^k, k = the number of plateaus so far
//   wsd         u rate + (1 - u) min_rate          u = min(1, (T - t) / (T - s)), s = max(f, (1 - decay_share) T)
//   inverse_sqrt  max(u rate, min_rate)            u = sqrt(f / t)
//
// The last step of linear, cosine and wsd (warm-up, stable, decay) has the rate min_rate. A plateau is a series of more than `patience` evaluations whose
// validation loss is not below the smallest loss so far by at least a relative 1e-4. No other state is kept, so a training that
// resumes at step t has the rates of an uninterrupted one. Sources: Loshchilov & Hutter (arXiv 1608.03983); warm-up: Goyal et al.
// (arXiv 1706.02677); plateau: PyTorch's ReduceLROnPlateau; wsd: Hu et al. (arXiv 2404.06395); inverse_sqrt: Vaswani et al. (arXiv
// 1706.03762).

#include "runtime/device/kokkos_compat.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace orthant::models {

enum class RateDecay : std::uint8_t { constant, linear, cosine, step, plateau, wsd, inverse_sqrt };

/// Accepts "constant", "step", "linear", "cosine", "plateau", "wsd" or "inverse-sqrt". Throws UserError for other words.
[[nodiscard]] RateDecay parse_rate_decay(std::string_view word);

struct RateSchedule {
  RateDecay decay = RateDecay::constant;
  std::int64_t num_warmup_steps = 0;
  double min_rate = 0;          // not used by constant
  std::int64_t num_steps = -1;  // T, of the whole training; -1: unknown. Used by linear, cosine and wsd
  std::int64_t step_length = 0; // step only
  double factor = 0.1;          // step and plateau only
  std::int64_t plateau_patience = 10;
  double decay_share = 0.2; // wsd only: share of the steps, at the end, in which the rate falls

  [[nodiscard]] bool ends_with_training() const {
    return decay == RateDecay::linear || decay == RateDecay::cosine || decay == RateDecay::wsd;
  }
};

/// State of the plateau schedule.
struct Plateau {
  std::optional<double> least_loss;
  std::int64_t num_since = 0; // evaluations since least_loss, or since the last plateau
  double reduction = 1;       // u, the factor of the rate

  /// Records the validation loss of an evaluation.
  void add(RateSchedule const& schedule, double loss);
};

/// Learning rate of step t, counted from 1. `reduction`: factor by which plateaus have reduced the rate. Steps after the last one
/// have the rate of the last one.
KOKKOS_INLINE_FUNCTION double learning_rate_at(RateSchedule const& schedule, double rate, double t,
                                               double reduction = 1) {
  auto const num_warmup_steps = static_cast<double>(schedule.num_warmup_steps);
  if (t < num_warmup_steps) return rate * (t / num_warmup_steps);
  auto const first = num_warmup_steps > 1 ? num_warmup_steps : 1.0;
  if (schedule.decay == RateDecay::constant || t <= first) return rate;
  if (schedule.decay == RateDecay::step || schedule.decay == RateDecay::plateau ||
      schedule.decay == RateDecay::inverse_sqrt) {
    auto u = reduction;
    if (schedule.decay == RateDecay::inverse_sqrt) {
      u = runtime::compat::sqrt(first / t);
    } else if (schedule.decay == RateDecay::step) {
      auto const num_changes = static_cast<std::int64_t>(t - first) / schedule.step_length;
      u = runtime::compat::pow(schedule.factor, static_cast<double>(num_changes));
    }
    return u * rate > schedule.min_rate ? u * rate : schedule.min_rate;
  }
  auto const last = static_cast<double>(schedule.num_steps);
  auto begin = first;
  if (schedule.decay == RateDecay::wsd && (1 - schedule.decay_share) * last > first)
    begin = (1 - schedule.decay_share) * last;
  if (t <= begin) return rate;
  auto const share = t < last ? (t - begin) / (last - begin) : 1.0;
  constexpr auto pi = 3.14159265358979323846;
  auto const u = schedule.decay == RateDecay::cosine ? (1 + runtime::compat::cos(pi * share)) / 2 : 1 - share;
  return u * rate + (1 - u) * schedule.min_rate;
}

} // namespace orthant::models
