#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A folder of its own for a test's files, the same on all ranks, gone with the object.

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mpi.h>
#include <sstream>
#include <string>
#include <system_error>

namespace orthant::test {

class ScratchFolder {
 public:
  /// Rank 0 makes it. Collective.
  explicit ScratchFolder(MPI_Comm comm) : comm_(comm) {
    std::array<char, 4096> name{};
    MPI_Comm_rank(comm, &rank_);
    if (rank_ == 0) {
      auto const pattern = (std::filesystem::temp_directory_path() / "orthant-test-XXXXXX").string();
      pattern.copy(name.data(), name.size() - 1);
      if (mkdtemp(name.data()) == nullptr) MPI_Abort(comm, 1);
    }
    MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, comm);
    path_ = name.data();
  }
  ScratchFolder(ScratchFolder const&) = delete;
  ScratchFolder& operator=(ScratchFolder const&) = delete;
  /// Collective: nobody's files vanish while he reads them.
  ~ScratchFolder() {
    MPI_Barrier(comm_);
    std::error_code ignored;
    if (rank_ == 0) std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string file(std::string const& name) const { return (path_ / name).string(); }

 private:
  MPI_Comm comm_;
  int rank_ = 0;
  std::filesystem::path path_;
};

/// Of unfinished files and folders, in `folder` and below.
[[nodiscard]] inline int num_partial_files(std::filesystem::path const& folder) {
  int count = 0;
  for (auto const& entry : std::filesystem::recursive_directory_iterator(folder))
    count += entry.path().filename().string().find(".partial") != std::string::npos ? 1 : 0;
  return count;
}

[[nodiscard]] inline std::string text_of_file(std::string const& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

inline void write_file(std::string const& path, std::string const& text) {
  std::ofstream(path) << text;
}

} // namespace orthant::test
