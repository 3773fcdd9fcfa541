// SPDX-License-Identifier: Apache-2.0
#include "graph/text/text_blocks.hpp"

#include "graph/text/text_scanner.hpp"
#include "runtime/error.hpp"
#include "runtime/files/text_file.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <zlib.h>

namespace orthant::graph {

namespace {
constexpr std::size_t input_bytes = std::size_t{1} << 18;
constexpr std::size_t piece_bytes = std::size_t{1} << 20; // fits in L2 with the parser's own data
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

  // Ring of pieces: the thread fills piece `num_filled % num_pieces` when fewer than num_pieces - 1 wait to be read. (The caller still uses
  // the piece before the oldest.)
  std::array<Piece, num_pieces> pieces;
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t num_filled = 0;
  std::uint64_t num_read = 0;
  bool is_finished = false;
  bool is_abandoned = false;
  std::optional<std::string> failure;

  std::thread thread; // declared last, so that it is joined before other members are destroyed

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

  auto const refill = [&] { // returns false at the end of the file
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

namespace {
constexpr auto headroom = GzipInflater::headroom;
constexpr std::size_t read_bytes = std::size_t{1} << 20;
constexpr std::size_t probe_bytes = 4096; // to find the end of a line
constexpr std::size_t longest_line_bytes = std::size_t{1} << 28;
} // namespace

bool is_gzip(std::filesystem::path const& path) {
  return path.extension() == ".gz";
}

TextBlocks::TextBlocks(std::filesystem::path path, Share share, TextStart start) : path_(std::move(path)) {
  if (is_gzip(path_)) {
    is_at_end_ = share.index > 0;
    lines_to_skip_ = start.num_lines;
    if (share.index == 0) inflater_ = std::make_unique<GzipInflater>(path_);
    return;
  }
  file_ = runtime::detail::open_to_read(path_);
  end_ = runtime::detail::size_of_file(file_.get(), path_);
  auto const cut = [&](std::int64_t part) {
    auto const range = runtime::balanced_range(end_ - start.first_byte, share.count, part);
    return line_start_from(start.first_byte + range.begin);
  };
  begin_ = share.index == 0 ? start.first_byte : cut(share.index);
  if (share.index + 1 < share.count) end_ = cut(share.index + 1);
  position_ = begin_;
  block_begin_ = begin_;
  auto const most = std::clamp(end_ - begin_, std::int64_t{0}, static_cast<std::int64_t>(read_bytes));
  buffer_.resize(headroom + static_cast<std::size_t>(most));
}

/// The first line that starts at or after `offset`.
std::int64_t TextBlocks::line_start_from(std::int64_t offset) const {
  if (offset == 0) return 0;
  std::array<char, probe_bytes> probe;
  for (auto from = offset - 1;; from += static_cast<std::int64_t>(probe.size())) {
    auto const got = runtime::detail::read_at(file_.get(), from, probe, path_);
    auto const* const end = probe.data() + got;
    auto const* const found = std::find(static_cast<char const*>(probe.data()), end, '\n');
    if (found != end) return from + (found - probe.data()) + 1;
    if (got < static_cast<std::int64_t>(probe.size())) return from + got;
  }
}

std::span<char> TextBlocks::next_piece() {
  if (inflater_) return inflater_->next();
  if (!file_.owns()) return {};
  auto const wanted = std::min(end_ - position_, static_cast<std::int64_t>(read_bytes));
  std::span const target(buffer_.data() + headroom,
                         static_cast<std::size_t>(std::max(wanted, std::int64_t{0})));
  auto const got = runtime::detail::read_at(file_.get(), position_, target, path_);
  if (got < wanted) runtime::throw_user("{} became shorter while it was read", path_.string());
  position_ += got;
  return target.first(static_cast<std::size_t>(got));
}

std::string_view TextBlocks::next() {
  lines_before_ += std::count(block_.begin(), block_.end(), '\n');
  block_begin_ += static_cast<std::int64_t>(block_.size());
  block_ = {};
  while (!is_at_end_ && block_.empty()) {
    auto const piece = next_piece();
    std::string_view const text(piece.data(), piece.size());
    auto const whole = text.rfind('\n') + 1; // 0 if no line ends here
    if (text.empty()) {
      is_at_end_ = true;
      if (!rest_.empty()) rest_.push_back('\n');
      joined_.swap(rest_);
      block_ = {joined_.data(), joined_.size()};
    } else if (whole == 0) {
      rest_.insert(rest_.end(), text.begin(), text.end());
      if (rest_.size() > longest_line_bytes)
        runtime::throw_user("{}:{}: a line of more than {} bytes: not a text file?", path_.string(),
                            lines_before_ + 1, longest_line_bytes);
    } else {
      block_ = joined(piece.first(whole));
      rest_.assign(text.begin() + static_cast<std::ptrdiff_t>(whole), text.end());
    }
    skip_header();
  }
  if (block_begin_ == 0) {
    auto const text = runtime::without_byte_order_mark(block_, path_.string());
    block_begin_ = static_cast<std::int64_t>(block_.size() - text.size());
    block_ = text;
  }
  refuse_lone_returns();
  return block_;
}

void TextBlocks::skip_header() {
  for (; lines_to_skip_ > 0 && !block_.empty(); --lines_to_skip_, ++lines_before_) {
    auto const length = block_.find('\n') + 1;
    block_begin_ += static_cast<std::int64_t>(length);
    block_.remove_prefix(length);
  }
}

void TextBlocks::refuse_lone_returns() const {
  for (auto at = block_.find('\r'); at != std::string_view::npos; at = block_.find('\r', at + 1))
    if (block_[at + 1] != '\n')
      fail(block_.data() + at, "a carriage return inside a line; lines end in \\n or in \\r\\n");
}

/// Returns `lines` with the incomplete line of the previous block in front of them, copied there if there is room.
std::string_view TextBlocks::joined(std::span<char> lines) {
  if (rest_.size() <= headroom) {
    auto* const front = lines.data() - rest_.size();
    std::copy(rest_.begin(), rest_.end(), front);
    return {front, rest_.size() + lines.size()};
  }
  joined_.swap(rest_);
  joined_.insert(joined_.end(), lines.begin(), lines.end());
  return {joined_.data(), joined_.size()};
}

std::int64_t TextBlocks::line_number(char const* place) const {
  auto line = 1 + lines_before_ + std::count(block_.data(), place, '\n');
  std::vector<char> before(begin_ > 0 ? read_bytes : 0);
  for (std::int64_t offset = 0; offset < begin_;) {
    auto const wanted = std::min(begin_ - offset, static_cast<std::int64_t>(before.size()));
    auto const part = std::span(before).first(static_cast<std::size_t>(wanted));
    auto const got = runtime::detail::read_at(file_.get(), offset, part, path_);
    if (got == 0) break;
    line += std::count(before.begin(), before.begin() + got, '\n');
    offset += got;
  }
  return line;
}

void TextBlocks::fail(char const* place, std::string const& reason) const {
  runtime::throw_user("{}:{}: {}", path_.string(), line_number(place), reason);
}

void TextBlocks::fail_at_end(std::string const& reason) const {
  auto const line = line_number(block_.data() + block_.size()) - 1;
  runtime::throw_user("{}: ends after line {}: {}", path_.string(), line, reason);
}

Progress TextBlocks::progress() const {
  if (inflater_) return {inflater_->bytes_done(), inflater_->bytes_total()};
  return {position_ - begin_, end_ - begin_};
}

char const* TextLines::next() {
  if (place_ != end_) place_ = text::line_end(place_) + 1;
  if (place_ == end_) {
    auto const block = blocks_.next();
    if (block.empty()) return nullptr;
    place_ = block.data();
    end_ = block.data() + block.size();
  }
  ++num_lines_;
  line_ = place_;
  return line_;
}

TextStart TextLines::end_of_line() const {
  return {blocks_.byte_of(text::line_end(place_) + 1), num_lines_};
}

void require_text_room(std::filesystem::path const& path, std::int64_t num_lines, std::int64_t line_bytes,
                       std::string const& claim) {
  auto const file = runtime::detail::open_to_read(path);
  auto const size = runtime::detail::size_of_file(file.get(), path);
  constexpr std::int64_t best_ratio = 1032;
  auto const most = is_gzip(path) ? runtime::checked_product(size + 1, best_ratio, path.string()) : size;
  if (runtime::checked_product(num_lines, line_bytes, claim) - 1 > most)
    runtime::throw_user("{}, but {} has only {} bytes", claim, path.string(), size);
}

std::string first_line(std::filesystem::path const& path) {
  TextLines lines(path);
  auto const* const begin = lines.next();
  if (begin == nullptr) return {};
  std::string line(begin, text::line_end(begin));
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

} // namespace orthant::graph
