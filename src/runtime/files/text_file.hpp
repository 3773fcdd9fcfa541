#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The byte order mark (U+FEFF) that some editors and spreadsheets write at the head of a text. It is no part of the text.

#include "runtime/comm/communicator.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace orthant::runtime {

/// Bytes of the mark that a text in UTF-8 begins with: 3 or 0.
[[nodiscard]] std::size_t byte_order_mark_bytes(std::string_view text);

/// Throws UserError if the text begins with the mark of UTF-16 or UTF-32. `name`: of the file.
void refuse_wide_text(std::string_view text, std::string const& name);

/// The text behind the mark. Throws UserError as refuse_wide_text().
[[nodiscard]] std::string_view without_byte_order_mark(std::string_view text, std::string const& name);

// Small text files that users hand in, such as tables of measurements: rank 0 reads, all ranks have the text.

/// The text of the file without a byte order mark, after check(text) on rank 0, which throws UserError if it is not what was wanted. Collective.
/// Throws UserError on all ranks if the file cannot be read or the check throws.
[[nodiscard]] std::string read_table_file(Communicator const& comm, std::filesystem::path const& path,
                                          std::function<void(std::string_view)> const& check);

} // namespace orthant::runtime
