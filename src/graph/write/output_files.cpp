// SPDX-License-Identifier: Apache-2.0
#include "graph/write/output_files.hpp"

#include "graph/arrays/npy.hpp"
#include "graph/write/output_folder.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/numbers/checked.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>
#include <zlib.h>

namespace orthant::graph {

namespace {

constexpr std::size_t copy_bytes = std::size_t{1} << 22;
constexpr std::size_t text_buffer_bytes = std::size_t{1} << 18;

runtime::FileName name_of(std::filesystem::path const& path) {
  return {"graph", final_place(path)};
}

template<class T>
constexpr char const* npy_type() {
  if constexpr (std::is_same_v<T, float>)
    return "<f4";
  else
    return sizeof(T) == 8 ? "<i8" : sizeof(T) == 4 ? "<i4" : "|i1";
}

} // namespace

/// One gzip member. Level 1: these files are made to be read soon, and writing them should be near to the
/// disk's speed.
class ParallelText::Deflater {
 public:
  Deflater() {
    constexpr auto as_gzip = 16;
    if (deflateInit2(&stream_, 1, Z_DEFLATED, MAX_WBITS + as_gzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  Deflater(Deflater const&) = delete;
  Deflater& operator=(Deflater const&) = delete;
  ~Deflater() { deflateEnd(&stream_); }

  /// Adds to `out` what `text` deflates to, as far as it is known.
  void deflate(std::string_view text, std::string& out) {
    constexpr auto most_at_once = std::size_t{1} << 30; // zlib counts in 32 bits
    for (; !text.empty(); text.remove_prefix(std::min(text.size(), most_at_once)))
      run(text.substr(0, most_at_once), Z_NO_FLUSH, out);
  }
  /// Adds the rest.
  void finish(std::string& out) { run({}, Z_FINISH, out); }

 private:
  void run(std::string_view text, int flush, std::string& out) {
    std::array<char, 1 << 14> piece;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream_.avail_in = static_cast<uInt>(text.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream_.avail_out = static_cast<uInt>(piece.size());
      ::deflate(&stream_, flush);
      out.append(piece.data(), piece.size() - stream_.avail_out);
    } while (stream_.avail_out == 0);
  }
  z_stream stream_{};
};

ParallelText::ParallelText(runtime::Communicator const& comm, std::filesystem::path path)
    : comm_(comm),
      path_(std::move(path)),
      part_path_(path_) {
  runtime::together(comm_, [&] {
    part_path_ += ".part-" + std::to_string(comm_.rank());
    if (path_.extension() == ".gz") deflater_ = std::make_unique<Deflater>();
    part_ = runtime::WritableFile(part_path_, runtime::WritableFile::Mode::create, name_of(path_));
    buffer_.reserve(text_buffer_bytes);
  });
}

ParallelText::~ParallelText() = default;

void ParallelText::append(std::string_view text) {
  if (deflater_)
    deflater_->deflate(text, buffer_);
  else
    buffer_ += text;
  if (buffer_.size() >= text_buffer_bytes) flush();
}

void ParallelText::flush() {
  part_.append(buffer_);
  num_bytes_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void ParallelText::finish() {
  runtime::together(comm_, [&] {
    if (deflater_) deflater_->finish(buffer_);
    flush();
    part_.sync();
    part_.close();
  });
  auto const placement = place_after_earlier_ranks(comm_, num_bytes_);
  // Rank 0's part becomes the file; the others add theirs behind it.
  runtime::together(comm_, [&] {
    std::error_code error;
    if (comm_.is_root()) std::filesystem::rename(part_path_, path_, error);
    if (error) runtime::refuse_file(name_of(path_), "write", error.value());
    if (!comm_.is_root()) return;
    // A network file system's client fills what it takes for the end of a file with zeros, over its
    // neighbours' data.
    runtime::WritableFile file(path_, runtime::WritableFile::Mode::open, name_of(path_));
    file.set_size(placement.total);
    file.close();
  });
  runtime::together(comm_, [&] {
    if (!comm_.is_root()) join(placement.begin, num_bytes_);
  });
}

void ParallelText::join(std::int64_t begin, std::int64_t size) {
  auto const from = runtime::detail::open_to_read(part_path_);
  runtime::WritableFile to(path_, runtime::WritableFile::Mode::open, name_of(path_));
  std::vector<char> bytes(static_cast<std::size_t>(std::min(size, static_cast<std::int64_t>(copy_bytes))));
  for (std::int64_t offset = 0; offset < size;) {
    auto const got = runtime::detail::read_at(from.get(), offset, bytes, part_path_);
    if (got == 0) runtime::refuse_file(name_of(path_), "write", EIO);
    to.write_at(begin + offset, std::as_bytes(std::span(bytes).first(static_cast<std::size_t>(got))));
    offset += got;
  }
  to.sync();
  to.close();
  std::filesystem::remove(part_path_);
}

template<class T>
ParallelArray<T>::ParallelArray(runtime::Communicator const& comm, std::filesystem::path path,
                                std::vector<std::int64_t> const& shape)
    : comm_(comm) {
  using Mode = runtime::WritableFile::Mode;
  auto const header = npy_header(npy_type<T>(), shape);
  header_bytes_ = static_cast<std::int64_t>(header.size());
  runtime::together(comm_, [&] {
    if (!comm_.is_root()) return;
    file_ = runtime::WritableFile(path, Mode::create, name_of(path));
    auto num_bytes = static_cast<std::int64_t>(sizeof(T));
    for (auto const extent : shape)
      num_bytes = runtime::checked_product(num_bytes, extent, path.filename().string());
    num_bytes += header_bytes_;
    file_.reserve(num_bytes);
    file_.write_at(0, std::as_bytes(std::span(header)));
    file_.set_size(num_bytes);
  });
  runtime::together(comm_, [&] {
    if (!comm_.is_root()) file_ = runtime::WritableFile(path, Mode::open, name_of(path));
  });
}

template<class T>
void ParallelArray<T>::write(std::int64_t first, std::span<T const> values) {
  file_.write_at(header_bytes_ + first * static_cast<std::int64_t>(sizeof(T)), std::as_bytes(values));
}

template<class T>
void ParallelArray<T>::finish() {
  runtime::together(comm_, [&] {
    file_.sync();
    file_.close();
  });
}

template class ParallelArray<std::int64_t>;
template class ParallelArray<std::int32_t>;
template class ParallelArray<std::int8_t>;
template class ParallelArray<float>;

PlaceAmongRanks place_after_earlier_ranks(runtime::Communicator const& comm, std::int64_t count) {
  return {runtime::scanned(comm, count), runtime::all_reduced(comm, count)};
}

} // namespace orthant::graph
