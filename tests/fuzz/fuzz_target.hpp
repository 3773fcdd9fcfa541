#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What every fuzz target shares. A target defines LLVMFuzzerTestOneInput (libFuzzer's interface) and gives
// the bytes to one parser. The only exception that a parser may throw at bad input is UserError: anything
// else leaves the target and counts as a crash, as a signal or a sanitizer's report does.

#include "runtime/comm/communicator.hpp"
#include "runtime/error.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace orthant::fuzz {

/// Runs `parse`, which either accepts its input or refuses it by UserError.
template<class Parse>
int accept_or_refuse(Parse&& parse) {
  try {
    parse();
  } catch (runtime::UserError const&) {
  }
  return 0;
}

[[nodiscard]] inline std::string_view text_of(std::uint8_t const* data, std::size_t size) {
  return {reinterpret_cast<char const*>(data), size};
}

/// A communicator of one rank for parsers that are collective. MPI starts at the first use and ends with the program.
[[nodiscard]] runtime::Communicator const& single_rank();

/// A folder in memory (or in the temporary folder) that lives as long as the program, for parsers that read
/// files.
class ScratchFolder {
 public:
  ScratchFolder();
  ScratchFolder(ScratchFolder const&) = delete;
  ScratchFolder& operator=(ScratchFolder const&) = delete;
  ~ScratchFolder();

  [[nodiscard]] std::filesystem::path const& path() const { return path_; }
  /// Writes `bytes` to the file `name` below the folder and returns its path.
  std::filesystem::path write(std::filesystem::path const& name, std::string_view bytes) const;
  /// Removes everything below the folder.
  void clear() const;

 private:
  std::filesystem::path path_;
};

} // namespace orthant::fuzz
