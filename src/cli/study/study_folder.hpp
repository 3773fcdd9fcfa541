#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The folder of a study, which is all of its state:
//
//   points/KEY.sh        starts one point; ORTHANT_LAUNCH is the launcher
//   results/KEY.jsonl    metrics of a point that is done; appears whole, by a rename
//   failures/KEY         status of a point whose last try failed
//   logs/KEY.log         what the last try printed
//   parts/KEY.*          metrics of tries that run, or were killed
//   jobs/*               what was submitted, and to which scheduler
//   results.jsonl        of `study collect`
//   report/              of `study report`

#include "cli/study/scheduler.hpp"
#include "cli/study/study_file.hpp"

#include <map>
#include <span>
#include <string>

namespace orthant::cli {

// Why a job failed, in the words of its log.

/// The first line of the program's own error. If there is none, the first line of the log that explains the end: an error of the
/// scheduler, of the launcher or of the shell, with the rest of its sentence if the launcher breaks it into lines. Else the
/// last line, with what the launcher says of any failure; empty if there is no line.
[[nodiscard]] std::string reason_in_log(std::string const& log);

enum class PointState : std::uint8_t { to_do, waiting, running, failed, lost, done };
[[nodiscard]] std::string_view name_of(PointState state);

struct PointStatus {
  PointState state = PointState::to_do;
  std::string reason; // of one that failed or was lost: the job's own words
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

  /// Makes the folders. Throws UserError if that fails.
  void make() const;
  /// Jobs that were submitted, in that order.
  [[nodiscard]] std::vector<BatchJob> jobs() const;
  void add(BatchJob const& job) const;

  /// Of each point. A point that is done stays done. Throws UserError if jobs were submitted and their scheduler does not answer.
  [[nodiscard]] std::vector<PointStatus> status_of(std::span<StudyPoint const> points) const;

 private:
  [[nodiscard]] std::string reason_of_failure(StudyPoint const& point) const;
  /// Of a point without a result or a failure.
  [[nodiscard]] PointStatus status_of_task(LiveTasks const& live, BatchJob const& job,
                                           std::size_t task) const;

  Study const& study_;
};

/// Creates or replaces a small file, whole or not at all.
void write_file(std::filesystem::path const& path, std::string const& text, bool is_program = false);
/// The text of a file; empty if there is no such file. Throws UserError, with the cause, if it cannot be read.
[[nodiscard]] std::string text_of_file(std::filesystem::path const& path);

} // namespace orthant::cli
