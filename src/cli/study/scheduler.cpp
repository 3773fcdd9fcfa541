// SPDX-License-Identifier: Apache-2.0
#include "cli/study/scheduler.hpp"

#include "cli/study/child_process.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <sstream>

namespace orthant::cli {
namespace {

std::string first_line(std::string const& text) {
  return text.substr(0, text.find('\n'));
}

std::string task_of(std::string const& id, std::string const& name) {
  return id + " " + name;
}

/// Of what waits: "launch failed requeued held" and the like. What users hold themselves ("JobHeldUser") they release, too.
bool is_hold(std::string const& reason) {
  return reason == "JobHoldMaxRequeue" ||
         (reason.find("requeued") != std::string::npos && reason.find("held") != std::string::npos);
}

/// Its output. Throws UserError if it fails.
std::string ask(std::vector<std::string> const& command) {
  auto const done = run_child(command);
  if (done.status == program_not_found)
    runtime::throw_user("there is no `{}` on this machine; submit where the scheduler is, or with --here",
                        command.front());
  if (done.status != 0)
    runtime::throw_user("{} failed with status {}: {}", command.front(), done.status,
                        first_line(done.errors.empty() ? done.output : done.errors));
  return done.output;
}

std::vector<std::string> command_of(Submission const& s, std::size_t num_points) {
  std::vector<std::string> command;
  if (s.scheduler == Scheduler::slurm)
    command = {"sbatch",
               "--parsable",
               fmt::format("--nodes={}", s.num_nodes),
               fmt::format("--ntasks-per-node={}", s.ranks_per_node),
               fmt::format("--array=0-{}", num_points - 1),
               "--chdir=" + s.folder.string(),
               "--output=" + (s.logs / (s.name + "-%A_%a.log")).string()};
  else
    command = {"flux", "batch", fmt::format("--nodes={}", s.num_nodes), "--cwd=" + s.folder.string(),
               "--output=" + (s.logs / (s.name + "-{{id}}.log")).string()};
  command.insert(command.end(), s.options.begin(), s.options.end());
  command.push_back("--job-name=" + s.name); // the last one counts
  command.push_back(s.script.string());
  command.push_back(s.list.string());
  return command;
}

} // namespace

BatchJob submit(Submission const& submission, std::vector<std::string> points) {
  auto id = first_line(ask(command_of(submission, points.size())));
  id = id.substr(0, id.find(';')); // Slurm adds the cluster
  if (id.empty()) runtime::throw_user("the scheduler took a job and did not say its number");
  return {submission.scheduler, id, submission.name, std::move(points)};
}

LiveTasks live_tasks(Scheduler scheduler) {
  auto const is_slurm = scheduler == Scheduler::slurm;
  auto const output = is_slurm ? ask({"squeue", "--me", "--noheader", "--array", "--format=%F_%K|%T|%r|%j"})
                               : ask({"flux", "jobs", "--no-header", "--format={id}|{state}||{name}"});
  LiveTasks live;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string task, state, reason, name;
    for (auto* const word : {&task, &state, &reason})
      std::getline(words, *word, '|');
    std::getline(words, name);
    auto const is_running =
        state == "RUNNING" || state == "COMPLETING" || state == "RUN" || state == "CLEANUP";
    live[task_of(task, name)] = {is_running, is_hold(reason) ? reason : ""};
  }
  return live;
}

std::optional<LiveTask> find_task(LiveTasks const& live, BatchJob const& job, std::size_t task) {
  auto const id = job.scheduler == Scheduler::slurm ? fmt::format("{}_{}", job.id, task) : job.id;
  auto const found = live.find(task_of(id, job.name));
  return found == live.end() ? std::nullopt : std::optional(found->second);
}

std::string log_name_of(BatchJob const& job, std::size_t task) {
  return job.scheduler == Scheduler::slurm ? fmt::format("{}-{}_{}.log", job.name, job.id, task)
                                           : fmt::format("{}-{}.log", job.name, job.id);
}

} // namespace orthant::cli
