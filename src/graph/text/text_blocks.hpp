#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A text file, plain or .gz, as blocks of whole lines. A plain file is partitioned over ranks by bytes: a line belongs to the share of its
// first byte. All of a .gz file belongs to the first share.

#include "graph/graph_source.hpp"
#include "runtime/files/byte_source.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::graph {

// Inflates a .gz file on its own thread, a few pieces ahead, while the caller parses. The thread holds only raw buffers (no Kokkos Views).
// Several gzip members in one file are read as one text.

class GzipInflater {
 public:
  /// Free bytes before each piece, where the caller may copy the end of the piece before.
  static constexpr std::size_t headroom = std::size_t{1} << 16;

  explicit GzipInflater(std::filesystem::path const& path);
  GzipInflater(GzipInflater const&) = delete;
  GzipInflater& operator=(GzipInflater const&) = delete;
  ~GzipInflater();

  /// The next piece, empty at the end. It is valid until the next call. Throws UserError if the file cannot be read, is not gzip, is
  /// damaged or ends early.
  [[nodiscard]] std::span<char> next();

  /// Compressed bytes that have been read, and their total number.
  [[nodiscard]] std::int64_t bytes_done() const;
  [[nodiscard]] std::int64_t bytes_total() const;

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

/// Part `index` of `count` parts: a rank and the number of ranks.
struct Share {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

/// True if the name ends in ".gz".
[[nodiscard]] bool is_gzip(std::filesystem::path const& path);

/// Where the lines after a header begin.
struct TextStart {
  std::int64_t first_byte = 0; // in a plain file
  std::int64_t num_lines = 0;  // before it; skipped in a .gz file
};

class TextBlocks {
 public:
  /// Share {0, 1} is the whole file from `start` on.
  TextBlocks(std::filesystem::path path, Share share, TextStart start = {});

  /// The next whole lines, valid until the next call; empty at the end. Every line ends in '\n' (added to a last line without one), so that
  /// a parser need not look for the end of the block inside a line. A byte order mark at the beginning of the file is skipped. Throws
  /// UserError if it is the mark of UTF-16 or UTF-32, or if a '\r' is not followed by '\n', because other readers end a line there.
  [[nodiscard]] std::string_view next();

  /// The 1-based number of the line that contains `place`, a pointer into the block that next() returned last. For messages: if the share
  /// is not at the beginning of the file, it counts the lines before it.
  [[nodiscard]] std::int64_t line_number(char const* place) const;
  /// The byte offset in the file of `place` in that block; for a .gz file, the offset in its text.
  [[nodiscard]] std::int64_t byte_of(char const* place) const {
    return block_begin_ + (place - block_.data());
  }
  /// Throws the UserError "path:line: reason".
  [[noreturn]] void fail(char const* place, std::string const& reason) const;
  /// Throws a UserError for a mistake at the end of the file, with this reason.
  [[noreturn]] void fail_at_end(std::string const& reason) const;

  [[nodiscard]] std::filesystem::path const& path() const { return path_; }
  [[nodiscard]] Progress progress() const;

 private:
  [[nodiscard]] std::int64_t line_start_from(std::int64_t offset) const;
  void skip_header();
  [[nodiscard]] std::span<char> next_piece();
  [[nodiscard]] std::string_view joined(std::span<char> lines);
  void refuse_lone_returns() const;

  std::filesystem::path path_;
  std::unique_ptr<GzipInflater> inflater_; // .gz
  runtime::detail::FileDescriptor file_;   // plain
  std::vector<char> buffer_;               // plain: room for the rest of a line, then the bytes read
  std::vector<char> rest_;                 // incomplete line after the block
  std::vector<char> joined_;               // a block whose first line is longer than that room
  std::int64_t begin_ = 0;                 // of this share, in bytes of a plain file
  std::int64_t end_ = 0;
  std::int64_t position_ = 0;
  std::int64_t lines_before_ = 0; // lines of this share before the block
  std::int64_t block_begin_ = 0;  // in bytes of the file's text
  std::int64_t lines_to_skip_ = 0;
  std::string_view block_;
  bool is_at_end_ = false;
};

/// Reads the lines of a share one by one.
class TextLines {
 public:
  explicit TextLines(std::filesystem::path path, Share share = {}, TextStart start = {})
      : blocks_(std::move(path), share, start) {}

  /// Beginning of the next line, which ends in '\n' and is valid until the next call; nullptr at the end.
  char const* next();
  /// For speed: next() then looks for the end of this line from `place` on.
  void skip_to(char const* place) { place_ = place; }
  /// Where the next line begins.
  [[nodiscard]] TextStart end_of_line() const;
  /// Throws the UserError "path:line: reason" for the line.
  [[noreturn]] void fail(std::string const& reason) const { blocks_.fail(line_, reason); }
  [[nodiscard]] TextBlocks const& blocks() const { return blocks_; }

 private:
  TextBlocks blocks_;
  std::int64_t num_lines_ = 0;
  char const* line_ = nullptr;
  char const* place_ = nullptr; // in the current line
  char const* end_ = nullptr;   // of the block
};

/// Throws UserError if the file is too small for `num_lines` lines of at least `line_bytes` bytes each (the last may lack its end). `claim`
/// names the source of the number ("num-node-list.csv says 5 vertices"). Memory is allocated according to this number before all lines have
/// been read. A .gz file may expand by a factor of 1032, the maximum of deflate.
void require_text_room(std::filesystem::path const& path, std::int64_t num_lines, std::int64_t line_bytes,
                       std::string const& claim);

/// The first line of a text file without its end; empty if there is none.
[[nodiscard]] std::string first_line(std::filesystem::path const& path);

} // namespace orthant::graph
