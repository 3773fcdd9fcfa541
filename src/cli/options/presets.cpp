// SPDX-License-Identifier: Apache-2.0
#include "cli/options/presets.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>

namespace orthant::cli {

using Json = nlohmann::ordered_json;

std::vector<std::string> names_of(std::span<Preset const> presets) {
  std::vector<std::string> names;
  for (auto const& preset : presets)
    names.emplace_back(preset.name);
  return names;
}

Json const& options_of(std::span<Preset const> presets, std::string_view name) {
  auto const found = std::ranges::find(presets, name, &Preset::name);
  ORTHANT_REQUIRE(found != presets.end(), "no preset ", name);
  return found->options;
}

void set_unless_given(Context& context, Json const& values,
                      std::function<void(std::string const&, Json const&)> const& set) {
  auto& sources = context.run_record.at("sources");
  for (auto const& [name, value] : values.items()) {
    if (sources.value(name, std::string("default")) != "default") continue;
    set(name, value);
    context.run_record.at("configuration")[name] = value;
    sources[name] = "preset";
  }
}

bool PresetFit::gives(char const* name) const {
  return context_.run_record.at("sources").value(name, std::string()) == "preset";
}

bool PresetFit::is_used(std::string_view name) const {
  static constexpr std::array<std::string_view, 6> of_trainings{"epochs",       "steps", "patience",
                                                                "warmup-steps", "lr",    "min-lr"};
  auto const command = context_.run_record.value("command", std::string("train"));
  if (command.starts_with("train")) return true;
  auto const is_of_training = std::ranges::find(of_trainings, name) != of_trainings.end();
  auto const is_of_batches = name == "sequence" || name == "global-batch"; // evaluations have their own
  return !is_of_training && !(is_of_batches && command == "evaluate-lm");
}

void PresetFit::tell() const {
  if (!changes_.empty() && context_.world().is_root())
    context_.log().info("--preset {} gives way to the other options: {}", preset_, fmt::join(changes_, ", "));
}

} // namespace orthant::cli
