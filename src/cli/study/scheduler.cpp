// SPDX-License-Identifier: Apache-2.0
#include "cli/study/scheduler.hpp"

#include "runtime/error.hpp"
#include "runtime/files/temporary_path.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace orthant::cli {
namespace {

constexpr int of_signals = 128;

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Environment at the start of this program as "NAME=value", with `variables` added or replaced.
std::vector<std::string> first_environment(Variables const& variables) {
  std::vector<std::string> entries;
  std::ifstream file("/proc/self/environ", std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');) {
    auto is_replaced = false;
    for (auto const& [name, value] : variables)
      is_replaced = is_replaced || entry.starts_with(name + "=");
    if (!is_replaced) entries.push_back(entry);
  }
  for (auto const& [name, value] : variables)
    entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts)
    pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct CloseStream {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using Stream = std::unique_ptr<std::FILE, CloseStream>;

Stream make_scratch_file() {
  Stream file(std::tmpfile());
  if (!file) runtime::throw_user("cannot make a temporary file: {}", std::strerror(errno));
  return file;
}

std::string text_of(Stream const& file) {
  std::rewind(file.get());
  std::string text;
  char buffer[4096];
  for (std::size_t count = 0; (count = std::fread(buffer, 1, sizeof buffer, file.get())) > 0;)
    text.append(buffer, count);
  return text;
}

} // namespace

ChildResult run_child(std::vector<std::string> const& command, Variables const& variables) {
  auto words = command;
  auto entries = first_environment(variables);
  auto arguments = pointers_to(words);
  auto environment = pointers_to(entries);
  auto const output = make_scratch_file();
  auto const errors = make_scratch_file();

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, fileno(output.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(errors.get()), STDERR_FILENO);
  // The child must not inherit MPI's open files: other processes notice that this one has ended when these files are closed.
  std::error_code error;
  for (auto const& name : runtime::folder_entries("/proc/self/fd", error))
    if (auto const descriptor = std::atoi(name.c_str()); descriptor > STDERR_FILENO)
      posix_spawn_file_actions_addclose(&actions, descriptor);
  pid_t process = 0;
  auto const code =
      posix_spawnp(&process, words.front().c_str(), &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) return {program_not_found, {}, std::string(std::strerror(code))};

  int status = 0;
  while (waitpid(process, &status, 0) < 0)
    if (errno != EINTR) throw runtime::Error(std::string("waitpid: ") + std::strerror(errno));
  return {WIFEXITED(status) ? WEXITSTATUS(status) : of_signals + WTERMSIG(status), text_of(output),
          text_of(errors)};
}

namespace {

std::string first_line(std::string const& text) {
  return text.substr(0, text.find('\n'));
}

std::string task_of(std::string const& id, std::string const& name) {
  return id + " " + name;
}

/// True if Slurm itself holds the task ("launch failed requeued held" and the like). Tasks that users hold ("JobHeldUser") count as
/// waiting.
bool is_hold(std::string const& reason) {
  return reason == "JobHoldMaxRequeue" ||
         (reason.find("requeued") != std::string::npos && reason.find("held") != std::string::npos);
}

/// Runs the command and returns its output. Throws UserError if it fails.
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
  command.push_back("--job-name=" + s.name); // overrides an earlier one in the options
  command.push_back(s.script.string());
  command.push_back(s.list.string());
  return command;
}

} // namespace

BatchJob submit(Submission const& submission, std::vector<std::string> points) {
  auto id = first_line(ask(command_of(submission, points.size())));
  id = id.substr(0, id.find(';')); // Slurm may append the cluster
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
