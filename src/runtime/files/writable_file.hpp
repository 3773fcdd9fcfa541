#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A file that this process writes, with every call checked. A call that is interrupted or told to try again
// (EINTR, EAGAIN) is repeated for two seconds. Every other failure is a UserError that says what the file is
// for, its name and the system's reason.

#include "runtime/unique_handle.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace orthant::runtime {

namespace detail {
struct CloseDescriptor {
  void operator()(int descriptor) const noexcept;
};
using Descriptor = UniqueHandle<int, -1, CloseDescriptor>;
} // namespace detail

/// What messages call a file: "cannot write the weights file 'w.h5': No space left on device".
struct FileName {
  std::string purpose; // "weights"
  std::filesystem::path path;
};

/// Throws the UserError "cannot `verb` the .. file '..': reason of `code`", an errno.
[[noreturn]] void refuse_file(FileName const& name, std::string_view verb, int code);

class WritableFile {
 public:
  enum class Mode : std::uint8_t {
    create, // a new file; fails if one is there
    open,   // one that is there
    append  // one that is there or a new one; everything goes to its end
  };
  WritableFile() = default;
  /// Opens `path`. `name` is for messages; its path may be the one that the file will get.
  WritableFile(std::filesystem::path const& path, Mode mode, FileName name);

  [[nodiscard]] bool is_open() const { return file_.owns(); }
  /// Whole or not at all, as far as the caller is concerned: a short write is continued.
  void write_at(std::int64_t offset, std::span<std::byte const> bytes);
  /// Behind what was appended before.
  void append(std::string_view text);
  /// Sets aside disk space for the first `num_bytes`, so that a full disk is found before the work. File
  /// systems that cannot do so are left to fail when they are full.
  void reserve(std::int64_t num_bytes);
  void set_size(std::int64_t num_bytes);
  /// Returns when the data are on the disk.
  void sync();
  /// Holds a shared lock on the file until it is closed, by which others see that its writer lives. Nothing
  /// happens on file systems without locks.
  void mark_in_use();
  /// Closes. Some file systems report a failed write only here.
  void close();

 private:
  void write_back();
  FileName name_;
  detail::Descriptor file_;
};

/// Waits until the names in `folder` are on the disk.
void sync_folder(std::filesystem::path const& folder, FileName const& name);

} // namespace orthant::runtime
