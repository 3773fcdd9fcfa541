#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Named sets of options of train-lm, and what an architecture implies.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

/// "none" and the others.
[[nodiscard]] std::vector<std::string> preset_names();
/// {"layers": 4, ..}: options by name, none for "none". Error for a name that is no preset's.
[[nodiscard]] nlohmann::ordered_json preset_options(std::string_view name);
/// Of --arch: {"bias": false, ..}.
[[nodiscard]] nlohmann::ordered_json options_implied_by(std::string_view arch);

} // namespace orthant::cli
