#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What plan and plan-lm share: they take the command line of a training, plan for a number of ranks, and print the training's command.

#include "cli/options/command.hpp"

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace orthant::cli {

/// --ranks.
void add_ranks_option(Command& command, std::optional<std::int64_t>& ranks, std::int64_t most);

/// --ranks, or if it is not given the ranks of --grid, or of the job. Throws UserError if both are given and differ.
[[nodiscard]] std::int64_t planned_ranks(std::optional<std::int64_t> const& ranks, std::string const& grid,
                                         runtime::Communicator const& world);

/// The flags that a training must repeat, as the user gave them, " --hidden 64 --no-bias": all but those of every command,
/// those that the plan decides (--grid, --schedule and what chooses them), and `own` ones of the planning command.
[[nodiscard]] std::string given_flags(Context const& context, std::initializer_list<std::string_view> own);

} // namespace orthant::cli
