#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Presets: named sets of options, each of which a flag, the environment or a file overrides.

#include "cli/options/command.hpp"

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

struct Preset {
  std::string_view name;
  nlohmann::ordered_json options; // {"layers": 4, ..}: values by the options' names
};

[[nodiscard]] std::vector<std::string> names_of(std::span<Preset const> presets);
/// The options of the preset of that name. Error if there is none.
[[nodiscard]] nlohmann::ordered_json const& options_of(std::span<Preset const> presets,
                                                       std::string_view name);

/// Calls set(name, value) for those of `values` that nobody gave; the run's record has them as the preset's.
void set_unless_given(
    Context& context, nlohmann::ordered_json const& values,
    std::function<void(std::string const& name, nlohmann::ordered_json const& value)> const& set);

} // namespace orthant::cli
