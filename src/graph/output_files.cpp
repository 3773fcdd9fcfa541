// SPDX-License-Identifier: Apache-2.0
#include "graph/output_files.hpp"

#include "graph/npy.hpp"
#include "runtime/collectives.hpp"
#include "runtime/together.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

namespace orthant::graph {

using runtime::throw_user;

namespace {

constexpr std::size_t copy_bytes = std::size_t{1} << 22;
constexpr std::size_t text_buffer_bytes = std::size_t{1} << 18;

[[noreturn]] void refuse(std::filesystem::path const& path, int code) {
  throw_user("cannot write {}: {}", path.string(), std::strerror(code));
}

detail::FileDescriptor open_to_write(std::filesystem::path const& path, int extra_flags) {
  detail::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | extra_flags, 0666));
  if (!file.owns()) refuse(path, errno);
  return file;
}

void write_at(int descriptor, std::int64_t offset, std::span<std::byte const> bytes,
              std::filesystem::path const& path) {
  while (!bytes.empty()) {
    auto const wanted = std::min(bytes.size(), std::size_t{1} << 30); // Linux writes 2 GiB at most
    auto const done = ::pwrite(descriptor, bytes.data(), wanted, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) refuse(path, errno);
    offset += done;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

template<class T>
constexpr char const* npy_type() {
  if constexpr (std::is_same_v<T, float>)
    return "<f4";
  else
    return sizeof(T) == 8 ? "<i8" : sizeof(T) == 4 ? "<i4" : "|i1";
}

} // namespace

struct ParallelText::Part {
  struct CloseGzip {
    void operator()(gzFile file) const noexcept { gzclose(file); }
  };
  runtime::UniqueHandle<gzFile, nullptr, CloseGzip> gzip; // .gz
  detail::FileDescriptor file;                            // plain
  std::string buffer;                                     // plain
  std::int64_t num_bytes = 0;                             // plain: already in the file
};

ParallelText::ParallelText(runtime::Communicator const& comm, std::filesystem::path path)
    : comm_(comm),
      path_(std::move(path)),
      part_(std::make_unique<Part>()) {
  part_path_ = path_;
  part_path_ += ".part-" + std::to_string(comm.rank());
  runtime::together(comm_, [&] { open_part(); });
}

void ParallelText::open_part() {
  if (path_.extension() == ".gz") {
    // Level 1: these files are made to be read soon, and writing them should be near to the disk's speed.
    part_->gzip = decltype(part_->gzip)(gzopen(part_path_.c_str(), "wb1"));
    if (!part_->gzip.owns()) refuse(part_path_, errno);
    gzbuffer(part_->gzip.get(), static_cast<unsigned>(text_buffer_bytes));
  } else {
    part_->file = open_to_write(part_path_, O_CREAT | O_TRUNC);
    part_->buffer.reserve(text_buffer_bytes);
  }
}

ParallelText::~ParallelText() {
  std::error_code ignored;
  if (part_) std::filesystem::remove(part_path_, ignored);
}

void ParallelText::append(std::string_view text) {
  if (text.empty()) return;
  auto& part = *part_;
  if (part.gzip.owns()) {
    for (auto rest = text; !rest.empty();) {
      auto const length = std::min(rest.size(), std::size_t{1} << 30);
      if (gzwrite(part.gzip.get(), rest.data(), static_cast<unsigned>(length)) == 0) refuse(path_, errno);
      rest.remove_prefix(length);
    }
    return;
  }
  part.buffer += text;
  if (part.buffer.size() < text_buffer_bytes) return;
  write_at(part.file.get(), part.num_bytes, std::as_bytes(std::span(part.buffer)), path_);
  part.num_bytes += static_cast<std::int64_t>(part.buffer.size());
  part.buffer.clear();
}

void ParallelText::finish() {
  auto const size = runtime::together(comm_, [&] {
    auto& part = *part_;
    if (part.gzip.owns()) {
      auto const code = gzclose(part.gzip.release());
      if (code != Z_OK) refuse(path_, code == Z_ERRNO ? errno : EIO);
    } else {
      write_at(part.file.get(), part.num_bytes, std::as_bytes(std::span(part.buffer)), path_);
    }
    return static_cast<std::int64_t>(std::filesystem::file_size(part_path_));
  });
  auto const placement = place_after_earlier_ranks(comm_, size);
  // Rank 0's part becomes the file; the others add theirs behind it.
  runtime::together(comm_, [&] {
    if (comm_.is_root()) std::filesystem::rename(part_path_, path_);
  });
  runtime::together(comm_, [&] {
    if (comm_.is_root()) return;
    auto const from = detail::open_to_read(part_path_);
    auto const to = open_to_write(path_, 0);
    std::vector<char> buffer(static_cast<std::size_t>(std::min(size, static_cast<std::int64_t>(copy_bytes))));
    for (std::int64_t offset = 0; offset < size;) {
      auto const got = detail::read_at(from.get(), offset, buffer, part_path_);
      if (got == 0) break;
      write_at(to.get(), placement.begin + offset,
               std::as_bytes(std::span(buffer).first(static_cast<std::size_t>(got))), path_);
      offset += got;
    }
  });
}

template<class T>
ParallelArray<T>::ParallelArray(runtime::Communicator const& comm, std::filesystem::path path,
                                std::vector<std::int64_t> const& shape)
    : path_(std::move(path)) {
  auto const header = npy_header(npy_type<T>(), shape);
  header_bytes_ = static_cast<std::int64_t>(header.size());
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    auto const file = open_to_write(path_, O_CREAT | O_TRUNC);
    write_at(file.get(), 0, std::as_bytes(std::span(header)), path_);
    auto num_bytes = header_bytes_;
    std::int64_t num_elements = 1;
    for (auto const extent : shape)
      num_elements *= extent;
    num_bytes += num_elements * static_cast<std::int64_t>(sizeof(T));
    if (::ftruncate(file.get(), num_bytes) != 0) refuse(path_, errno);
  });
  file_ = runtime::together(comm, [&] { return open_to_write(path_, 0); });
}

template<class T>
void ParallelArray<T>::write(std::int64_t first, std::span<T const> values) {
  write_at(file_.get(), header_bytes_ + first * static_cast<std::int64_t>(sizeof(T)), std::as_bytes(values),
           path_);
}

template class ParallelArray<std::int64_t>;
template class ParallelArray<std::int32_t>;
template class ParallelArray<std::int8_t>;
template class ParallelArray<float>;

Placement place_after_earlier_ranks(runtime::Communicator const& comm, std::int64_t count) {
  return {runtime::scanned(comm, count), runtime::all_reduced(comm, count)};
}

} // namespace orthant::graph
