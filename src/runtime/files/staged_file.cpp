// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/staged_file.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace orthant::runtime {

namespace fs = std::filesystem;

fs::path set_aside(fs::path const& path) {
  auto const target = link_target(path);
  std::error_code error;
  for (std::int64_t number = 1;; ++number) {
    auto other = target;
    other += fmt::format(".{}", number);
    if (fs::exists(fs::symlink_status(other, error))) continue;
    fs::rename(target, other, error);
    if (error) throw_user("cannot rename '{}' to '{}': {}", target.string(), other.string(), error.message());
    return other;
  }
}

fs::path set_aside_if_any(fs::path const& path) {
  std::error_code error;
  if (path.empty() || !fs::is_regular_file(path, error) || fs::file_size(path, error) == 0) return {};
  return set_aside(path);
}

namespace fs = std::filesystem;

namespace {

/// Refuses what a rename would destroy or could not replace.
void require_replaceable(FileName const& name) {
  std::error_code error;
  auto const status = fs::status(name.path, error);
  if (!fs::exists(status)) return;
  if (fs::is_directory(status)) refuse_file(name, "open", EISDIR);
  if (!fs::is_regular_file(status))
    throw_user("cannot write the {} file '{}': it is a device or a pipe; a regular file is wanted",
               name.purpose, name.path.string());
  if (::access(name.path.c_str(), W_OK) != 0) refuse_file(name, "replace", errno);
}

} // namespace

fs::path link_target(fs::path const& path) {
  constexpr auto most_links = 40; // as in Linux
  auto target = path;
  std::error_code error;
  for (auto i = 0; fs::is_symlink(fs::symlink_status(target, error)); ++i) {
    auto const next = fs::read_symlink(target, error);
    if (error || i == most_links)
      throw_user("cannot follow the symbolic link '{}': {}", path.string(),
                 error ? error.message() : "too many links");
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
  return target;
}

StagedFile::StagedFile(fs::path const& path, std::string purpose, std::uint64_t token)
    : name_{std::move(purpose), link_target(path)},
      temporary_(std::make_unique<TemporaryPath>(partial_name(name_.path, token))) {}

StagedFile::StagedFile(fs::path const& path, std::string purpose)
    : StagedFile(path, std::move(purpose), draw_token()) {
  open(WritableFile::Mode::create);
}

StagedFile StagedFile::create(Communicator const& comm, fs::path const& path, std::string purpose) {
  auto const token = draw_token(comm);
  auto staged = together(comm, [&] { return StagedFile(path, std::move(purpose), token); });
  together(comm, [&] {
    if (comm.is_root()) staged.open(WritableFile::Mode::create);
  });
  together(comm, [&] {
    if (!comm.is_root()) staged.open(WritableFile::Mode::open);
  });
  return staged;
}

void StagedFile::open(WritableFile::Mode mode) {
  if (mode == WritableFile::Mode::create) {
    require_replaceable(name_);
    remove_leftovers(name_.path);
  }
  file_ = WritableFile(temporary_->path(), mode, name_);
  if (mode == WritableFile::Mode::create) file_.mark_in_use();
}

void StagedFile::complete() {
  file_.sync();
  file_.close();
}

void StagedFile::rename() {
  std::error_code error;
  fs::rename(temporary_->path(), name_.path, error);
  if (error == std::errc::no_such_file_or_directory)
    throw_user("cannot complete the {} file '{}': its temporary file is gone; another job has written it",
               name_.purpose, name_.path.string());
  if (error) refuse_file(name_, "complete", error.value());
  temporary_->keep();
  sync_folder(name_.path.parent_path(), name_);
}

void StagedFile::publish() {
  complete();
  rename();
}

void StagedFile::publish(Communicator const& comm) {
  together(comm, [&] { complete(); });
  together(comm, [&] {
    if (comm.is_root()) rename();
  });
  temporary_->keep();
}

void require_writable(fs::path const& path, std::string const& purpose) {
  static_cast<void>(StagedFile(path, purpose));
}

void require_writable(Communicator const& comm, fs::path const& path, std::string const& purpose) {
  together(comm, [&] {
    if (comm.is_root()) require_writable(path, purpose);
  });
}

} // namespace orthant::runtime
