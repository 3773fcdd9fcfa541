#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The traces of all ranks in one file, on one time axis.

#include "runtime/comm/communicator.hpp"
#include "runtime/observe/trace.hpp"

#include <deque>
#include <string>

namespace orthant::runtime {

/// Writes all ranks' records (but for its own communication) to `path` as JSON, rank after rank, through rank
/// 0. Collective. Throws UserError on all ranks where the file cannot be written.
void write_trace(Communicator const& comm, Trace const& trace, std::string const& path);
/// The same of timelines that each rank of `comm` has alike, such as simulated ones: rank r's is traces[r]. Their times have one origin.
void write_timelines(Communicator const& comm, std::deque<Trace> const& traces, std::string const& path);

} // namespace orthant::runtime
