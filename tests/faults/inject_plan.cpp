// SPDX-License-Identifier: Apache-2.0
//
// A library for LD_PRELOAD that lets one chosen event of one rank fail: an allocation (inject_memory.cpp), or a
// call that reads or writes a file of the job (inject_files.cpp). inject.py starts jobs with it. This file reads
// which event that is, counts the events and reports.
//
//   ORTHANT_INJECT         KIND:N, the N-th event of that kind fails (from 1); 0 counts events only
//   ORTHANT_INJECT_RANK    the rank on which it does, or "all"
//   ORTHANT_INJECT_FOLDER  files below it are the job's own; no others are touched
//   ORTHANT_INJECT_REPORT  file, with the rank appended, that gets the injection (seconds, call, callers) or the
//                          counts
//
// Kinds:
//   alloc          operator new of any size, and allocations of Kokkos over 4 KiB: std::bad_alloc or a null pointer
//   eio            any call on a file; it fails once
//   enospc         calls that need space; writes, ftruncate, fallocate and mkdir fail from then on, as on a full disk
//   eintr, eagain  calls of the program itself that have to be repeated; it fails once
#include "injection.hpp"

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace injection {
namespace {

enum Kind { alloc, eio, enospc, eintr, eagain, num_kinds };
constexpr char const* kind_names[num_kinds] = {"alloc", "eio", "enospc", "eintr", "eagain"};

struct Plan {
  bool is_active = false;
  int kind = num_kinds;
  long at = 0;
  char folder[PATH_MAX] = {};
  std::size_t folder_length = 0;
  char report[PATH_MAX] = {};
  void* program = nullptr; // where the program itself is mapped
};
constinit Plan plan;
constinit std::atomic<bool> is_in_main{false};
constinit std::atomic<long> counts[num_kinds];

void write_report(char const* text, std::size_t length, bool with_callers) {
  auto const file =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, plan.report, O_WRONLY | O_CREAT | O_APPEND, 0666));
  if (file < 0) return;
  static_cast<void>(::syscall(SYS_write, file, text, length));
  if (with_callers) {
    void* callers[24];
    ::backtrace_symbols_fd(callers, ::backtrace(callers, 24), file);
  }
  ::syscall(SYS_close, file);
}

void report_injection(char const* call, char const* path) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  char line[PATH_MAX + 200];
  auto const length =
      std::snprintf(line, sizeof line, "injected %lld.%09ld %s %s %s\n", static_cast<long long>(now.tv_sec),
                    now.tv_nsec, plan.kind < num_kinds ? kind_names[plan.kind] : "", call, path);
  write_report(line, static_cast<std::size_t>(length), true);
}

/// Counts one event of `kind`; true for the one that is to fail.
bool is_due(Kind kind, bool is_lasting = false) {
  auto const number = ++counts[kind];
  return plan.kind == kind && plan.at > 0 && (number == plan.at || (is_lasting && number > plan.at));
}

bool is_own(char const* path) {
  return is_watching() && std::strncmp(path, plan.folder, plan.folder_length) == 0 &&
         (path[plan.folder_length] == '/' || path[plan.folder_length] == '\0');
}

[[gnu::constructor]] void read_plan() {
  char const* const inject = std::getenv("ORTHANT_INJECT");
  char const* const wanted = std::getenv("ORTHANT_INJECT_RANK");
  char const* const folder = std::getenv("ORTHANT_INJECT_FOLDER");
  char const* const report = std::getenv("ORTHANT_INJECT_REPORT");
  char const* rank = nullptr;
  for (auto const* const name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (rank == nullptr) rank = std::getenv(name);
  if (inject == nullptr || wanted == nullptr || folder == nullptr || report == nullptr || rank == nullptr)
    return;
  if (std::strcmp(wanted, "all") != 0 && std::strcmp(rank, wanted) != 0) return;
  for (int kind = 0; kind < num_kinds; ++kind) {
    auto const length = std::strlen(kind_names[kind]);
    if (std::strncmp(inject, kind_names[kind], length) != 0 || inject[length] != ':') continue;
    plan.kind = kind;
    plan.at = std::atol(inject + length + 1);
  }
  std::snprintf(plan.folder, sizeof plan.folder, "%s", folder);
  std::snprintf(plan.report, sizeof plan.report, "%s%s", report, rank);
  plan.folder_length = std::strlen(plan.folder);
  void* first[4];
  ::backtrace(first, 4); // loads what it needs now, not in the middle of an allocation
  plan.is_active = true;
}

[[gnu::destructor]] void report_counts() {
  if (!plan.is_active || plan.at > 0) return;
  for (int kind = 0; kind < num_kinds; ++kind) {
    char line[64];
    auto const length =
        std::snprintf(line, sizeof line, "count %s %ld\n", kind_names[kind], counts[kind].load());
    write_report(line, static_cast<std::size_t>(length), false);
  }
}

using Main = int(int, char**, char**);
Main* real_main = nullptr;
int watched_main(int count, char** words, char** environment) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(real_main), &info) != 0) plan.program = info.dli_fbase;
  is_in_main = true;
  auto const status = real_main(count, words, environment);
  is_in_main = false;
  return status;
}

} // namespace

bool is_watching() {
  return plan.is_active && is_in_main;
}

bool is_called_by(void* address, bool own) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0) return false;
  return info.dli_fbase == plan.program || (!own && std::strstr(info.dli_fname, "kokkoscore") != nullptr);
}

bool fails_alloc(char const* call) {
  if (!is_watching() || !is_due(alloc)) return false;
  report_injection(call, "");
  return true;
}

int failure_of(char const* call, char const* path, Traits traits, void* caller) {
  if (path == nullptr || !is_own(path)) return 0;
  int error = 0;
  if (is_due(eio)) error = EIO;
  if (traits.needs_space && is_due(enospc, traits.is_lasting)) error = ENOSPC;
  if ((traits.may_be_interrupted || traits.may_be_unready) && is_called_by(caller, true)) {
    if (traits.may_be_interrupted && is_due(eintr)) error = EINTR;
    if (traits.may_be_unready && is_due(eagain)) error = EAGAIN;
  }
  if (error != 0) report_injection(call, path);
  errno = error != 0 ? error : errno;
  return error;
}

int failure_of(char const* call, int descriptor, Traits traits, void* caller) {
  if (!plan.is_active || descriptor <= 2) return 0;
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  char path[PATH_MAX];
  auto const saved = errno;
  auto const length = ::readlink(link, path, sizeof path - 1);
  errno = saved;
  if (length <= 0) return 0;
  path[length] = '\0';
  return failure_of(call, path, traits, caller);
}

} // namespace injection

extern "C" int __libc_start_main(injection::Main* main, int count, char** words, void (*init)(),
                                 void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  using Start = int(injection::Main*, int, char**, void (*)(), void (*)(), void (*)(), void*);
  auto* const real = reinterpret_cast<Start*>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  injection::real_main = main;
  return real(injection::plan.is_active ? &injection::watched_main : main, count, words, init, fini,
              rtld_fini, stack_end);
}
