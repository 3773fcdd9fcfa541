#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A file of an earlier run that a new one must neither add to nor replace gets another name.

#include <filesystem>

namespace orthant::runtime {

/// Renames "run.jsonl" to "run.jsonl.1", or to the first free name after it ("run.jsonl.2", ..), and returns that
/// name. Of a symbolic link the target is renamed, and the link stays. For one process. Throws UserError.
[[nodiscard]] std::filesystem::path set_aside(std::filesystem::path const& path);

/// The same if the file is there, is a regular one and is not empty; else nothing is done, and the path is empty.
[[nodiscard]] std::filesystem::path set_aside_if_any(std::filesystem::path const& path);

} // namespace orthant::runtime
