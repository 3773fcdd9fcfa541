// SPDX-License-Identifier: Apache-2.0
#include "cli/study/child_process.hpp"

#include "runtime/error.hpp"
#include "runtime/files/folder_entries.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace orthant::cli {
namespace {

constexpr int of_signals = 128;

using Variables = std::vector<std::pair<std::string, std::string>>;

/// As "NAME=value", with the `variables` in place of older ones.
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
  // What MPI has open stays here: others see by these that this process has ended.
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

} // namespace orthant::cli
