// SPDX-License-Identifier: Apache-2.0
//
// A library for LD_PRELOAD that lets one chosen event of one rank fail: an allocation, or a call that reads
// or writes a file of the job. inject.py starts jobs with it.
//
//   ORTHANT_INJECT         KIND:N, the N-th event of that kind fails (from 1); 0 counts events only
//   ORTHANT_INJECT_RANK    the rank on which it does, or "all"
//   ORTHANT_INJECT_FOLDER  files below it are the job's own; no others are touched
//   ORTHANT_INJECT_REPORT  file, with the rank appended, that gets the injection (seconds, call, callers) or
//   the counts
//
// Kinds:
//   alloc   operator new of any size, and allocations of Kokkos over 4 KiB: std::bad_alloc or a null pointer
//   eio     any call on a file; it fails once
//   enospc  calls that need space; writes, ftruncate, fallocate and mkdir fail from then on, as on a full
//   disk eintr, eagain  calls of the program itself that have to be repeated; it fails once

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <initializer_list>
#include <new>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

extern "C" void* __libc_malloc(std::size_t bytes); // glibc's own, so that no look-up needs memory

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
Plan plan;
std::atomic<bool> is_in_main{false};
std::atomic<long> counts[num_kinds];

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

/// Whether the address lies in the program itself (`own`), or in it or the library of Kokkos (otherwise).
bool is_called_by(void* address, bool own) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0) return false;
  return info.dli_fbase == plan.program || (!own && std::strstr(info.dli_fname, "kokkoscore") != nullptr);
}

/// Counts one event of `kind`; true for the one that is to fail.
bool is_due(Kind kind, bool is_lasting = false) {
  auto const number = ++counts[kind];
  return plan.kind == kind && plan.at > 0 && (number == plan.at || (is_lasting && number > plan.at));
}

bool fails_alloc(char const* call) {
  if (!plan.is_active || !is_in_main || !is_due(alloc)) return false;
  report_injection(call, "");
  return true;
}

bool is_own(char const* path) {
  return plan.is_active && is_in_main && std::strncmp(path, plan.folder, plan.folder_length) == 0 &&
         (path[plan.folder_length] == '/' || path[plan.folder_length] == '\0');
}

struct Traits {
  bool needs_space;
  bool is_lasting;
  bool may_be_interrupted;
  bool may_be_unready;
};
constexpr Traits opening{false, false, true, false};
constexpr Traits creating{true, false, true, false};
constexpr Traits reading{false, false, true, true};
constexpr Traits writing{true, true, true, true};
constexpr Traits reserving{true, true, true, false};
constexpr Traits syncing{true, false, true, false};
constexpr Traits naming{true, false, false, false};
constexpr Traits buffered_reading{false, false, false, false};
constexpr Traits buffered_writing{true, true, false, false};

/// The error that this call on `path` fails with, or 0.
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

/// Closing needs space only if something may still have to be written.
Traits closing_of(int file) {
  return Traits{(::fcntl(file, F_GETFL) & O_ACCMODE) != O_RDONLY, false, false, false};
}

