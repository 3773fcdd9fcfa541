// SPDX-License-Identifier: Apache-2.0
#include "tokens/tokenize.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/files/text_file.hpp"
#include "runtime/range.hpp"
#include "tokens/vocabulary.hpp"

#include <algorithm>
#include <span>

namespace orthant::tokens {
namespace {

constexpr std::size_t most_waiting = std::size_t{1} << 19;

std::span<std::uint8_t const> as_numbers(std::string const& text) {
  return {reinterpret_cast<std::uint8_t const*>(text.data()), text.size()};
}

/// Sets the number of tokens of each part, and the facts about the vocabulary.
TokenFacts completed(TokenFacts facts, double train_fraction, std::int64_t num_tokens,
                     Vocabulary const& vocabulary, std::string const& tokenizer_json) {
  if (num_tokens == 0) runtime::throw_user("{} is empty: there is nothing to tokenize", facts.source);
  facts.vocabulary_size = vocabulary.size();
  facts.sum_of_vocabulary = sum_of(vocabulary);
  if (facts.bpe) {
    facts.bpe->num_bytes = static_cast<std::int64_t>(tokenizer_json.size());
    facts.bpe->sum = sum_of_tokenizer(tokenizer_json);
  }
  facts.parts[0].num_tokens = static_cast<std::int64_t>(train_fraction * static_cast<double>(num_tokens));
  facts.parts[1].num_tokens = num_tokens - facts.parts[0].num_tokens;
  return facts;
}

} // namespace

TokenOutput::TokenOutput(runtime::Communicator const& comm, std::filesystem::path const& path,
                         TokenFacts facts, double train_fraction, std::int64_t num_tokens,
                         Vocabulary const& vocabulary, std::string const& tokenizer_json)
    : comm_(comm),
      facts_(completed(std::move(facts), train_fraction, runtime::all_reduced(comm, num_tokens), vocabulary,
                       tokenizer_json)),
      vocabulary_(vocabulary),
      tokenizer_json_(tokenizer_json),
      first_(runtime::scanned(comm, num_tokens)),
      file_(comm, path, "token") {
  for (auto const part : all_parts)
    file_.create_array(array_of(part), token_type(facts_.vocabulary_size), {facts_.of(part).num_tokens});
  file_.create_array(bytes_array, runtime::Hdf5Type::uint8,
                     {static_cast<std::int64_t>(vocabulary.bytes().size())});
  file_.create_array(ends_array, runtime::Hdf5Type::int64, {facts_.vocabulary_size});
  if (facts_.bpe) file_.create_array(tokenizer_array, runtime::Hdf5Type::uint8, {facts_.bpe->num_bytes});
  file_.reserve_space();
}

void TokenOutput::take(std::uint32_t token, std::size_t num_bytes) {
  auto const part =
      first_ + std::ssize(waiting_) < facts_.of(Part::train).num_tokens ? Part::train : Part::valid;
  if (part != part_) write();
  part_ = part;
  waiting_.push_back(token);
  facts_.parts[static_cast<std::size_t>(part)].num_bytes += static_cast<std::int64_t>(num_bytes);
  if (waiting_.size() == most_waiting) write();
}

void TokenOutput::write() {
  if (waiting_.empty()) return;
  auto const begin = part_ == Part::train ? first_ : first_ - facts_.of(Part::train).num_tokens;
  if (token_type(facts_.vocabulary_size) == runtime::Hdf5Type::uint16)
    write_as<std::uint16_t>(part_, begin);
  else
    write_as<std::uint32_t>(part_, begin);
  first_ += std::ssize(waiting_);
  waiting_.clear();
}

template<class T>
void TokenOutput::write_as(Part part, std::int64_t begin) {
  std::vector<T> numbers;
  numbers.reserve(waiting_.size());
  for (auto const token : waiting_)
    numbers.push_back(static_cast<T>(token));
  auto& facts = facts_.parts[static_cast<std::size_t>(part)];
  std::span<T const> const tokens(numbers);
  facts.sum += runtime::sum_of_box<T>({facts.num_tokens}, {begin}, {std::ssize(tokens)}, tokens);
  file_.write(array_of(part), {begin}, {std::ssize(tokens)}, tokens);
}

void TokenOutput::write_vocabulary() {
  auto const texts = as_numbers(vocabulary_.bytes());
  file_.write(bytes_array, {0}, {std::ssize(texts)}, texts);
  file_.write(ends_array, {0}, {vocabulary_.size()}, std::span<std::int64_t const>(vocabulary_.ends()));
  auto const json = as_numbers(tokenizer_json_);
  if (facts_.bpe) file_.write(tokenizer_array, {0}, {std::ssize(json)}, json);
}

TokenFacts TokenOutput::publish() {
  runtime::together(comm_, [&] {
    write();
    if (comm_.is_root()) write_vocabulary();
  });
  std::vector<std::uint64_t> sums;
  for (auto const& part : facts_.parts) {
    sums.push_back(part.sum);
    sums.push_back(static_cast<std::uint64_t>(part.num_bytes));
  }
  runtime::add_up(comm_, sums);
  for (std::size_t i = 0; i < facts_.parts.size(); ++i) {
    facts_.parts[i].sum = sums[2 * i];
    facts_.parts[i].num_bytes = static_cast<std::int64_t>(sums[2 * i + 1]);
  }
  auto const text = facts_.to_json();
  file_.write_attribute("/", "format", std::string(file_format));
  file_.write_attribute("/", "version", file_version);
  file_.write_attribute("/", "facts", text);
  file_.write_attribute("/", "facts_sum", sum_of(text));
  file_.publish();
  return facts_;
}

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
