#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a user is told: the message of a UserError, and the lines of a text.

#include "runtime/error.hpp"

#include <sstream>
#include <string>
#include <vector>

namespace orthant::test {

/// The message of the UserError that `action` throws, or "no UserError".
[[nodiscard]] std::string message_of(auto&& action) {
  try {
    action();
  } catch (runtime::UserError const& error) {
    return error.what();
  }
  return "no UserError";
}

[[nodiscard]] inline std::vector<std::string> lines_of(std::string const& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

} // namespace orthant::test
