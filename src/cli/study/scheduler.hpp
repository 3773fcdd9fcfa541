#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Submits jobs to Slurm and Flux and queries them, through their commands. Under Slurm the points of a job are the tasks of an array.
// Flux has no arrays: there a job runs its points one after the other.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orthant::cli {

// Child processes: commands of schedulers, and launchers of jobs on this machine. They get the environment that this program was started
// with, because MPI has added variables since then, with which a launcher would believe that it is a rank.

inline constexpr int program_not_found = 127; // exit status of shells for an unknown command

struct ChildResult {
  int status = 0; // exit status, program_not_found, or 128 + the signal that ended it
  std::string output;
  std::string errors;
};

/// Runs the program `command[0]`, found by PATH, and waits for its end. `variables` are added to its environment.
[[nodiscard]] ChildResult run_child(std::vector<std::string> const& command,
                                    std::vector<std::pair<std::string, std::string>> const& variables = {});

enum class Scheduler : std::uint8_t { slurm, flux };

struct BatchJob {
  Scheduler scheduler = Scheduler::slurm;
  std::string id;
  std::string name;                // unique, unlike ids, which a controller that lost its state reuses
  std::vector<std::string> points; // key of each task
};

struct Submission {
  Scheduler scheduler = Scheduler::slurm;
  std::string name;             // of the job, unique
  std::filesystem::path script; // of the job; its argument is `list`
  std::filesystem::path list;   // file with the scripts of the points, one per line
  std::filesystem::path folder; // working folder of the job
  std::filesystem::path logs;
  std::int64_t num_nodes = 1;
  std::int64_t ranks_per_node = 1;
  std::vector<std::string> options;
};

/// Submits a job that runs these points. Throws UserError with the scheduler's message if it refuses.
[[nodiscard]] BatchJob submit(Submission const& submission, std::vector<std::string> points);

struct LiveTask {
  bool is_running = false;
  std::string hold; // why Slurm holds a task that it could not launch; empty: it is not held
};
/// Tasks that wait or run, by id and name: "12_3 NAME" for Slurm, job id and name for Flux.
using LiveTasks = std::map<std::string, LiveTask>;
/// Queries all tasks of this user. Throws UserError if the scheduler does not respond.
[[nodiscard]] LiveTasks live_tasks(Scheduler scheduler);
/// Returns the task, or nullopt if it has ended.
[[nodiscard]] std::optional<LiveTask> find_task(LiveTasks const& live, BatchJob const& job, std::size_t task);

/// Name of the task's log file in the folder of logs.
[[nodiscard]] std::string log_name_of(BatchJob const& job, std::size_t task);

} // namespace orthant::cli
