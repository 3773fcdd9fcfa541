// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/json_lines.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/text_file.hpp"

#include <limits>
#include <sstream>

namespace orthant::cli {

std::optional<std::string> JsonLine::text(char const* member) const {
  auto const found = object.find(member);
  if (found == object.end()) return std::nullopt;
  if (!found->is_string()) runtime::throw_user("{}: {} is {}, not a text", place, member, found->dump());
  return found->get<std::string>();
}

std::optional<std::vector<std::int32_t>> JsonLine::ids(char const* member) const {
  auto const found = object.find(member);
  if (found == object.end()) return std::nullopt;
  std::vector<std::int32_t> ids;
  auto const refuse = [&] {
    runtime::throw_user("{}: {} is no list of numbers of tokens, such as [5, 17, 3]", place, member);
  };
  if (!found->is_array()) refuse();
  for (auto const& number : *found) {
    if (!number.is_number_integer()) refuse();
    auto const id = number.get<std::int64_t>();
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) refuse();
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

std::vector<JsonLine> read_json_lines(runtime::Communicator const& comm, std::filesystem::path const& path) {
  auto const text = runtime::read_table_file(comm, path, [](auto) {});
  return runtime::together(comm, [&] {
    std::vector<JsonLine> lines;
    std::istringstream in(text);
    std::int64_t number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      JsonLine read{fmt::format("{}, line {}", path.string(), number),
                    nlohmann::json::parse(line, nullptr, false)};
      if (!read.object.is_object()) runtime::throw_user("{}: it is no JSON object", read.place);
      lines.push_back(std::move(read));
    }
    if (lines.empty()) runtime::throw_user("{} has no lines", path.string());
    return lines;
  });
}

std::string line_of(nlohmann::ordered_json const& object) {
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

} // namespace orthant::cli
