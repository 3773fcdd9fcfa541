#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options of a network beside weights that record one: evaluations take the command lines of trainings.

#include "cli/options/command.hpp"
#include "models/parameters/weights_file.hpp"

#include <string>

namespace orthant::cli {

/// Throws UserError if an option of the network was given, by itself or by a preset that has been applied, and `of_weights`, the
/// record of the file at `path`, has another value for it. Parts are called as options: "kv_heads" is --kv-heads. Not collective;
/// the same on all ranks.
void require_given_network(Context const& context, std::string const& path,
                           models::Architecture const& of_weights);

} // namespace orthant::cli
