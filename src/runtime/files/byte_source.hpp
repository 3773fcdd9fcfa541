#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Bytes at an offset: of a file, or of a member of a zip archive. What the .npy reader stands on.

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

// System calls that a signal interrupts or that a busy file server turns away.

/// Repeats a system call, which returns a negative number and sets errno if it fails, as often as it is
/// interrupted (EINTR), and for two seconds while it is told to try again (EAGAIN), which passes in
/// milliseconds.
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

  /// For messages: the path, or "archive(member)".
  [[nodiscard]] virtual std::string const& name() const = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Fills `out` from `offset`. Throws UserError if the bytes are not there or cannot be read. Without random
  /// access, bytes before `offset` are passed over at the cost of reading them, and going back starts again.
  virtual void read(std::int64_t offset, std::span<std::byte> out) = 0;
  [[nodiscard]] virtual bool has_random_access() const { return true; }
  /// Bytes that read() has cost so far, those that were passed over included.
  [[nodiscard]] virtual std::int64_t bytes_read() const = 0;
};

namespace detail {
struct CloseFile {
  void operator()(int descriptor) const noexcept;
};
using FileDescriptor = UniqueHandle<int, -1, CloseFile>;

/// Opens a regular file to read. Throws UserError that names it and the reason. Does not wait for the other
/// end of a pipe.
[[nodiscard]] FileDescriptor open_to_read(std::filesystem::path const& path);
[[nodiscard]] std::int64_t size_of_file(int descriptor, std::filesystem::path const& path);
/// Up to out.size() bytes from `offset`; fewer at the end only.
[[nodiscard]] std::int64_t read_at(int descriptor, std::int64_t offset, std::span<char> out,
                                   std::filesystem::path const& path);
} // namespace detail

/// A plain file, read where it is asked: any number of ranks at once.
[[nodiscard]] std::unique_ptr<ByteSource> open_file_bytes(std::filesystem::path const& path);

} // namespace orthant::runtime
