#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Check of network options against the weights that `evaluate` and `evaluate-lm` read: they accept the command lines of trainings.

#include "cli/options/command.hpp"
#include "models/parameters/weights_file.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

/// Throws UserError if the user or an applied preset has set an option of the network to another value than `of_weights`, the record of
/// the file at `path`. Names in the record are option names with underscores: "kv_heads" is --kv-heads. Not collective; same result on
/// all ranks.
void require_given_network(Context const& context, std::string const& path,
                           models::Architecture const& of_weights, std::vector<std::string> const& idle = {});

} // namespace orthant::cli
