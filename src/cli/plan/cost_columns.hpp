#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the tables of grids have in common: the columns of a machine's seconds, and what is said of grids that do not fit.

#include "cli/machine/units.hpp"
#include "pmm/cost/memory_fit.hpp"
#include "pmm/cost/step_plan.hpp"

#include <nlohmann/json.hpp>
#include <string>

namespace orthant::cli {

inline constexpr double milliseconds_per_second = 1e3;

/// A language model has no sparse products.
enum class Network : std::uint8_t { graph, language_model };

/// "ms", the terms, and "bound by".
[[nodiscard]] std::string headings_of_seconds(Network network);
[[nodiscard]] std::string cells_of_seconds(pmm::StepSeconds const& seconds, Network network);
/// The same as fields of a JSON line, in seconds.
void add_seconds(nlohmann::ordered_json& line, pmm::StepSeconds const& seconds, Network network);

/// "3 grids need more than the 40.0 GB of a rank of perlmutter", and if none is left what the least is; empty if none was left
/// out. `is_none_left`: no grid fits. `advice`: "take more ranks".
[[nodiscard]] std::string text_of(pmm::LeftOut const& left_out, pmm::Machine const& machine,
                                  bool is_none_left, std::string const& advice);

} // namespace orthant::cli
