// SPDX-License-Identifier: Apache-2.0
#include "cli/study/failure_reason.hpp"

#include <algorithm>
#include <array>
#include <regex>
#include <sstream>
#include <string_view>
#include <vector>

namespace orthant::cli {
namespace {

using Lines = std::vector<std::string>;

Lines lines_of(std::string const& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

/// Open MPI puts what it says between such lines.
bool is_rule(std::string const& line) {
  return line.size() >= 60 && line.find_first_not_of('-') == std::string::npos;
}

/// That a rank has failed, or that the job ends for it: what it failed of is said elsewhere.
bool is_aftermath(std::string const& text) {
  static constexpr std::array<std::string_view, 4> beginnings{"Primary job", "MPI_ABORT was invoked",
                                                              "mpirun detected that one or more processes",
                                                              "prterun detected that one or more processes"};
  return std::ranges::any_of(beginnings, [&](std::string_view words) { return text.starts_with(words); });
}

/// "srun: error: ..", "slurmstepd: error: ..", "flux-job: ..", "[mpiexec@host] ..", "points/KEY.sh: line 9: ..", "mpirun: Error: ..".
/// That a task has ended is none: why it did is said elsewhere.
bool is_error(std::string const& line) {
  static std::regex const pattern(
      R"(^(\S+: (error|Error|ERROR|fatal)\b.*|flux-job: .*|\[(mpiexec|proxy\S*)@?.*\] .*|\S*\.sh: line \d+: .*)$)");
  return std::regex_match(line, pattern) && line.find("Exited with exit code") == std::string::npos;
}

/// The lines up to an empty one or a rule, as one.
std::string paragraph_at(Lines const& lines, std::size_t first) {
  std::string text;
  for (auto i = first; i < lines.size() && !lines[i].empty() && !is_rule(lines[i]); ++i)
    text += (text.empty() ? "" : " ") + lines[i];
  return text;
}

} // namespace

std::string reason_in_log(std::string const& log) {
  auto const lines = lines_of(log);
  for (auto const& line : lines)
    if (line.find("orthant: error:") != std::string::npos) return line;
  for (auto const& line : lines)
    if (is_error(line)) return line;
  std::string aftermath, warning, last;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!is_rule(lines[i])) {
      if (!lines[i].empty()) last = lines[i];
      continue;
    }
    auto const text = paragraph_at(lines, i + 1);
    if (text.empty()) continue;
    auto const is_warning = text.starts_with("WARNING");
    if (!is_warning && !is_aftermath(text)) return text;
    auto& kept = is_warning ? warning : aftermath;
    if (kept.empty()) kept = text;
    while (i + 1 < lines.size() && !is_rule(lines[i + 1])) // up to the rule that closes it
      ++i;
    ++i;
  }
  if (aftermath.empty()) return last.empty() ? warning : last;
  return aftermath + (last.empty() ? "" : " It printed last: " + last);
}

} // namespace orthant::cli
