// SPDX-License-Identifier: Apache-2.0
#include "runtime/output_file.hpp"

#include "runtime/error.hpp"
#include "runtime/together.hpp"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

namespace orthant::runtime {
namespace {

std::string reason_of(int code) {
  return std::error_code(code, std::generic_category()).message();
}

} // namespace

OutputFile::OutputFile(std::string path, std::string purpose)
    : path_(std::move(path)),
      purpose_(std::move(purpose)) {
  file_.reset(std::fopen(path_.c_str(), "w"));
  if (!file_) refuse("open", errno);
}

void OutputFile::refuse(char const* verb, int code) const {
  auto const folder = std::filesystem::path(path_).parent_path();
  std::error_code ignored;
  if (code == ENOENT && !folder.empty() && !std::filesystem::exists(folder, ignored))
    throw_user("cannot {} the {} file '{}': there is no folder '{}'", verb, purpose_, path_, folder.string());
  throw_user("cannot {} the {} file '{}': {}", verb, purpose_, path_, reason_of(code));
}

void OutputFile::write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) refuse("write", errno);
}

void OutputFile::flush() {
  if (std::fflush(file_.get()) != 0) refuse("write", errno);
}

void OutputFile::close() {
  if (file_ && std::fclose(file_.release()) != 0) refuse("write", errno);
}

void require_writable(Communicator const& comm, std::string const& path, std::string const& purpose) {
  together(comm, [&] {
    if (!comm.is_root()) return;
    std::error_code ignored;
    auto const was_there = std::filesystem::exists(path, ignored);
    auto* const file = std::fopen(path.c_str(), "a");
    if (file == nullptr) static_cast<void>(OutputFile(path, purpose)); // fails alike, and says why
    if (file != nullptr) std::fclose(file);
    if (!was_there) std::filesystem::remove(path, ignored);
  });
}

} // namespace orthant::runtime
