#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The checkpoints of one training in a folder: checkpoint-000001.h5, checkpoint-000002.h5, .., and the link
// `latest` to the newest. Files have their names when they are complete, so the largest number is the newest
// complete one. For one rank; nothing communicates.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace orthant::models {

[[nodiscard]] std::filesystem::path checkpoint_path(std::filesystem::path const& folder, std::int64_t number);

/// The numbers of the checkpoints in a folder, ascending; none if there is no such folder.
[[nodiscard]] std::vector<std::int64_t> checkpoint_numbers(std::filesystem::path const& folder);

/// Makes the folder, and those above it, if it is not there. Throws UserError if that cannot be done, or if
/// checkpoint `number` could not be written there.
void require_writable_folder(std::filesystem::path const& folder, std::int64_t number);

/// Lets `latest` lead to checkpoint `number`, at once. Throws UserError.
void point_latest_to(std::filesystem::path const& folder, std::int64_t number);

/// Removes all checkpoints but the `num_kept` with the largest numbers up to `newest`. Those that cannot be
/// removed stay.
void remove_older_checkpoints(std::filesystem::path const& folder, std::int64_t newest,
                              std::int64_t num_kept) noexcept;

} // namespace orthant::models
