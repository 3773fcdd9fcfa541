#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Checks if a folder has an entry. A file that exists but cannot be accessed must never count as absent, because the graph would silently
// lose its weights or labels.

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace orthant::graph {

/// True if `path` is accessible, false if there is no such entry. In every other case throws a UserError with the path and the reason: a
/// symbolic link without a target or in a cycle (the entry or its folder), a folder that may not be searched, a folder that is a file.
[[nodiscard]] bool has_entry(std::filesystem::path const& path);

/// The first of these entries of `folder` that exists. Checks all of them, because an inaccessible file is an error.
[[nodiscard]] std::optional<std::filesystem::path> find_first(std::filesystem::path const& folder,
                                                              std::initializer_list<char const*> names);

/// True if `name` names an entry inside a folder: not empty, without "/", neither "." nor "..". Names from outside must not lead out of
/// their folder.
[[nodiscard]] bool is_folder_name(std::string_view name);

} // namespace orthant::graph
