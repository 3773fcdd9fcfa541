#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The byte order mark (U+FEFF) that some editors and spreadsheets write at the beginning of a text. It is not part of the text.

#include "runtime/comm/communicator.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace orthant::runtime {

/// Number of bytes of the UTF-8 mark at the beginning of the text: 3 or 0.
[[nodiscard]] std::size_t byte_order_mark_bytes(std::string_view text);

/// Throws UserError if the text begins with the mark of UTF-16 or UTF-32. `name` is the file's name.
void refuse_wide_text(std::string_view text, std::string const& name);

/// The text after the mark. Throws UserError if the text begins with the mark of UTF-16 or UTF-32.
[[nodiscard]] std::string_view without_byte_order_mark(std::string_view text, std::string const& name);

// Small text files from users, such as tables of measurements: rank 0 reads the file, and all ranks get the text.

/// The text of the file without a byte order mark. Rank 0 calls check(text), which throws UserError if the text is not as expected. Throws
/// UserError on all ranks if the file cannot be read or the check throws. Collective.
[[nodiscard]] std::string read_table_file(Communicator const& comm, std::filesystem::path const& path,
                                          std::function<void(std::string_view)> const& check);

} // namespace orthant::runtime
