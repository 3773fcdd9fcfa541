#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Small text files that users hand in, such as tables of measurements: rank 0 reads, all ranks have the text.

#include "runtime/comm/communicator.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace orthant::runtime {

/// The text of the file without a byte order mark, after check(text) on rank 0, which throws UserError if it is not what was wanted. Collective.
/// Throws UserError on all ranks if the file cannot be read or the check throws.
[[nodiscard]] std::string read_table_file(Communicator const& comm, std::filesystem::path const& path,
                                          std::function<void(std::string_view)> const& check);

} // namespace orthant::runtime
