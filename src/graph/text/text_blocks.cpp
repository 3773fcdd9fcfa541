// SPDX-License-Identifier: Apache-2.0
#include "graph/text/text_blocks.hpp"

#include "runtime/error.hpp"
#include "runtime/numbers/checked.hpp"
#include "runtime/text/byte_order_mark.hpp"

#include <algorithm>
#include <array>

namespace orthant::graph {

namespace {
constexpr auto headroom = GzipInflater::headroom;
constexpr std::size_t read_bytes = std::size_t{1} << 20;
constexpr std::size_t probe_bytes = 4096; // to find where a line ends
constexpr std::size_t longest_line_bytes = std::size_t{1} << 28;
} // namespace

bool is_gzip(std::filesystem::path const& path) {
  return path.extension() == ".gz";
}

TextBlocks::TextBlocks(std::filesystem::path path, Share share, std::int64_t first_byte)
    : path_(std::move(path)) {
  if (is_gzip(path_)) {
    if (share.index == 0)
      inflater_ = std::make_unique<GzipInflater>(path_);
    else
      is_at_end_ = true;
    return;
  }
  file_ = runtime::detail::open_to_read(path_);
  end_ = runtime::detail::size_of_file(file_.get(), path_);
  auto const cut = [&](std::int64_t part) {
    auto const range = runtime::balanced_range(end_ - first_byte, share.count, part);
    return line_start_from(first_byte + range.begin);
  };
  begin_ = share.index == 0 ? first_byte : cut(share.index);
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
    auto const whole = text.rfind('\n') + 1; // 0 where no line ends here
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
  }
  if (block_begin_ == 0) {
    auto const text = runtime::without_byte_order_mark(block_, path_.string());
    block_begin_ = static_cast<std::int64_t>(block_.size() - text.size());
    block_ = text;
  }
  refuse_lone_returns();
  return block_;
}

void TextBlocks::refuse_lone_returns() const {
  for (auto at = block_.find('\r'); at != std::string_view::npos; at = block_.find('\r', at + 1))
    if (block_[at + 1] != '\n')
      fail(block_.data() + at, "a carriage return inside a line; lines end in \\n or in \\r\\n");
}

/// The begun line of before and then `lines`: put in front of them where there is room.
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
  TextBlocks blocks(path, {});
  auto const block = blocks.next();
  auto line = block.substr(0, block.find('\n'));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return std::string(line);
}

} // namespace orthant::graph
