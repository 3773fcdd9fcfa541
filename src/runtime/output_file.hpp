#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A text file that one rank writes, with every failure told in the user's words.

#include "runtime/communicator.hpp"

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace orthant::runtime {

class OutputFile {
 public:
  OutputFile() = default;
  /// Opens `path` and empties it. `purpose` names it in errors: "metrics", "trace".
  /// Throws UserError where it cannot be opened.
  OutputFile(std::string path, std::string purpose);

  [[nodiscard]] bool is_open() const { return file_ != nullptr; }
  /// Throws UserError where the file system refuses (full, quota).
  void write(std::string_view text);
  /// Hands all that was written to the operating system, so that it outlives this process.
  void flush();
  void close();

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  [[noreturn]] void refuse(char const* verb, int code) const;
  std::string path_;
  std::string purpose_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// Checks before hours of work that rank 0 will be able to write `path`; what is there stays as it is.
/// Throws UserError on all ranks where it cannot. Collective.
void require_writable(Communicator const& comm, std::string const& path, std::string const& purpose);

} // namespace orthant::runtime
