#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What is in a folder. std::filesystem's iterators are not used: their step is noexcept and takes memory, so
// a process that is short of it ends without a cause.

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace orthant::runtime {

/// The names of all entries but "." and "..", sorted; those found so far if `error` is set. Throws
/// std::bad_alloc only.
[[nodiscard]] std::vector<std::string> folder_entries(std::filesystem::path const& folder,
                                                      std::error_code& error);
/// The same. Throws std::filesystem::filesystem_error if the folder cannot be read.
[[nodiscard]] std::vector<std::string> folder_entries(std::filesystem::path const& folder);

} // namespace orthant::runtime
