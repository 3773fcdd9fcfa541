#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The norms of hidden layers by name.

#include <cstdint>
#include <string_view>

namespace orthant::models {

/// What normalises a hidden layer's output before its activation: nothing, RMSNorm (layers/rms_norm.hpp), LayerNorm or BatchNorm
/// (centered_norm.hpp).
enum class Norm : std::uint8_t { none, rms, layer, batch };

/// "none", "rms", "layer" or "batch". Throws UserError for another word.
[[nodiscard]] Norm parse_norm(std::string_view word);
[[nodiscard]] std::string_view name_of(Norm norm);

/// Whether it subtracts means, and so has a shift.
[[nodiscard]] constexpr bool is_centered(Norm norm) {
  return norm == Norm::layer || norm == Norm::batch;
}

/// What LayerNorm and BatchNorm add to a variance, and the share of a step's statistics in the running ones: those of PyTorch.
inline constexpr double centered_norm_epsilon = 1e-5;
inline constexpr double running_momentum = 0.1;

} // namespace orthant::models
