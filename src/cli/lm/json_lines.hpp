#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// JSONL files of prompts and requests: an object per line. Rank 0 reads and writes.

#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace orthant::cli {

struct JsonLine {
  std::string place; // "requests.jsonl, line 3", for messages
  nlohmann::json object;

  /// The text of a member; nullopt if the object has no such member. Throws UserError if it is not a text.
  [[nodiscard]] std::optional<std::string> text(char const* member) const;
  /// The token numbers of a member; nullopt if the object has no such member. Throws UserError if it is not a list of token numbers.
  [[nodiscard]] std::optional<std::vector<std::int32_t>> ids(char const* member) const;
};

/// The lines of a file, without empty ones, on all ranks. Collective. Throws UserError on all ranks if the file cannot be read, has no line,
/// or has a line that is not a JSON object.
[[nodiscard]] std::vector<JsonLine> read_json_lines(runtime::Communicator const& comm,
                                                    std::filesystem::path const& path);

/// A line of JSON as text, with its end.
[[nodiscard]] std::string line_of(nlohmann::ordered_json const& object);

} // namespace orthant::cli
