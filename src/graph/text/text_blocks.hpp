#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A text file, plain or .gz, as blocks of whole lines. A plain file is cut between ranks by bytes: a line
// belongs to the share that its first byte lies in. A .gz file is all in the first share.

#include "graph/graph_source.hpp"
#include "runtime/files/byte_source.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

// Inflates a .gz file on a thread of its own, a few pieces ahead, while the caller parses. The thread holds
// raw buffers only (no Kokkos Views). Files of several gzip members, one after the other, read as one.

class GzipInflater {
 public:
  /// Each piece has this much free room in front of it: where the caller may put the end of the piece before.
  static constexpr std::size_t headroom = std::size_t{1} << 16;

  explicit GzipInflater(std::filesystem::path const& path);
  GzipInflater(GzipInflater const&) = delete;
  GzipInflater& operator=(GzipInflater const&) = delete;
  ~GzipInflater();

  /// The next piece, empty at the end. It is lent until the next call. Throws UserError where the file cannot
  /// be read, is not gzip, is damaged or ends early.
  [[nodiscard]] std::span<char> next();

  /// Compressed bytes that have been taken in, and all of them.
  [[nodiscard]] std::int64_t bytes_done() const;
  [[nodiscard]] std::int64_t bytes_total() const;

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

/// Part `index` of `count`: which rank of how many.
struct Share {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

/// True where the name ends in ".gz".
[[nodiscard]] bool is_gzip(std::filesystem::path const& path);

class TextBlocks {
 public:
  /// Share {0, 1} is all of the file, from byte `first_byte` on (where a header ends; plain files only).
  TextBlocks(std::filesystem::path path, Share share, std::int64_t first_byte = 0);

  /// The next whole lines, lent until the next call; empty at the end. Every line ends in '\n' (it is added
  /// to a last line without one), so a parser need not look for the end of the block inside a line. A byte order
  /// mark at the head of the file is passed over. Throws UserError if it is that of UTF-16 or UTF-32, or if a '\r'
  /// stands elsewhere than before a '\n': other readers end a line there.
  [[nodiscard]] std::string_view next();

  /// The 1-based number of the line that `place`, a pointer into the block that next() gave last, lies in.
  /// For messages: on a share that does not begin the file it counts the lines of the file before.
  [[nodiscard]] std::int64_t line_number(char const* place) const;
  /// Where `place` of the same block lies in the file, in bytes; of a .gz file in its text.
  [[nodiscard]] std::int64_t byte_of(char const* place) const {
    return block_begin_ + (place - block_.data());
  }
  /// Throws UserError "path:line: reason".
  [[noreturn]] void fail(char const* place, std::string const& reason) const;
  /// The same for the end of the file.
  [[noreturn]] void fail_at_end(std::string const& reason) const;

  [[nodiscard]] std::filesystem::path const& path() const { return path_; }
  [[nodiscard]] Progress progress() const;

 private:
  [[nodiscard]] std::int64_t line_start_from(std::int64_t offset) const;
  [[nodiscard]] std::span<char> next_piece();
  [[nodiscard]] std::string_view joined(std::span<char> lines);
  void refuse_lone_returns() const;

  std::filesystem::path path_;
  std::unique_ptr<GzipInflater> inflater_; // .gz
  runtime::detail::FileDescriptor file_;   // plain
  std::vector<char> buffer_;               // plain: room for the rest of a line, then the bytes read
  std::vector<char> rest_;                 // the begun line after the block
  std::vector<char> joined_;               // a block whose first line is too long for that room
  std::int64_t begin_ = 0;                 // this share, in bytes of a plain file
  std::int64_t end_ = 0;
  std::int64_t position_ = 0;
  std::int64_t lines_before_ = 0; // of this share, before the block
  std::int64_t block_begin_ = 0;  // in bytes of the file's text
  std::string_view block_;
  bool is_at_end_ = false;
};

/// Throws UserError if the file is too small for `num_lines` lines of at least `line_bytes` bytes each (the
/// last may lack its end), by what `claim` ("num-node-list.csv says 5 vertices") promises: memory is taken by
/// the claim, before all lines have been read. A .gz file may be 1032 times as long as it is, the best of
/// deflate.
void require_text_room(std::filesystem::path const& path, std::int64_t num_lines, std::int64_t line_bytes,
                       std::string const& claim);

/// The first line of a text file without its end, empty where there is none.
[[nodiscard]] std::string first_line(std::filesystem::path const& path);

} // namespace orthant::graph
