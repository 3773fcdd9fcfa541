#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The folder of a study, which holds all of its state:
//
//   points/KEY.sh        starts one point; ORTHANT_LAUNCH is the launcher
//   results/KEY.jsonl    metrics of a point that is done; written by a rename, so always complete
//   failures/KEY         exit status of a point whose last attempt failed
//   logs/KEY.log         output of the last attempt
//   parts/KEY.*          metrics of attempts that are running or were killed
//   jobs/*               submitted jobs and their schedulers
//   results.jsonl        written by `study collect`
//   report/              written by `study report`

#include "cli/study/scheduler.hpp"
#include "cli/study/study_file.hpp"

#include <span>
#include <string>

namespace orthant::cli {

// Reason of a failed job, found in its log.

/// First line of the program's own error. If there is none, the first line that explains the end: an error of the scheduler, the launcher
/// or the shell, with the rest of its sentence if the launcher breaks it into lines. Otherwise the last line that is not the launcher's
/// general failure message; empty if the log is empty.
[[nodiscard]] std::string reason_in_log(std::string const& log);

enum class PointState : std::uint8_t { to_do, waiting, running, failed, lost, done };
[[nodiscard]] std::string_view name_of(PointState state);

struct PointStatus {
  PointState state = PointState::to_do;
  std::string reason; // from the job's log if it failed or was lost
};

class StudyFolder {
 public:
  explicit StudyFolder(Study const& study) : study_(study) {}

  [[nodiscard]] std::filesystem::path script(StudyPoint const& point) const {
    return at("points", point.key + ".sh");
  }
  [[nodiscard]] std::filesystem::path result(StudyPoint const& point) const {
    return at("results", point.key + ".jsonl");
  }
  [[nodiscard]] std::filesystem::path failure(StudyPoint const& point) const {
    return at("failures", point.key);
  }
  [[nodiscard]] std::filesystem::path log(StudyPoint const& point) const {
    return at("logs", point.key + ".log");
  }
  [[nodiscard]] std::filesystem::path collected() const { return study_.folder / "results.jsonl"; }
  [[nodiscard]] std::filesystem::path report() const { return study_.folder / "report"; }
  [[nodiscard]] std::filesystem::path at(std::string const& sub_folder, std::string const& name) const {
    return study_.folder / sub_folder / name;
  }

  /// Creates the folders. Throws UserError if that fails.
  void make() const;
  /// Submitted jobs, in order of submission.
  [[nodiscard]] std::vector<BatchJob> jobs() const;
  void add(BatchJob const& job) const;

  /// Status of each point. A point with a result is done. Throws UserError if jobs were submitted and their scheduler does not respond.
  [[nodiscard]] std::vector<PointStatus> status_of(std::span<StudyPoint const> points) const;

 private:
  [[nodiscard]] std::string reason_of_failure(StudyPoint const& point) const;
  /// Status of a submitted point that has neither a result nor a failure.
  [[nodiscard]] PointStatus status_of_task(LiveTasks const& live, BatchJob const& job,
                                           std::size_t task) const;

  Study const& study_;
};

/// Creates or replaces a small file atomically.
void write_file(std::filesystem::path const& path, std::string const& text, bool is_program = false);
/// Text of a file; empty if the file does not exist. Throws UserError, with the cause, if it cannot be read.
[[nodiscard]] std::string text_of_file(std::filesystem::path const& path);

} // namespace orthant::cli
