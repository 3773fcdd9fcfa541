#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The checkpoints of one training in a folder, each named by the number of optimizer steps that it holds:
// checkpoint-000020.h5, checkpoint-000040.h5, .., and the link `latest` to the newest. Files have their names
// when they are complete, so the largest number is the newest complete one. Earlier versions counted the
// files instead; those are found in the same way. For one rank; nothing communicates.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace orthant::models {

[[nodiscard]] std::filesystem::path checkpoint_path(std::filesystem::path const& folder, std::int64_t step);

/// The numbers of the checkpoints in a folder, ascending; none if there is no such folder.
[[nodiscard]] std::vector<std::int64_t> checkpoint_numbers(std::filesystem::path const& folder);

/// Makes the folder, and those above it, if it is not there, and removes what writers that were killed have left
/// there. Throws UserError if that cannot be done, or if a checkpoint could not be written there.
void require_writable_folder(std::filesystem::path const& folder);

/// To be called before a training that is at `step` writes to the folder: checkpoints of later steps, which are damaged
/// or which it would write again, get other names, as set_aside() gives them. `resumed`: the checkpoint that it
/// goes on from, in this folder or another one; empty: none. Returns the new names. Throws UserError.
[[nodiscard]] std::vector<std::filesystem::path>
set_aside_later_checkpoints(std::filesystem::path const& folder, std::int64_t step,
                            std::filesystem::path const& resumed);

/// Lets `latest` lead to the checkpoint of that number, at once. Does nothing on a file system without links: the names tell
/// which one is the newest.
void point_latest_to(std::filesystem::path const& folder, std::int64_t number);

/// Removes all checkpoints but the `num_kept` with the largest numbers up to `newest`. Those that cannot be
/// removed stay.
void remove_older_checkpoints(std::filesystem::path const& folder, std::int64_t newest,
                              std::int64_t num_kept) noexcept;

} // namespace orthant::models
