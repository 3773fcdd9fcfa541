#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a training does with the metrics that are there before it writes its own, so that no file has an epoch twice.
// One that goes on from a checkpoint writes the records of some epochs again, if it had come farther than the
// checkpoint: the older ones are taken out. Metrics without a run of this training, such as those of an attempt that was
// killed before its first checkpoint, get another name.

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

/// Gives a file of metrics without a run of this training another name (set_aside_if_any()). Returns that name on
/// rank 0; empty if the file stays. Collective. Throws UserError if the file cannot be read or renamed.
[[nodiscard]] std::filesystem::path set_aside_other_metrics(Communicator const& comm,
                                                            std::filesystem::path const& path,
                                                            std::string const& training);

} // namespace orthant::runtime
