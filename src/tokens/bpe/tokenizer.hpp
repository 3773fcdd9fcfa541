#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A byte-level tokenizer with byte-pair encoding, such as those of GPT-2 and Llama 3: a text is split into pieces (pieces.hpp), and each
// piece is encoded by merges (byte_pairs.hpp). Before that, added tokens such as "<|endoftext|>" are found in the text.

#include "tokens/bpe/byte_pairs.hpp"
#include "tokens/bpe/pieces.hpp"
#include "tokens/vocabulary.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orthant::tokens {

struct AddedToken {
  std::string text;
  std::uint32_t id = 0;
  bool is_special = true;
  bool is_normalized = false; // if true, it is searched for after all tokens for which this is false
  bool strips_left = false;   // takes the white space before it
  bool strips_right = false;  // takes the white space after it
};

/// Contents of the files of a tokenizer.
struct TokenizerDefinition {
  std::vector<std::string> texts;  // the bytes of each token; empty: there is no token of this number
  std::vector<Merge> merges;       // by rank
  bool takes_whole_pieces = false; // a piece that equals a token becomes this token without merges
  bool composes = false;           // texts are brought into normalization form C
  std::vector<Pattern> patterns;   // split a text one after another
  bool adds_prefix_space = false;  // to each of their pieces that does not begin with a space
  bool splits_as_gpt2 = false;     // splits the result by Pattern::gpt2
  std::vector<AddedToken> added;
  bool finds_added = true; // false: added tokens in a text are ordinary text
};

/// The number of the token that separates documents: the added token `text`, or the first of "<|endoftext|>", "<|end_of_text|>", "</s>" and
/// "<eos>" if `text` is empty; none if the tokenizer has none of them. Throws UserError if `text` is no added token.
[[nodiscard]] std::optional<std::uint32_t> find_end_token(TokenizerDefinition const& definition,
                                                          std::string_view text);

/// Does not change after it has been made, so that any number of threads can use it, each with an Encoder of its own.
class Tokenizer {
 public:
  /// Throws UserError with `name` if a merge or an added token has a number without a text.
  Tokenizer(TokenizerDefinition definition, std::string const& name);
  Tokenizer(Tokenizer const&) = delete;
  Tokenizer& operator=(Tokenizer const&) = delete;

  [[nodiscard]] TokenizerDefinition const& definition() const { return definition_; }
  [[nodiscard]] Vocabulary const& vocabulary() const { return vocabulary_; }
  /// The texts of the tokens one after another. Throws Error for a number beyond the vocabulary.
  [[nodiscard]] std::string decode(std::span<std::uint32_t const> ids) const;
  /// True if the tokens of a text are those of its parts, cut at last_cut() or first_cut(). It is false if an added token contains or takes
  /// white space, or if no pattern except Digits splits the text.
  [[nodiscard]] bool can_be_cut() const { return can_be_cut_; }

 private:
  friend class Encoder;
  /// Added tokens that are searched for at the same time, by their texts. If several match at one position, the longest is found.
  struct Search {
    std::array<bool, 256> begins{};   // by first byte
    std::vector<std::size_t> lengths; // longest first
    std::unordered_map<std::string_view, AddedToken const*> tokens;

    void add(AddedToken const& token);
    /// The longest token at the beginning of `text`, or null.
    [[nodiscard]] AddedToken const* find(std::string_view text) const;
  };

  TokenizerDefinition definition_;
  Vocabulary vocabulary_;
  std::array<std::uint32_t, 256> byte_tokens_{};
  MergeTable merges_;
  std::unordered_map<std::string_view, std::uint32_t> whole_;
  std::array<Search, 2> searches_; // first tokens that are not normalized, then those that are
  bool can_be_cut_;
};

class Encoder {
 public:
  explicit Encoder(Tokenizer const& tokenizer);

  /// Appends the tokens of a text, which may hold any bytes.
  void encode(std::string_view text, std::vector<std::uint32_t>& ids);

 private:
  void encode_between(std::size_t search, std::string_view text, std::vector<std::uint32_t>& ids);
  void encode_ordinary(std::string_view text, std::vector<std::uint32_t>& ids);

  Tokenizer const& tokenizer_;
  PieceEncoder pieces_;
  std::string prefixed_; // scratch
};

// Learning a byte-pair encoding: the tokens are at first the 256 bytes; then, repeatedly, the most frequent pair of neighboring tokens
// becomes a new token. Of equally frequent pairs, the one with the smallest numbers is taken. Equal to BpeTrainer of Hugging Face's
// tokenizers.

/// How often each piece occurs in the texts.
using PieceCounts = std::unordered_map<std::string, std::int64_t>;

/// A tokenizer that splits texts as GPT-2 does. Its tokens are the 256 bytes in the order of GPT-2, `num_tokens` that are learned, or fewer
/// if the pieces have no more, and <|endoftext|>.
[[nodiscard]] TokenizerDefinition train_merges(PieceCounts const& pieces, std::int64_t num_tokens);

} // namespace orthant::tokens
