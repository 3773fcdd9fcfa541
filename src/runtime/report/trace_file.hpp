#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The traces of all ranks in one file, on one time axis.

#include "runtime/comm/communicator.hpp"
#include "runtime/observe/trace.hpp"

#include <string>

namespace orthant::runtime {

/// Writes all ranks' records (but for its own communication) to `path` as JSON, rank after rank, through rank
/// 0. Collective. Throws UserError on all ranks where the file cannot be written.
void write_trace(Communicator const& comm, Trace const& trace, std::string const& path);

} // namespace orthant::runtime
