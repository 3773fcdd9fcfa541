#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Names of files and folders that are being written and are not complete. They end in ".partial-" and 16
// hexadecimal digits. An object of this class removes what has its name when it goes out of scope, on
// whichever rank that is; a job that is aborted removes all of them first; after SIGKILL the next run that
// writes the same output does.

#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace orthant::runtime {

/// Removes the name that it holds, unless it was kept. Any number of ranks may hold one name.
class TemporaryPath {
 public:
  /// Nothing need have that name yet.
  explicit TemporaryPath(std::filesystem::path path);
  TemporaryPath(TemporaryPath const&) = delete;
  TemporaryPath& operator=(TemporaryPath const&) = delete;
  /// Removes the file or folder. Not collective; never throws.
  ~TemporaryPath();

  [[nodiscard]] std::filesystem::path const& path() const { return path_; }
  /// From now on nothing is removed: the file has its own name.
  void keep() noexcept;

 private:
  friend void remove_temporaries() noexcept;
  void remove() const noexcept;

  std::filesystem::path path_;
  bool is_kept_ = false;
  // A list of all objects of the process: linked, so that an abort allocates nothing.
  TemporaryPath* previous_ = nullptr;
  TemporaryPath* next_ = nullptr;
};

/// Removes what this process's TemporaryPaths name. To be called before the process ends without unwinding.
/// Any thread.
void remove_temporaries() noexcept;

/// A number that no other job has drawn.
[[nodiscard]] std::uint64_t draw_token();
/// Rank 0's draw on all ranks. Collective.
[[nodiscard]] std::uint64_t draw_token(Communicator const& comm);

/// "graph.h5" -> "graph.h5.partial-0123456789abcdef", in the same folder.
[[nodiscard]] std::filesystem::path partial_name(std::filesystem::path const& path, std::uint64_t token);
/// True for the name (without folders) of a partial file or folder of `name`.
[[nodiscard]] bool is_partial_name(std::string_view candidate, std::string_view name);
/// True if a live process on any node holds the lock of the file or folder that is being written
/// (WritableFile's mark_in_use); false on file systems without locks.
[[nodiscard]] bool is_in_use(std::filesystem::path const& path) noexcept;
/// Removes what earlier jobs that were killed have left of `path`; what a live job writes stays. Failures are
/// ignored: what is left is in nobody's way.
void remove_leftovers(std::filesystem::path const& path) noexcept;

// What is in a folder. std::filesystem's iterators are not used: their step is noexcept and takes memory, so
// a process that is short of it ends without a cause.

/// The names of all entries but "." and "..", sorted; those found so far if `error` is set. Throws
/// std::bad_alloc only.
[[nodiscard]] std::vector<std::string> folder_entries(std::filesystem::path const& folder,
                                                      std::error_code& error);
/// The same. Throws std::filesystem::filesystem_error if the folder cannot be read.
[[nodiscard]] std::vector<std::string> folder_entries(std::filesystem::path const& folder);

} // namespace orthant::runtime
