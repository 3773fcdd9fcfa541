// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz_target.hpp"

#include <cstdlib>
#include <fstream>
#include <optional>
#include <unistd.h>

namespace orthant::fuzz {

namespace fs = std::filesystem;

runtime::Communicator const& single_rank() {
  static std::optional<runtime::Communicator> comm;
  if (!comm) {
    MPI_Init(nullptr, nullptr);
    comm.emplace(MPI_COMM_SELF, "world");
    std::atexit([] {
      comm.reset();
      MPI_Finalize();
    });
  }
  return *comm;
}

ScratchFolder::ScratchFolder() {
  auto const root = fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
  auto name = (root / "orthant-fuzz-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path ScratchFolder::write(fs::path const& name, std::string_view bytes) const {
  auto file_path = path_ / name;
  fs::create_directories(file_path.parent_path());
  std::ofstream file(file_path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file) std::abort();
  return file_path;
}

void ScratchFolder::clear() const {
  for (auto const& entry : fs::directory_iterator(path_))
    fs::remove_all(entry.path());
}

} // namespace orthant::fuzz
