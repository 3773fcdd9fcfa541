// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/staged_file.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace orthant::runtime {
namespace {

int flags_of(WritableFile::Mode mode) {
  switch (mode) {
  case WritableFile::Mode::create:
    return O_WRONLY | O_CREAT | O_EXCL;
  case WritableFile::Mode::open:
    return O_WRONLY;
  case WritableFile::Mode::append:
    return O_WRONLY | O_CREAT | O_APPEND;
  }
  return O_WRONLY;
}

/// True for errors of file systems that do not support the call, or not for this kind of file.
bool is_unsupported(int code) {
  return code == EINVAL || code == ENOSYS || code == EOPNOTSUPP || code == EROFS;
}

/// write(bytes) must write a first part of `bytes` and return its length, or -1.
template<class Write>
void write_all(std::span<std::byte const> bytes, FileName const& name, Write&& write) {
  constexpr auto most_at_once = std::size_t{1} << 30; // Linux writes at most 2 GiB
  while (!bytes.empty()) {
    auto const done = repeated([&] { return write(bytes.first(std::min(bytes.size(), most_at_once))); });
    if (done <= 0) refuse_file(name, "write", done < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

} // namespace

void detail::CloseDescriptor::operator()(int descriptor) const noexcept {
  ::close(descriptor);
}

void refuse_file(FileName const& name, std::string_view verb, int code) {
  auto const reason = std::error_code(code, std::generic_category()).message();
  auto const folder = name.path.parent_path();
  std::error_code ignored;
  if (code == ENOENT && !folder.empty() && !std::filesystem::exists(folder, ignored))
    throw_user("cannot {} the {} file '{}': there is no folder '{}'", verb, name.purpose, name.path.string(),
               folder.string());
  throw_user("cannot {} the {} file '{}': {}", verb, name.purpose, name.path.string(), reason);
}

WritableFile::WritableFile(std::filesystem::path const& path, Mode mode, FileName name)
    : name_(std::move(name)),
      file_(repeated([&] { return ::open(path.c_str(), flags_of(mode) | O_CLOEXEC, 0666); })) {
  if (!file_.owns()) refuse_file(name_, "open", errno);
}

void WritableFile::write_at(std::int64_t offset, std::span<std::byte const> bytes) {
  write_all(bytes, name_, [&](std::span<std::byte const> part) {
    auto const done = ::pwrite(file_.get(), part.data(), part.size(), offset);
    if (done > 0) offset += done;
    return done;
  });
}

void WritableFile::append(std::string_view text) {
  write_all(std::as_bytes(std::span(text)), name_,
            [&](std::span<std::byte const> part) { return ::write(file_.get(), part.data(), part.size()); });
}

void WritableFile::reserve(std::int64_t num_bytes) {
  if (num_bytes <= 0) return;
  if (repeated([&] { return ::fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, 0, num_bytes); }) == 0) return;
  auto const code = errno;
  if (code == ENOSPC || code == EDQUOT || code == EFBIG)
    throw_user("cannot write the {} file '{}': {} bytes do not fit on the disk: {}", name_.purpose,
               name_.path.string(), num_bytes, std::error_code(code, std::generic_category()).message());
  if (code == EIO) refuse_file(name_, "write", code);
}

void WritableFile::set_size(std::int64_t num_bytes) {
  if (repeated([&] { return ::ftruncate(file_.get(), num_bytes); }) != 0) refuse_file(name_, "write", errno);
}

void WritableFile::sync() {
  write_back();
  if (repeated([&] { return ::fsync(file_.get()); }) != 0 && !is_unsupported(errno))
    refuse_file(name_, "write", errno);
}

void WritableFile::mark_in_use() {
  static_cast<void>(::flock(file_.get(), LOCK_SH | LOCK_NB));
}

void WritableFile::write_back() {
  // In pieces: after each, a rank that waits for the disk reports progress to the watchdog. fsync writes what remains.
  constexpr std::int64_t piece_bytes = std::int64_t{1} << 28;
  auto const size = ::lseek(file_.get(), 0, SEEK_END);
  constexpr auto how = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  for (std::int64_t begin = 0; begin < size; begin += piece_bytes)
    if (::sync_file_range(file_.get(), begin, piece_bytes, how) != 0) return;
}

void WritableFile::close() {
  // Linux has closed the descriptor even if the call was interrupted.
  if (file_.owns() && ::close(file_.release()) != 0 && errno != EINTR) refuse_file(name_, "write", errno);
}

void sync_folder(std::filesystem::path const& folder, FileName const& name) {
  auto const* const path = folder.empty() ? "." : folder.c_str();
  detail::Descriptor const file(repeated([&] { return ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  // A folder that may be written but not read cannot be opened; its names reach the disk somewhat later.
  if (!file.owns()) return;
  if (repeated([&] { return ::fsync(file.get()); }) != 0 && !is_unsupported(errno))
    refuse_file(name, "complete", errno);
}

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

namespace {

/// Throws UserError if a rename would destroy or could not replace an existing entry.
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
