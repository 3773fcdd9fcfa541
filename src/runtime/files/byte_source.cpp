// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/byte_source.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace orthant::runtime {

namespace detail {

void CloseFile::operator()(int descriptor) const noexcept {
  ::close(descriptor);
}

FileDescriptor open_to_read(std::filesystem::path const& path) {
  FileDescriptor file(repeated([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (!file.owns()) throw_user("cannot read {}: {}", path.string(), std::strerror(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    throw_user("cannot read {}: {}", path.string(), std::strerror(errno));
  if (S_ISDIR(status.st_mode)) throw_user("{} is a folder; a file was expected", path.string());
  if (!S_ISREG(status.st_mode)) // has no size or offsets; opening a pipe without a writer would never return
    throw_user("cannot read {}: it is a pipe or a device; a regular file is wanted", path.string());
  return file;
}

std::int64_t size_of_file(int descriptor, std::filesystem::path const& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    throw_user("cannot read {}: {}", path.string(), std::strerror(errno));
  return status.st_size;
}

std::int64_t read_at(int descriptor, std::int64_t offset, std::span<char> out,
                     std::filesystem::path const& path) {
  std::size_t num_read = 0;
  while (num_read < out.size()) {
    auto const wanted = std::min(out.size() - num_read, std::size_t{1} << 30); // Linux reads at most 2 GiB
    auto const got = repeated([&] {
      return ::pread(descriptor, out.data() + num_read, wanted, offset + static_cast<off_t>(num_read));
    });
    if (got < 0)
      throw_user("cannot read {} at byte {}: {}", path.string(), offset + static_cast<off_t>(num_read),
                 std::strerror(errno));
    if (got == 0) break;
    num_read += static_cast<std::size_t>(got);
  }
  return static_cast<std::int64_t>(num_read);
}

} // namespace detail

namespace {

class FileBytes final : public ByteSource {
 public:
  explicit FileBytes(std::filesystem::path const& path)
      : path_(path),
        name_(path.string()),
        file_(detail::open_to_read(path)),
        size_(detail::size_of_file(file_.get(), path)) {}

  std::string const& name() const override { return name_; }
  std::int64_t size() const override { return size_; }
  std::int64_t bytes_read() const override { return bytes_read_; }
  void read(std::int64_t offset, std::span<std::byte> out) override {
    std::span const characters(reinterpret_cast<char*>(out.data()), out.size());
    bytes_read_ += static_cast<std::int64_t>(out.size());
    auto const got = detail::read_at(file_.get(), offset, characters, path_);
    if (got != static_cast<std::int64_t>(out.size()))
      throw_user("{} ends at byte {}, where {} bytes were expected at byte {} (truncated?)", name_,
                 offset + got, out.size(), offset);
  }

 private:
  std::filesystem::path path_;
  std::string name_;
  detail::FileDescriptor file_;
  std::int64_t size_;
  std::int64_t bytes_read_ = 0;
};

} // namespace

std::unique_ptr<ByteSource> open_file_bytes(std::filesystem::path const& path) {
  return std::make_unique<FileBytes>(path);
}

} // namespace orthant::runtime
