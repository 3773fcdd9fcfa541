// SPDX-License-Identifier: Apache-2.0
//
// Calls on files that fail. Every one asks failure_of() before it does what it is for.
#include "injection.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

using namespace injection;

namespace {

/// Closing needs space only if something may still have to be written.
Traits closing_of(int file) {
  return Traits{(::fcntl(file, F_GETFL) & O_ACCMODE) != O_RDONLY, false, false, false};
}

} // namespace

extern "C" {

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
