// SPDX-License-Identifier: Apache-2.0
#include "graph/text/gzip_inflater.hpp"

#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>
#include <zlib.h>

namespace orthant::graph {

namespace {
constexpr std::size_t input_bytes = std::size_t{1} << 18;
constexpr std::size_t piece_bytes = std::size_t{1} << 20; // fits L2 with the parser's own data
constexpr std::size_t num_pieces = 3;                     // one parsed, one ready, one being filled

struct Piece {
  std::vector<char> storage = std::vector<char>(GzipInflater::headroom + piece_bytes);
  std::size_t length = 0;
};
} // namespace

struct GzipInflater::Shared {
  std::filesystem::path path;
  runtime::detail::FileDescriptor file;
  std::int64_t file_bytes = 0;
  std::atomic<std::int64_t> bytes_taken = 0;

  // The ring: the thread fills piece `num_filled % num_pieces` once fewer than num_pieces - 1 wait to be read
  // (the one before the oldest is lent to the caller).
  std::array<Piece, num_pieces> pieces;
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t num_filled = 0;
  std::uint64_t num_read = 0;
  bool is_finished = false;
  bool is_abandoned = false;
  std::optional<std::string> failure;

  std::thread thread; // last: joined before the rest goes

  void inflate_all();
  Piece* piece_to_fill();
  void hand_over(bool is_last);
};

Piece* GzipInflater::Shared::piece_to_fill() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return is_abandoned || num_filled - num_read < num_pieces - 1; });
  return is_abandoned ? nullptr : &pieces[num_filled % num_pieces];
}

void GzipInflater::Shared::hand_over(bool is_last) {
  {
    std::scoped_lock const lock(mutex);
    ++num_filled;
    is_finished = is_last;
  }
  changed.notify_one();
}

void GzipInflater::Shared::inflate_all() {
  std::vector<char> input(input_bytes);
  std::int64_t input_begin = 0; // offset in the file of input[0]
  z_stream zlib{};
  constexpr int gzip_only = 15 + 16;
  if (inflateInit2(&zlib, gzip_only) != Z_OK) runtime::throw_user("zlib cannot start: out of memory");
  struct End {
    z_stream* zlib;
    ~End() { inflateEnd(zlib); }
  } const end{&zlib};

  auto const refill = [&] { // false at the end of the file
    input_begin += static_cast<std::int64_t>(
        zlib.next_in == nullptr ? 0 : reinterpret_cast<char*>(zlib.next_in) - input.data());
    auto const got = runtime::detail::read_at(file.get(), input_begin, input, path);
    zlib.next_in = reinterpret_cast<Bytef*>(input.data());
    zlib.avail_in = static_cast<uInt>(got);
    bytes_taken = input_begin + got;
    return got > 0;
  };

  bool is_inside_member = true; // an empty file is not gzip
  bool has_more = true;
  while (has_more) {
    auto* const piece = piece_to_fill();
    if (piece == nullptr) return;
    zlib.next_out = reinterpret_cast<Bytef*>(piece->storage.data() + headroom);
    zlib.avail_out = piece_bytes;
    while (zlib.avail_out > 0) {
      if (zlib.avail_in == 0 && !refill()) {
        if (is_inside_member)
          runtime::throw_user("{}: the gzip data end early, at byte {} of the file (truncated?)",
                              path.string(), file_bytes);
        has_more = false;
        break;
      }
      is_inside_member = true;
      auto const code = inflate(&zlib, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        is_inside_member = false;
        inflateReset(&zlib); // another member may follow
      } else if (code != Z_OK) {
        auto const place = input_begin + (reinterpret_cast<char*>(zlib.next_in) - input.data());
        runtime::throw_user("{}: not sound gzip data at byte {} of the file ({})", path.string(), place,
                            zlib.msg != nullptr ? zlib.msg : zError(code));
      }
    }
    piece->length = piece_bytes - zlib.avail_out;
    hand_over(!has_more);
  }
}

GzipInflater::GzipInflater(std::filesystem::path const& path) : shared_(std::make_unique<Shared>()) {
  shared_->path = path;
  shared_->file = runtime::detail::open_to_read(path);
  shared_->file_bytes = runtime::detail::size_of_file(shared_->file.get(), path);
  shared_->thread = std::thread([shared = shared_.get()] {
    std::optional<std::string> failure;
    try {
      shared->inflate_all();
    } catch (std::exception const& error) {
      failure = error.what();
    }
    if (!failure) return;
    {
      std::scoped_lock const lock(shared->mutex);
      shared->failure = std::move(failure);
      shared->is_finished = true;
    }
    shared->changed.notify_one();
  });
}

GzipInflater::~GzipInflater() {
  {
    std::scoped_lock const lock(shared_->mutex);
    shared_->is_abandoned = true;
  }
  shared_->changed.notify_one();
  shared_->thread.join();
}

std::span<char> GzipInflater::next() {
  std::unique_lock lock(shared_->mutex);
  auto& shared = *shared_;
  shared.changed.wait(lock, [&] { return shared.num_read < shared.num_filled || shared.is_finished; });
  if (shared.num_read == shared.num_filled) {
    if (shared.failure) throw runtime::UserError(*shared.failure);
    return {};
  }
  auto& piece = shared.pieces[shared.num_read++ % num_pieces];
  lock.unlock();
  shared.changed.notify_one();
  return {piece.storage.data() + headroom, piece.length};
}

std::int64_t GzipInflater::bytes_done() const {
  return shared_->bytes_taken;
}
std::int64_t GzipInflater::bytes_total() const {
  return shared_->file_bytes;
}

} // namespace orthant::graph
