#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A training that goes on from a checkpoint writes the records of some epochs again, if it had come farther
// than the checkpoint. The older ones are taken out of the metrics first.

#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace orthant::runtime {

/// Removes from a file of metrics, if there is one, what a training wrote from `epoch` on: of its runs, which
/// are those whose "run" line has this "training", the records of these epochs, a "done" behind them, and a
/// last line that is not complete. Other lines stay as they are. The file is replaced at once, or not at all.
/// Rank 0 does it. Collective. Throws UserError if the file cannot be read or written.
void cut_metrics(Communicator const& comm, std::filesystem::path const& path, std::string const& training,
                 std::int64_t epoch);

} // namespace orthant::runtime
