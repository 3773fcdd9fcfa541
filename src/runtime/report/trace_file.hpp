#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The traces of all ranks in one file, on one time axis.

#include "runtime/comm/communicator.hpp"
#include "runtime/observe/trace.hpp"

#include <deque>
#include <string>

namespace orthant::runtime {

/// Writes all ranks' records (except those of its own communication) to `path` as JSON, rank after rank, through rank 0. Collective. Throws
/// UserError on all ranks if the file cannot be written.
void write_trace(Communicator const& comm, Trace const& trace, std::string const& path);
/// Writes timelines that are equal on all ranks of `comm`, such as simulated ones: traces[r] is the timeline of rank r. Their times have a
/// common origin. Collective. Throws UserError on all ranks if the file cannot be written.
void write_timelines(Communicator const& comm, std::deque<Trace> const& traces, std::string const& path);

} // namespace orthant::runtime