template<class Function>
Function* next(Function*, char const* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
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

void* allocate(std::size_t bytes, char const* call) {
  auto* const memory = fails_alloc(call) ? nullptr : __libc_malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* allocate_aligned(std::size_t bytes, std::size_t alignment, char const* call) {
  if (fails_alloc(call)) return nullptr;
  static auto* const real = next(&::aligned_alloc, "aligned_alloc");
  return real(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// Allocations of Kokkos over 4 KiB.
bool fails_kokkos(std::size_t bytes, void* caller, char const* call) {
  return bytes > 4096 && plan.is_active && is_in_main && is_called_by(caller, false) && fails_alloc(call);
}

} // namespace

#define CALLER __builtin_return_address(0)
#define REAL(name) static auto* const real = next(&::name, #name)

// libstdc++ gives memory back by free, so operator delete stays as it is.
void* operator new(std::size_t bytes) {
  return allocate(bytes, "new");
}
void* operator new[](std::size_t bytes) {
  return allocate(bytes, "new[]");
}
void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
  return fails_alloc("new nothrow") ? nullptr : __libc_malloc(bytes == 0 ? 1 : bytes);
}
void* operator new[](std::size_t bytes, std::nothrow_t const&) noexcept {
  return fails_alloc("new[] nothrow") ? nullptr : __libc_malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return or_throw(allocate_aligned(bytes, static_cast<std::size_t>(alignment), "new aligned"));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return or_throw(allocate_aligned(bytes, static_cast<std::size_t>(alignment), "new[] aligned"));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, std::nothrow_t const&) noexcept {
  return allocate_aligned(bytes, static_cast<std::size_t>(alignment), "new aligned nothrow");
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, std::nothrow_t const&) noexcept {
  return allocate_aligned(bytes, static_cast<std::size_t>(alignment), "new[] aligned nothrow");
}
extern "C" {

int __libc_start_main(Main* main, int count, char** words, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
  using Start = int(Main*, int, char**, void (*)(), void (*)(), void (*)(), void*);
  auto* const real = reinterpret_cast<Start*>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  real_main = main;
  return real(plan.is_active ? &watched_main : main, count, words, init, fini, rtld_fini, stack_end);
}

void* malloc(std::size_t bytes) noexcept {
  if (bytes > 4096 && fails_kokkos(bytes, CALLER, "malloc of Kokkos")) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  if (fails_kokkos(bytes, CALLER, "posix_memalign of Kokkos")) return ENOMEM;
  REAL(posix_memalign);
  return real(memory, alignment, bytes);
}

#define OPENING(name)                                                                                        \
  int name(char const* path, int flags, ...) {                                                               \
    mode_t mode = 0;                                                                                         \
    if ((flags & (O_CREAT | O_TMPFILE)) != 0) {                                                              \
      std::va_list list;                                                                                     \
      va_start(list, flags);                                                                                 \
      mode = va_arg(list, mode_t);                                                                           \
      va_end(list);                                                                                          \
    }                                                                                                        \
    if (failure_of("open", path, (flags & O_CREAT) != 0 ? creating : opening, CALLER) != 0) return -1;       \
    return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));                             \
  }
OPENING(open)
OPENING(open64)

#define FOPENING(name)                                                                                       \
  FILE* name(char const* path, char const* mode) {                                                           \
    bool const creates = mode[0] != 'r';                                                                     \
    if (failure_of("fopen", path, creates ? Traits{true, false, false, false} : buffered_reading, CALLER) != \
        0)                                                                                                   \
      return nullptr;                                                                                        \
    REAL(name);                                                                                              \
    return real(path, mode);                                                                                 \
  }
FOPENING(fopen)
FOPENING(fopen64)

#define ON_DESCRIPTOR(result, name, traits, declared, given)                                                 \
  result name declared {                                                                                     \
    if (failure_of(#name, file, traits, CALLER) != 0) return -1;                                             \
    REAL(name);                                                                                              \
    return real given;                                                                                       \
  }
ON_DESCRIPTOR(ssize_t, read, reading, (int file, void* data, std::size_t bytes), (file, data, bytes))
ON_DESCRIPTOR(ssize_t, write, writing, (int file, void const* data, std::size_t bytes), (file, data, bytes))
ON_DESCRIPTOR(ssize_t, pread, reading, (int file, void* data, std::size_t bytes, off_t at),
              (file, data, bytes, at))
ON_DESCRIPTOR(ssize_t, pread64, reading, (int file, void* data, std::size_t bytes, off64_t at),
              (file, data, bytes, at))
ON_DESCRIPTOR(ssize_t, pwrite, writing, (int file, void const* data, std::size_t bytes, off_t at),
              (file, data, bytes, at))
ON_DESCRIPTOR(ssize_t, pwrite64, writing, (int file, void const* data, std::size_t bytes, off64_t at),
              (file, data, bytes, at))
ON_DESCRIPTOR(ssize_t, readv, reading, (int file, iovec const* data, int count), (file, data, count))
ON_DESCRIPTOR(ssize_t, writev, writing, (int file, iovec const* data, int count), (file, data, count))
ON_DESCRIPTOR(ssize_t, preadv, reading, (int file, iovec const* data, int count, off_t at),
              (file, data, count, at))
ON_DESCRIPTOR(ssize_t, pwritev, writing, (int file, iovec const* data, int count, off_t at),
              (file, data, count, at))
ON_DESCRIPTOR(ssize_t, preadv64, reading, (int file, iovec const* data, int count, off64_t at),
              (file, data, count, at))
ON_DESCRIPTOR(ssize_t, pwritev64, writing, (int file, iovec const* data, int count, off64_t at),
              (file, data, count, at))
ON_DESCRIPTOR(int, fsync, syncing, (int file), (file))
ON_DESCRIPTOR(int, fdatasync, syncing, (int file), (file))
ON_DESCRIPTOR(int, fallocate, reserving, (int file, int mode, off_t at, off_t bytes), (file, mode, at, bytes))
ON_DESCRIPTOR(int, fallocate64, reserving, (int file, int mode, off64_t at, off64_t bytes),
              (file, mode, at, bytes))

#define TRUNCATING(name, offset)                                                                             \
  int name(int file, offset bytes) noexcept {                                                                \
    if (failure_of("ftruncate", file, reserving, CALLER) != 0) return -1;                                    \
    REAL(name);                                                                                              \
    return real(file, bytes);                                                                                \
  }
TRUNCATING(ftruncate, off_t)
TRUNCATING(ftruncate64, off64_t)

#define RESERVING(name, offset)                                                                              \
  int name(int file, offset at, offset bytes) {                                                              \
    if (auto const error = failure_of("posix_fallocate", file, reserving, CALLER); error != 0) return error; \
    REAL(name);                                                                                              \
    return real(file, at, bytes);                                                                            \
  }
RESERVING(posix_fallocate, off_t)
RESERVING(posix_fallocate64, off64_t)

int close(int file) {
  auto const error = failure_of("close", file, closing_of(file), CALLER);
  auto const result =
      static_cast<int>(::syscall(SYS_close, file)); // Linux closes it even if it says that it failed
  if (error == 0) return result;
  errno = error;
  return -1;
}
int rename(char const* from, char const* to) noexcept {
  if (failure_of("rename", to, naming, CALLER) != 0) return -1;
  REAL(rename);
  return real(from, to);
}
int mkdir(char const* path, mode_t mode) noexcept {
  if (failure_of("mkdir", path, Traits{true, true, false, false}, CALLER) != 0) return -1;
  REAL(mkdir);
  return real(path, mode);
}

// Streams of C. The flag is glibc's sign that an error has been seen.
constexpr int error_seen = 0x20;
std::size_t fread(void* data, std::size_t bytes, std::size_t count, FILE* stream) {
  if (failure_of("fread", ::fileno(stream), buffered_reading, CALLER) != 0) {
    stream->_flags |= error_seen;
    return 0;
  }
  REAL(fread);
  return real(data, bytes, count, stream);
}
std::size_t fwrite(void const* data, std::size_t bytes, std::size_t count, FILE* stream) {
  if (failure_of("fwrite", ::fileno(stream), buffered_writing, CALLER) != 0) {
    stream->_flags |= error_seen;
    return 0;
  }
  REAL(fwrite);
  return real(data, bytes, count, stream);
}
int fflush(FILE* stream) {
  if (stream != nullptr && failure_of("fflush", ::fileno(stream), buffered_writing, CALLER) != 0) {
    stream->_flags |= error_seen;
    return EOF;
  }
  REAL(fflush);
  return real(stream);
}
int fclose(FILE* stream) {
  auto const error = failure_of("fclose", ::fileno(stream), closing_of(::fileno(stream)), CALLER);
  REAL(fclose);
  auto const result = real(stream);
  if (error == 0) return result;
  errno = error;
  return EOF;
}

} // extern "C"
