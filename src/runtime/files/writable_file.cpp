// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/writable_file.hpp"

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

/// True for the failures of a file system that knows no such call, or none for this kind of file.
bool is_unsupported(int code) {
  return code == EINVAL || code == ENOSYS || code == EOPNOTSUPP || code == EROFS;
}

/// write(bytes) writes a first part of `bytes` and returns its length, or -1.
template<class Write>
void write_all(std::span<std::byte const> bytes, FileName const& name, Write&& write) {
  constexpr auto most_at_once = std::size_t{1} << 30; // Linux writes 2 GiB at most
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
  // In pieces: a rank that waits for the disk shows the watchdog life after each. What this cannot do, fsync
  // does.
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
  // A folder that may be written but not read cannot be opened; its names reach the disk a little later.
  if (!file.owns()) return;
  if (repeated([&] { return ::fsync(file.get()); }) != 0 && !is_unsupported(errno))
    refuse_file(name, "complete", errno);
}

} // namespace orthant::runtime
