#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Presets: named sets of options, each of which a flag, the environment or a file overrides.

#include "cli/options/command.hpp"

#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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

/// What a preset gives bends to what the user has given, by a flag, the environment or a file: only the user's own options
/// contradict each other. The model is the user's: it is what a preset is named for.
class PresetFit {
 public:
  PresetFit(Context& context, std::string preset) : context_(context), preset_(std::move(preset)) {}

  /// Whether the option has the preset's value.
  [[nodiscard]] bool gives(char const* name) const;
  /// The option := another value, in the run's record, too. Only for one that the preset gives.
  template<class T>
  void change(char const* name, T& option, T const& value) {
    if (option == value) return;
    if (is_used(name))
      changes_.push_back(fmt::format("--{} {} in place of {}", name, text_of(value), text_of(option)));
    context_.run_record.at("configuration")[name] = option = value;
  }
  /// Says what has changed, in one line: for a command that does not train, in its network.
  void tell() const;

 private:
  [[nodiscard]] bool is_used(std::string_view name) const;
  template<class T>
  [[nodiscard]] static std::string text_of(T const& value) {
    if constexpr (std::is_floating_point_v<T>)
      return fmt::format("{:.6g}", value);
    else
      return fmt::format("{}", value);
  }

  Context& context_;
  std::string preset_;
  std::vector<std::string> changes_;
};

} // namespace orthant::cli
