#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Atomic replacement of a file. A new file is written under a temporary name beside its own, in the same
// folder, and renamed when it is complete and on the disk. A job that fails, is killed or finds the disk full
// leaves the older file as it was, or none.
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

// A file that this process writes, with every call checked. A call that is interrupted or told to try again
// (EINTR, EAGAIN) is repeated for two seconds. Every other failure is a UserError that says what the file is
// for, its name and the system's reason.

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

// A file of an earlier run that a new one must neither add to nor replace gets another name.

/// Renames "run.jsonl" to "run.jsonl.1", or to the first free name after it ("run.jsonl.2", ..), and returns that
/// name. Of a symbolic link the target is renamed, and the link stays. For one process. Throws UserError.
[[nodiscard]] std::filesystem::path set_aside(std::filesystem::path const& path);

/// The same if the file is there, is a regular one and is not empty; else nothing is done, and the path is empty.
[[nodiscard]] std::filesystem::path set_aside_if_any(std::filesystem::path const& path);

class StagedFile {
 public:
  StagedFile() = default;
  /// A file of this process alone. Throws UserError if `path` cannot be written, or is there and is no
  /// regular file. What earlier jobs have left of it is removed.
  StagedFile(std::filesystem::path const& path, std::string purpose);
  /// A file that all ranks of `comm` write: rank 0 creates it, the others open it. Collective. Throws on all
  /// ranks if one of them cannot.
  [[nodiscard]] static StagedFile create(Communicator const& comm, std::filesystem::path const& path,
                                         std::string purpose);

  [[nodiscard]] bool is_open() const { return file_.is_open(); }
  [[nodiscard]] WritableFile& file() { return file_; }
  /// The temporary name.
  [[nodiscard]] std::filesystem::path const& path() const { return temporary_->path(); }

  /// Gives a file of one process its name.
  void publish();
  /// The same for a file that all ranks have written: every rank's data are on the disk before rank 0
  /// renames. Collective; throws on all ranks if one of them fails.
  void publish(Communicator const& comm);
  /// From now on this object removes nothing: another rank completes the file or removes it.
  void keep() { temporary_->keep(); }

 private:
  StagedFile(std::filesystem::path const& path, std::string purpose, std::uint64_t token);
  void open(WritableFile::Mode mode);
  void complete();
  void rename();

  FileName name_; // its path is the one that the file will get
  std::unique_ptr<TemporaryPath> temporary_;
  WritableFile file_;
};

/// Throws UserError unless a StagedFile of `path` could be written: for checks before hours of work. Leaves
/// the folder as it was.
void require_writable(std::filesystem::path const& path, std::string const& purpose);
/// Rank 0's check, the same error on all ranks. Collective.
void require_writable(Communicator const& comm, std::filesystem::path const& path,
                      std::string const& purpose);

/// Where `path` leads if it is a symbolic link, possibly to a file that is still to be made; else `path`. A
/// link is not replaced: its target is.
[[nodiscard]] std::filesystem::path link_target(std::filesystem::path const& path);

} // namespace orthant::runtime
