// SPDX-License-Identifier: Apache-2.0
#include "cli/study/study_folder.hpp"

#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/files/staged_file.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
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

/// True for a line of dashes; Open MPI prints its messages between two of them.
bool is_rule(std::string const& line) {
  return line.size() >= 60 && line.find_first_not_of('-') == std::string::npos;
}

/// True for messages that only say that a rank has failed or that the job ends; the reason is in other lines.
bool is_aftermath(std::string const& text) {
  static constexpr std::array<std::string_view, 4> beginnings{"Primary job", "MPI_ABORT was invoked",
                                                              "mpirun detected that one or more processes",
                                                              "prterun detected that one or more processes"};
  return std::ranges::any_of(beginnings, [&](std::string_view words) { return text.starts_with(words); });
}

/// True for error messages: "srun: error: ..", "slurmstepd: error: ..", "flux-job: ..", "[mpiexec@host] ..", "points/KEY.sh: line 9: ..",
/// "mpirun: Error: ..". False for the message that a task has ended, because it does not give the reason.
bool is_error(std::string const& line) {
  static std::regex const pattern(
      R"(^(\S+: (error|Error|ERROR|fatal)\b.*|flux-job: .*|\[(mpiexec|proxy\S*)@?.*\] .*|\S*\.sh: line \d+: .*)$)");
  return std::regex_match(line, pattern) && line.find("Exited with exit code") == std::string::npos;
}

/// Joins the lines up to an empty one or a line of dashes.
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
    while (i + 1 < lines.size() && !is_rule(lines[i + 1])) // skip to the closing line of dashes
      ++i;
    ++i;
  }
  if (aftermath.empty()) return last.empty() ? warning : last;
  return aftermath + (last.empty() ? "" : " It printed last: " + last);
}

namespace {

namespace fs = std::filesystem;

} // namespace

std::string_view name_of(PointState state) {
  static constexpr std::array<std::string_view, 6> names{"to do",  "waiting", "running",
                                                         "failed", "lost",    "done"};
  return names[static_cast<std::size_t>(state)];
}

std::string text_of_file(fs::path const& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  auto const bytes = runtime::open_file_bytes(path);
  std::string text(static_cast<std::size_t>(bytes->size()), '\0');
  bytes->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_file(fs::path const& path, std::string const& text, bool is_program) {
  runtime::StagedFile file(path, "study");
  file.file().append(text);
  if (is_program)
    fs::permissions(file.path(), fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                    fs::perm_options::add);
  file.publish();
}

void StudyFolder::make() const {
  for (auto const* const name : {"points", "results", "failures", "logs", "parts", "jobs", "graphs"}) {
    std::error_code error;
    fs::create_directories(study_.folder / name, error);
    if (error)
      runtime::throw_user("cannot make the study's folder '{}': {}", (study_.folder / name).string(),
                          error.message());
  }
}

std::vector<BatchJob> StudyFolder::jobs() const {
  std::vector<BatchJob> jobs;
  std::istringstream lines(text_of_file(at("jobs", "jobs.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    auto const json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) continue; // incomplete line: its points are submitted again
    jobs.push_back({json.value("scheduler", "slurm") == "flux" ? Scheduler::flux : Scheduler::slurm,
                    json.value("job", ""), json.value("name", ""),
                    json.value("points", std::vector<std::string>())});
  }
  return jobs;
}

void StudyFolder::add(BatchJob const& job) const {
  nlohmann::ordered_json const line{{"scheduler", job.scheduler == Scheduler::flux ? "flux" : "slurm"},
                                    {"job", job.id},
                                    {"name", job.name},
                                    {"points", job.points}};
  auto const path = at("jobs", "jobs.jsonl");
  // If the last line is incomplete, begin a new one.
  auto const before = text_of_file(path);
  auto const* const gap = before.empty() || before.back() == '\n' ? "" : "\n";
  runtime::WritableFile file(path, runtime::WritableFile::Mode::append, {"study", path});
  file.append(fmt::format("{}{}\n", gap, line.dump()));
  file.close();
}

std::string StudyFolder::reason_of_failure(StudyPoint const& point) const {
  auto status = text_of_file(failure(point));
  while (!status.empty() && status.back() == '\n')
    status.pop_back();
  auto const words = reason_in_log(text_of_file(log(point)));
  return fmt::format("status {}{}{}", status, words.empty() ? "" : ": ", words);
}

std::vector<PointStatus> StudyFolder::status_of(std::span<StudyPoint const> points) const {
  std::map<std::string, std::pair<BatchJob const*, std::size_t>>
      submitted; // last job of each point, and its task in that job
  auto const all_jobs = jobs();
  for (auto const& job : all_jobs)
    for (std::size_t i = 0; i < job.points.size(); ++i)
      submitted[job.points[i]] = {&job, i};

  std::set<Scheduler> asked;
  LiveTasks live;
  for (auto const& point : points) {
    auto const found = submitted.find(point.key);
    if (found == submitted.end() || fs::exists(result(point)) || fs::exists(failure(point))) continue;
    auto const scheduler = found->second.first->scheduler;
    if (asked.insert(scheduler).second) live.merge(live_tasks(scheduler));
  }

  std::vector<PointStatus> all;
  for (auto const& point : points) {
    PointStatus status;
    auto const found = submitted.find(point.key);
    if (fs::exists(result(point)))
      status.state = PointState::done;
    else if (fs::exists(failure(point)))
      status = {PointState::failed, reason_of_failure(point)};
    else if (found != submitted.end())
      status = status_of_task(live, *found->second.first, found->second.second);
    all.push_back(status);
  }
  return all;
}

PointStatus StudyFolder::status_of_task(LiveTasks const& live, BatchJob const& job, std::size_t task) const {
  auto const found = find_task(live, job, task);
  if (found && found->hold.empty())
    return {found->is_running ? PointState::running : PointState::waiting, ""};
  if (found) return {PointState::lost, fmt::format("its job {} does not start: {}", job.id, found->hold)};
  auto const words = reason_in_log(text_of_file(at("logs", log_name_of(job, task))));
  return {PointState::lost,
          fmt::format("its job {} ended without a result{}{}", job.id, words.empty() ? "" : ": ", words)};
}

} // namespace orthant::cli
