#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Slurm and Flux, by their commands. Under Slurm the points of a job are the tasks of an array. Flux has no arrays: there a job runs
// its points one after the other.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orthant::cli {

// Programs that are started and waited for: schedulers, and launchers of jobs on this machine. They get the environment that this
// program was started with. What MPI has added to it since then would make a launcher take itself for a rank.

inline constexpr int program_not_found = 127; // as shells say it

struct ChildResult {
  int status = 0; // as of a shell: program_not_found, 128 + the signal that ended it
  std::string output;
  std::string errors;
};

/// Runs the program `command[0]`, found by PATH, to its end. `variables` are set in its environment.
[[nodiscard]] ChildResult run_child(std::vector<std::string> const& command,
                                    std::vector<std::pair<std::string, std::string>> const& variables = {});

enum class Scheduler : std::uint8_t { slurm, flux };

struct BatchJob {
  Scheduler scheduler = Scheduler::slurm;
  std::string id;
  std::string name; // of this submission alone: a controller that lost its state gives ids away again
  std::vector<std::string> points; // keys, by task
};

struct Submission {
  Scheduler scheduler = Scheduler::slurm;
  std::string name;             // of the job; no other submission has it
  std::filesystem::path script; // of the job; its argument is the list
  std::filesystem::path list;   // of scripts of points, one per line
  std::filesystem::path folder; // where the job begins
  std::filesystem::path logs;
  std::int64_t num_nodes = 1;
  std::int64_t ranks_per_node = 1;
  std::vector<std::string> options;
};

/// Submits a job that runs these points. Throws UserError with the scheduler's own words if it refuses.
[[nodiscard]] BatchJob submit(Submission const& submission, std::vector<std::string> points);

struct LiveTask {
  bool is_running = false;
  std::string
      hold; // why it never starts by itself: Slurm holds what it could not launch; empty: it runs, or will
};
/// Tasks that wait or run, by "12_3 NAME"; of Flux by the job's id and its name.
using LiveTasks = std::map<std::string, LiveTask>;
/// Asks the scheduler for all tasks of this user. Throws UserError if it does not answer.
[[nodiscard]] LiveTasks live_tasks(Scheduler scheduler);
/// Nothing if the task has ended.
[[nodiscard]] std::optional<LiveTask> find_task(LiveTasks const& live, BatchJob const& job, std::size_t task);

/// The file in the folder of logs that the task's job writes.
[[nodiscard]] std::string log_name_of(BatchJob const& job, std::size_t task);

} // namespace orthant::cli
