#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Names of files and folders that are being written and are not complete. They end in ".partial-" and 16 hexadecimal digits.
//
// A TemporaryPath removes the file or folder of its name when it goes out of scope, on any rank. A job that aborts removes all of its files
// first. After SIGKILL, the next run that writes the same output removes them.

#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace orthant::runtime {

/// Removes its file or folder at the end of its life, unless keep() was called. Any number of ranks may hold the same name.
class TemporaryPath {
 public:
  /// The file or folder need not exist yet.
  explicit TemporaryPath(std::filesystem::path path);
  TemporaryPath(TemporaryPath const&) = delete;
  TemporaryPath& operator=(TemporaryPath const&) = delete;
  /// Removes the file or folder. Not collective; never throws.
  ~TemporaryPath();

  [[nodiscard]] std::filesystem::path const& path() const { return path_; }
  /// The destructor then removes nothing: the file has its final name.
  void keep() noexcept;

 private:
  friend void remove_temporaries() noexcept;
  void remove() const noexcept;

  std::filesystem::path path_;
  bool is_kept_ = false;
  // Linked list of all objects of the process, so that an abort allocates nothing.
  TemporaryPath* previous_ = nullptr;
  TemporaryPath* next_ = nullptr;
};

/// Removes the files and folders of all TemporaryPaths of this process. Call it before the process ends without unwinding. Any thread.
void remove_temporaries() noexcept;

/// A random number, which is different in every job.
[[nodiscard]] std::uint64_t draw_token();
/// The number that rank 0 has drawn, on all ranks. Collective.
[[nodiscard]] std::uint64_t draw_token(Communicator const& comm);

/// "graph.h5" -> "graph.h5.partial-0123456789abcdef", in the same folder.
[[nodiscard]] std::filesystem::path partial_name(std::filesystem::path const& path, std::uint64_t token);
/// True if `candidate` is the name (without folders) of a partial file or folder of `name`.
[[nodiscard]] bool is_partial_name(std::string_view candidate, std::string_view name);
/// True if a live process on any node holds the lock of the unfinished file or folder (WritableFile::mark_in_use); false on file systems
/// without locks.
[[nodiscard]] bool is_in_use(std::filesystem::path const& path) noexcept;
/// Removes unfinished files of `path` that killed jobs have left; files of live jobs stay. Failures are ignored, because leftovers do no
/// harm.
void remove_leftovers(std::filesystem::path const& path) noexcept;

// Entries of a folder. This does not use std::filesystem's iterators: their increment is noexcept but allocates, so that a process without
// memory would end without a message.

/// The names of all entries except "." and "..", sorted. If reading fails, sets `error` and returns the names found so far. Throws only
/// std::bad_alloc.
[[nodiscard]] std::vector<std::string> folder_entries(std::filesystem::path const& folder,
                                                      std::error_code& error);
/// The names of all entries except "." and "..", sorted. Throws std::filesystem::filesystem_error if the folder cannot be read.
[[nodiscard]] std::vector<std::string> folder_entries(std::filesystem::path const& folder);

} // namespace orthant::runtime
