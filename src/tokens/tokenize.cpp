// SPDX-License-Identifier: Apache-2.0
#include "tokens/tokenize.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/text_file.hpp"
#include "runtime/range.hpp"
#include "tokens/token_output.hpp"
#include "tokens/vocabulary.hpp"

#include <algorithm>
#include <cmath>

namespace orthant::tokens {
namespace {

using runtime::Range;
using runtime::throw_user;

/// The characters, or bytes, that begin within this rank's share of a text.
class Share {
 public:
  Share(runtime::Communicator const& comm, TokenizeOptions const& options)
      : is_byte_(options.tokenizer == TokenizerKind::byte),
        bytes_(runtime::open_file_bytes(options.input)),
        text_begin_(find_text()),
        range_(runtime::balanced_range(bytes_->size() - text_begin_, comm.size(), comm.rank())) {
    range_ = {range_.begin + text_begin_, range_.end + text_begin_};
  }

  /// Calls take(code point or byte, number of bytes) for each, in order. Throws UserError if the text is not valid UTF-8.
  template<class Take>
  void for_each(Take&& take) {
    constexpr std::int64_t block_bytes = std::int64_t{1} << 20;
    auto at = is_byte_ ? range_.begin : first_start();
    auto const first = at;
    std::string block;
    while (at < range_.end) {
      // The last character that begins in the block may end after it.
      auto const end = std::min(at + block_bytes, range_.end);
      auto const read_end = std::min(end + static_cast<std::int64_t>(longest_character) - 1, bytes_->size());
      block.resize(static_cast<std::size_t>(read_end - at));
      bytes_->read(at, std::as_writable_bytes(std::span(block)));
      auto const begin = at;
      while (at < end) {
        auto const next = next_of(std::string_view(block).substr(static_cast<std::size_t>(at - begin)), at);
        take(next.code_point, next.num_bytes);
        at += static_cast<std::int64_t>(next.num_bytes);
      }
    }
    if (!is_byte_ && at > first && at < bytes_->size()) require_start(at);
  }

 private:
  /// Begin of the text after a byte order mark.
  [[nodiscard]] std::int64_t find_text() {
    constexpr std::int64_t most = 4;
    std::string head(static_cast<std::size_t>(std::min(most, bytes_->size())), '\0');
    bytes_->read(0, std::as_writable_bytes(std::span(head)));
    if (!is_byte_) runtime::refuse_wide_text(head, bytes_->name());
    return static_cast<std::int64_t>(runtime::byte_order_mark_bytes(head));
  }
  /// Position of the first character that begins in the share; the end of the share if there is none.
  [[nodiscard]] std::int64_t first_start() {
    auto at = range_.begin;
    if (at == text_begin_) return at;
    char byte = 0;
    for (std::size_t passed = 0; at < range_.end && passed < longest_character; ++at, ++passed) {
      bytes_->read(at, std::as_writable_bytes(std::span(&byte, 1)));
      if (!continues_character(byte)) return at;
    }
    return at;
  }
  /// Checks that a character begins at `at`: the next share skips the rest of this share's last character, and nothing else.
  void require_start(std::int64_t at) {
    char byte = 0;
    bytes_->read(at, std::as_writable_bytes(std::span(&byte, 1)));
    if (continues_character(byte)) throw_no_text(at);
  }
  [[noreturn]] void throw_no_text(std::int64_t at) const {
    throw_user("{} is no UTF-8 text at byte {}; --tokenizer byte takes any file", bytes_->name(), at);
  }
  [[nodiscard]] Character next_of(std::string_view text, std::int64_t at) const {
    if (is_byte_) return {static_cast<unsigned char>(text.front()), 1};
    auto const next = first_character(text);
    if (next.num_bytes == 0) throw_no_text(at);
    return next;
  }

  bool is_byte_;
  std::unique_ptr<runtime::ByteSource> bytes_;
  std::int64_t text_begin_;
  Range range_;
};

struct Survey {
  Vocabulary vocabulary;
  std::vector<std::uint32_t> token_of; // by code point or byte
  std::int64_t num_tokens = 0;         // of this rank's share
};

/// Finds the tokens that occur, and counts all tokens. Collective.
Survey survey(runtime::Communicator const& comm, Share& share, TokenizerKind kind) {
  Survey found;
  std::vector<std::int32_t> occurs(kind == TokenizerKind::byte ? 256 : num_code_points, 0);
  runtime::together(comm, [&] {
    share.for_each([&](std::uint32_t code, std::size_t) {
      occurs[code] = 1;
      ++found.num_tokens;
    });
  });
  runtime::all_reduce(runtime::host, comm, std::span(occurs), runtime::Reduction::max);
  std::vector<std::uint32_t> codes;
  for (std::uint32_t code = 0; code < occurs.size(); ++code)
    if (kind == TokenizerKind::byte || occurs[code] > 0) codes.push_back(code);
  found.token_of.resize(occurs.size());
  for (std::uint32_t token = 0; token < codes.size(); ++token)
    found.token_of[codes[token]] = token;
  found.vocabulary = kind == TokenizerKind::byte ? Vocabulary::of_bytes() : Vocabulary::of_characters(codes);
  return found;
}

} // namespace

TokenFacts tokenize(runtime::Communicator const& comm, TokenizeOptions const& options) {
  auto share = runtime::together(comm, [&] { return Share(comm, options); });
  auto const found = survey(comm, share, options.tokenizer);
  TokenFacts facts;
  facts.source = options.input.filename().string();
  facts.tokenizer = options.tokenizer;
  TokenOutput output(comm, options.output, facts, options.train_fraction, found.num_tokens, found.vocabulary,
                     {});
  runtime::together(comm, [&] {
    share.for_each(
        [&](std::uint32_t code, std::size_t num_bytes) { output.take(found.token_of[code], num_bytes); });
  });
  return output.publish();
}

} // namespace orthant::tokens
