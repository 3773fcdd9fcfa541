#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A training goes on from a checkpoint. One that is damaged is named, and the one before it is used. One of
// another training is refused.

#include "models/training/checkpoint/checkpoint_file.hpp"

#include <filesystem>
#include <functional>
#include <optional>

namespace orthant::models {

struct ResumePoint {
  std::filesystem::path path;
  CheckpointFacts facts;
};

/// Throws UserError if a training must not go on from a checkpoint with these facts.
using RequireFits = std::function<void(std::filesystem::path const&, CheckpointFacts const&)>;

/// The newest checkpoint of a folder whose facts can be read and have the right checksum, or nothing. The arrays
/// are not read. Collective. Throws what `require_fits` throws.
[[nodiscard]] std::optional<ResumePoint> find_newest_checkpoint(runtime::Communicator const& comm,
                                                                std::filesystem::path const& folder,
                                                                RequireFits const& require_fits);

/// The state := that of the newest checkpoint of a folder that is sound;
/// each newer one is warned of. Returns nothing and leaves the state unchanged if there is no checkpoint. Collective over the grid's
/// world. Throws UserError if a checkpoint is of another training.
template<class T>
[[nodiscard]] std::optional<ResumePoint>
resume_newest(std::filesystem::path const& folder, TrainingState<T>& state, RequireFits const& require_fits);

/// The state := that of a checkpoint. Collective over the grid's world. Throws UserError if it is damaged or of
/// another training.
template<class T>
[[nodiscard]] ResumePoint resume_from(std::filesystem::path const& path, TrainingState<T>& state,
                                      RequireFits const& require_fits);

} // namespace orthant::models
