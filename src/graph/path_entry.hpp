#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Whether a folder has an entry. A file that is there but cannot be reached must never count as absent: the
// graph would lose its weights or its labels in silence.

#include <filesystem>
#include <string_view>

namespace orthant::graph {

/// True if `path` can be reached, false if there is no such entry. Throws UserError that names the path and
/// the reason in every other case: a symbolic link that leads nowhere or in a circle (of the entry or of its
/// folder), a folder that may not be searched, a folder that is a file.
[[nodiscard]] bool has_entry(std::filesystem::path const& path);

/// True if `name` names something inside a folder: not empty, no "/", neither "." nor "..". What comes from
/// outside and becomes a part of a path must not lead out of its folder.
[[nodiscard]] bool is_folder_name(std::string_view name);

} // namespace orthant::graph
