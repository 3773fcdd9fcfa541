#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads bytes at an offset of a file or of a member of a zip archive. The .npy reader is built on it.

#include "runtime/unique_handle.hpp"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <thread>

namespace orthant::runtime {

// System calls that a signal may interrupt or a busy file server may refuse.

/// Calls a system call, which returns a negative number and sets errno if it fails. Repeats it while it is interrupted (EINTR), and for two
/// seconds while it fails with EAGAIN, a state that normally ends within milliseconds.
template<class Call>
auto repeated(Call&& call) {
  using Clock = std::chrono::steady_clock;
  auto const give_up = Clock::now() + std::chrono::seconds(2);
  for (;;) {
    auto const result = call();
    if (result >= 0 || (errno != EINTR && errno != EAGAIN)) return result;
    if (errno == EINTR) continue;
    if (Clock::now() > give_up) {
      errno = EAGAIN;
      return result;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class ByteSource {
 public:
  ByteSource() = default;
  ByteSource(ByteSource const&) = delete;
  ByteSource& operator=(ByteSource const&) = delete;
  virtual ~ByteSource() = default;

  /// Name for messages: the path, or "archive(member)".
  [[nodiscard]] virtual std::string const& name() const = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Fills `out` with the bytes from `offset` on. Throws UserError if the bytes do not exist or cannot be read. Without random access, the
  /// bytes before `offset` are read and dropped, and a smaller offset than before starts again from the beginning.
  virtual void read(std::int64_t offset, std::span<std::byte> out) = 0;
  [[nodiscard]] virtual bool has_random_access() const { return true; }
  /// Number of bytes that read() has read so far, including dropped ones.
  [[nodiscard]] virtual std::int64_t bytes_read() const = 0;
};

namespace detail {
struct CloseFile {
  void operator()(int descriptor) const noexcept;
};
using FileDescriptor = UniqueHandle<int, -1, CloseFile>;

/// Opens a regular file for reading. Throws a UserError with its name and the reason. Does not wait for the other end of a pipe.
[[nodiscard]] FileDescriptor open_to_read(std::filesystem::path const& path);
[[nodiscard]] std::int64_t size_of_file(int descriptor, std::filesystem::path const& path);
/// Reads out.size() bytes from `offset`, fewer only at the end of the file. Returns the number of bytes.
[[nodiscard]] std::int64_t read_at(int descriptor, std::int64_t offset, std::span<char> out,
                                   std::filesystem::path const& path);
} // namespace detail

/// A plain file, read at the requested offsets. Any number of ranks may read it at the same time.
[[nodiscard]] std::unique_ptr<ByteSource> open_file_bytes(std::filesystem::path const& path);

} // namespace orthant::runtime
