#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Named sets of options of train-lm, and what an architecture implies.

#include "cli/lm/train_lm_options.hpp"
#include "cli/options/presets.hpp"

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

namespace orthant::cli {

/// "none", which has no options, and the others.
[[nodiscard]] std::span<Preset const> language_model_presets();
/// Of --arch: {"bias": false, ..}.
[[nodiscard]] nlohmann::ordered_json options_implied_by(std::string_view arch);

// What a preset of train-lm gives bends to the options that the user has given.

/// Changes numbers of the preset that contradict the user's options, and says so in one line. If the user's own options
/// contradict each other, these stay, for later checks to refuse. Reads the number of tokens. Collective.
void fit_preset(Context& context, TrainLmOptions& options);

} // namespace orthant::cli
