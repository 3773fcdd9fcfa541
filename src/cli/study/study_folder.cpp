// SPDX-License-Identifier: Apache-2.0
#include "cli/study/study_folder.hpp"

#include "cli/study/failure_reason.hpp"
#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/files/staged_file.hpp"

#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace orthant::cli {
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
    if (!json.is_object()) continue; // cut off while it was written: its points are submitted again
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
  // A line that was cut off must not swallow this one.
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
      submitted; // by point: the last job, and its task there
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
