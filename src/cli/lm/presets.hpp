#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Named sets of options of train-lm, and what an architecture implies.

#include "cli/options/presets.hpp"

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

namespace orthant::cli {

/// "none", which has no options, and the others.
[[nodiscard]] std::span<Preset const> language_model_presets();
/// Of --arch: {"bias": false, ..}.
[[nodiscard]] nlohmann::ordered_json options_implied_by(std::string_view arch);

} // namespace orthant::cli
