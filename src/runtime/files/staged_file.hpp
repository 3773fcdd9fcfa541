#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Atomic replacement of a file. A new file is written under a temporary name in the same folder, and renamed when it is complete and on the
// disk. If a job fails, is killed or finds the disk full, an older file of that name stays as it was.
//
//   auto staged = StagedFile::create(comm, path, "weights");      before the work: it fails early
//   staged.file().reserve(num_bytes);                             one rank
//   staged.file().write_at(offset, bytes);                        any rank, not collective
//   staged.publish(comm);                                         fsync, rename, fsync of the folder
//
// No destructor communicates: a rank that fails alone can leave at any point.

#include "runtime/comm/communicator.hpp"
#include "runtime/files/temporary_path.hpp"
#include "runtime/unique_handle.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace orthant::runtime {

// A file that this process writes. Every call is checked. A call that fails with EINTR or EAGAIN is repeated for two seconds. Every other
// failure throws a UserError with the file's purpose, its name and the system's reason.

namespace detail {
struct CloseDescriptor {
  void operator()(int descriptor) const noexcept;
};
using Descriptor = UniqueHandle<int, -1, CloseDescriptor>;
} // namespace detail

/// Purpose and path of a file in messages: "cannot write the weights file 'w.h5': No space left on device".
struct FileName {
  std::string purpose; // "weights"
  std::filesystem::path path;
};

/// Throws the UserError "cannot `verb` the .. file '..': reason of `code`"; `code` is an errno.
[[noreturn]] void refuse_file(FileName const& name, std::string_view verb, int code);

class WritableFile {
 public:
  enum class Mode : std::uint8_t {
    create, // a new file; fails if the file exists
    open,   // an existing file
    append  // an existing or a new file; all writes go to its end
  };
  WritableFile() = default;
  /// Opens `path`. `name` is for messages; its path may be the file's later name.
  WritableFile(std::filesystem::path const& path, Mode mode, FileName name);

  [[nodiscard]] bool is_open() const { return file_.owns(); }
  /// Writes all bytes or throws: a short write is continued.
  void write_at(std::int64_t offset, std::span<std::byte const> bytes);
  /// Writes `text` after the text that was appended before.
  void append(std::string_view text);
  /// Reserves disk space for the first `num_bytes`, so that a full disk is found before the work. Does nothing on file systems that cannot
  /// reserve space.
  void reserve(std::int64_t num_bytes);
  void set_size(std::int64_t num_bytes);
  /// Returns when the data are on the disk.
  void sync();
  /// Holds a shared lock on the file until it is closed, by which other processes see that its writer is alive. Does nothing on file
  /// systems without locks.
  void mark_in_use();
  /// Closes the file. Some file systems report a failed write only here.
  void close();

 private:
  void write_back();
  FileName name_;
  detail::Descriptor file_;
};

/// Waits until the names in `folder` are on the disk.
void sync_folder(std::filesystem::path const& folder, FileName const& name);

// A file of an earlier run that a new run must neither extend nor replace gets another name.

/// Renames "run.jsonl" to "run.jsonl.1", or to the first free name after it ("run.jsonl.2", ..), and returns that name. If `path` is a
/// symbolic link, its target is renamed and the link stays. For one process. Throws UserError if the file cannot be renamed.
[[nodiscard]] std::filesystem::path set_aside(std::filesystem::path const& path);

/// Calls set_aside() if the file exists, is a regular file and is not empty; otherwise does nothing and returns an empty path.
[[nodiscard]] std::filesystem::path set_aside_if_any(std::filesystem::path const& path);

class StagedFile {
 public:
  StagedFile() = default;
  /// A file of this process alone. Throws UserError if `path` cannot be written, or exists and is not a regular file. Removes unfinished
  /// files that earlier jobs have left.
  StagedFile(std::filesystem::path const& path, std::string purpose);
  /// A file that all ranks of `comm` write: rank 0 creates it, and the others open it. Collective. Throws on all ranks if one of them
  /// fails.
  [[nodiscard]] static StagedFile create(Communicator const& comm, std::filesystem::path const& path,
                                         std::string purpose);

  [[nodiscard]] bool is_open() const { return file_.is_open(); }
  [[nodiscard]] WritableFile& file() { return file_; }
  /// The temporary name.
  [[nodiscard]] std::filesystem::path const& path() const { return temporary_->path(); }

  /// Gives a file of one process its final name.
  void publish();
  /// Gives a file that all ranks have written its final name. Rank 0 renames it when the data of every rank are on the disk. Collective;
  /// throws on all ranks if one of them fails.
  void publish(Communicator const& comm);
  /// This object no longer removes the file: another rank completes or removes it.
  void keep() { temporary_->keep(); }

 private:
  StagedFile(std::filesystem::path const& path, std::string purpose, std::uint64_t token);
  void open(WritableFile::Mode mode);
  void complete();
  void rename();

  FileName name_; // its path is the file's final name
  std::unique_ptr<TemporaryPath> temporary_;
  WritableFile file_;
};

/// Throws UserError unless a StagedFile of `path` can be written, as a check before hours of work. Leaves the folder as it was.
void require_writable(std::filesystem::path const& path, std::string const& purpose);
/// Rank 0 checks; all ranks throw the same error. Collective.
void require_writable(Communicator const& comm, std::filesystem::path const& path,
                      std::string const& purpose);

/// Target of `path` if it is a symbolic link (the target need not exist); otherwise `path`. Writers replace the target and keep the link.
[[nodiscard]] std::filesystem::path link_target(std::filesystem::path const& path);

} // namespace orthant::runtime
