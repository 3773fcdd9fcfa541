// SPDX-License-Identifier: Apache-2.0
//
// Loaded before OpenBLAS, speaks in its place of the core type, as a library that takes the processor for an
// old one. Variables of the environment:
//   FAKE_DETECTED  the core type that it would choose by itself
//   FAKE_CONFIG    what openblas_get_config() says
//   FAKE_DEAF      if set, OPENBLAS_CORETYPE is not listened to
//   FAKE_NO_EXEC   if set, no program can be executed
//   FAKE_LOG       file that gets a line for every load: process, program, core type
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

namespace {

std::string& core() {
  static std::string name;
  return name;
}

[[gnu::constructor]] void load() { // where OpenBLAS reads its variables, too
  auto const* const detected = std::getenv("FAKE_DETECTED");
  auto const* const forced = std::getenv("FAKE_DEAF") == nullptr ? std::getenv("OPENBLAS_CORETYPE") : nullptr;
  core() = forced != nullptr ? forced : detected != nullptr ? detected : "";
  auto const* const path = std::getenv("FAKE_LOG");
  if (path == nullptr) return;
  std::string program(1024, '\0');
  auto const length = readlink("/proc/self/exe", program.data(), program.size());
  program.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
  auto* const log = std::fopen(path, "a");
  std::fprintf(log, "%d %s %s\n", static_cast<int>(getpid()), program.c_str(), core().c_str());
  std::fclose(log);
}

} // namespace

extern "C" {

char* openblas_get_corename() {
  return core().data();
}

char* openblas_get_config() {
  static std::string config = std::getenv("FAKE_CONFIG");
  return config.data();
}

int execv(char const* path, char* const arguments[]) {
  if (std::getenv("FAKE_NO_EXEC") == nullptr) return execve(path, arguments, environ);
  errno = EACCES;
  return -1;
}
}
