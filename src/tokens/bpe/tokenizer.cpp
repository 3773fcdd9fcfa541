// SPDX-License-Identifier: Apache-2.0
#include "tokens/bpe/tokenizer.hpp"

#include "runtime/error.hpp"
#include "tokens/bpe/tokenizer_files.hpp"
#include "tokens/bpe/unicode.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace orthant::tokens {
namespace {

Vocabulary vocabulary_of(std::vector<std::string> const& texts) {
  std::string bytes;
  std::vector<std::int64_t> ends;
  for (auto const& text : texts) {
    bytes += text;
    ends.push_back(static_cast<std::int64_t>(bytes.size()));
  }
  return {std::move(bytes), std::move(ends)};
}

bool is_space_at(std::string_view text, std::size_t at, std::size_t num_bytes) {
  auto const character = first_character(text.substr(at, num_bytes));
  return character.num_bytes == num_bytes &&
         UnicodeClasses::get().of(character.code_point) == CharacterClass::space;
}

/// Number of bytes of white space at the end of a text.
std::size_t spaces_at_end(std::string_view text) {
  auto end = text.size();
  while (end > 0) {
    auto begin = end - 1;
    while (begin > 0 && end - begin < longest_character && continues_character(text[begin]))
      --begin;
    if (!is_space_at(text, begin, end - begin)) break;
    end = begin;
  }
  return text.size() - end;
}

std::size_t spaces_at_begin(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    auto const character = first_character(text.substr(at, longest_character));
    if (character.num_bytes == 0 || !is_space_at(text, at, character.num_bytes)) break;
    at += character.num_bytes;
  }
  return at;
}

/// True if no piece of the text can extend over a position where texts are cut.
bool splits_at_cuts(TokenizerDefinition const& definition) {
  return definition.splits_as_gpt2 || std::ranges::any_of(definition.patterns, [](Pattern pattern) {
           return pattern != Pattern::single_digits && pattern != Pattern::digit_runs;
         });
}

bool has_space(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at)
    if (spaces_at_begin(text.substr(at)) > 0) return true;
  return false;
}

} // namespace

std::optional<std::uint32_t> find_end_token(TokenizerDefinition const& definition, std::string_view text) {
  constexpr std::array<std::string_view, 4> usual{"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
  auto const names = text.empty() ? std::span<std::string_view const>(usual) : std::span(&text, 1);
  for (auto const name : names) {
    auto const found = std::ranges::find(definition.added, name, &AddedToken::text);
    if (found != definition.added.end()) return found->id;
  }
  if (!text.empty())
    runtime::throw_user("--end-token '{}' is not one of the tokenizer's {} added tokens", text,
                        definition.added.size());
  return std::nullopt;
}

void Tokenizer::Search::add(AddedToken const& token) {
  begins[static_cast<unsigned char>(token.text.front())] = true;
  tokens.emplace(token.text, &token);
  if (std::ranges::find(lengths, token.text.size()) == lengths.end()) lengths.push_back(token.text.size());
  std::ranges::sort(lengths, std::greater<>());
}

AddedToken const* Tokenizer::Search::find(std::string_view text) const {
  if (!begins[static_cast<unsigned char>(text.front())]) return nullptr;
  for (auto const length : lengths) {
    if (length > text.size()) continue;
    if (auto const found = tokens.find(text.substr(0, length)); found != tokens.end()) return found->second;
  }
  return nullptr;
}

Tokenizer::Tokenizer(TokenizerDefinition definition, std::string const& name)
    : definition_(std::move(definition)),
      vocabulary_(vocabulary_of(definition_.texts)),
      merges_(definition_.merges),
      can_be_cut_(splits_at_cuts(definition_)) {
  auto const& texts = definition_.texts;
  auto const require = [&](std::uint32_t id, std::string_view what) {
    if (id >= texts.size() || texts[id].empty())
      runtime::throw_user("{}: {} has the token number {}, which has no text", name, what, id);
  };
  for (auto const& [left, right, merged] : definition_.merges)
    for (auto const id : {left, right, merged})
      require(id, "a merge");
  byte_tokens_.fill(no_token);
  std::vector<bool> is_added(texts.size());
  for (auto const& token : definition_.added) {
    require(token.id, "an added token");
    is_added[token.id] = true;
    if (!definition_.finds_added) continue;
    searches_[token.is_normalized ? 1 : 0].add(token);
    if (token.strips_left || token.strips_right || has_space(token.text)) can_be_cut_ = false;
  }
  for (std::uint32_t id = 0; id < texts.size(); ++id) {
    if (texts[id].empty()) continue;
    if (texts[id].size() == 1) {
      auto& token = byte_tokens_[static_cast<unsigned char>(texts[id].front())];
      if (token == no_token) token = id;
    }
    if (definition_.takes_whole_pieces && !is_added[id]) whole_.emplace(texts[id], id);
  }
}

std::string Tokenizer::decode(std::span<std::uint32_t const> ids) const {
  std::string text;
  for (auto const id : ids)
    text += vocabulary_.text_of(id);
  return text;
}

Encoder::Encoder(Tokenizer const& tokenizer)
    : tokenizer_(tokenizer),
      pieces_(tokenizer.byte_tokens_, tokenizer.merges_, tokenizer.whole_) {}

void Encoder::encode(std::string_view text, std::vector<std::uint32_t>& ids) {
  encode_between(0, text, ids);
}

/// Finds the added tokens of a search, and passes the text between them to the next search.
void Encoder::encode_between(std::size_t search, std::string_view text, std::vector<std::uint32_t>& ids) {
  if (search == tokenizer_.searches_.size()) {
    encode_ordinary(text, ids);
    return;
  }
  std::string composed;
  if (search == 1 && tokenizer_.definition_.composes) {
    composed = to_nfc(text);
    text = composed;
  }
  auto const& wanted = tokenizer_.searches_[search];
  std::size_t begin = 0; // beginning of the text that has not been encoded yet
  for (std::size_t at = 0; !wanted.tokens.empty() && at < text.size();) {
    auto const* const token = wanted.find(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    auto const before = at >= begin ? text.substr(begin, at - begin) : std::string_view();
    auto const left = token->strips_left ? spaces_at_end(before) : 0;
    encode_between(search + 1, before.substr(0, before.size() - left), ids);
    ids.push_back(token->id);
    at += token->text.size();
    begin = at + (token->strips_right ? spaces_at_begin(text.substr(at)) : 0);
  }
  if (begin < text.size()) encode_between(search + 1, text.substr(begin), ids);
}

void Encoder::encode_ordinary(std::string_view text, std::vector<std::uint32_t>& ids) {
  constexpr std::array gpt2{Pattern::gpt2};
  auto const& definition = tokenizer_.definition_;
  auto const last = definition.splits_as_gpt2 ? std::span<Pattern const>(gpt2) : std::span<Pattern const>();
  auto take = [&](std::string_view piece) { pieces_.encode(piece, ids); };
  auto split = [&](std::string_view part) {
    if (definition.adds_prefix_space && !part.starts_with(' ')) {
      prefixed_.assign(1, ' ');
      part = prefixed_ += part;
    }
    for_each_piece(last, part, take);
  };
  for_each_piece(definition.patterns, text, split);
}

namespace {

using Pair = std::pair<std::uint32_t, std::uint32_t>;

struct PairHash {
  std::size_t operator()(Pair const& pair) const {
    return std::hash<std::uint64_t>()((std::uint64_t{pair.first} << 32U | pair.second) * 0x9e3779b97f4a7c15U);
  }
};

struct Word {
  std::vector<std::uint32_t> tokens;
  std::int64_t count = 0;
};

/// A pair with its count when it was put into the queue, and the words in which it was found then.
struct Waiting {
  std::int64_t count = 0;
  Pair pair;
  std::vector<std::uint32_t> words;
};

/// True if `b` is merged before `a`.
bool is_less(Waiting const& a, Waiting const& b) {
  return a.count != b.count ? a.count < b.count : a.pair > b.pair;
}

class Trainer {
 public:
  explicit Trainer(PieceCounts const& pieces) {
    constexpr int byte_values = 256;
    std::map<std::uint32_t, char> bytes; // by the number of their characters: the order of GPT-2
    for (int byte = 0; byte < byte_values; ++byte) {
      auto const text = to_byte_characters(std::string(1, static_cast<char>(byte)));
      bytes.emplace(first_character(text).code_point, static_cast<char>(byte));
    }
    std::array<std::uint32_t, byte_values> token_of{};
    for (auto const& [character, byte] : bytes)
      token_of[static_cast<unsigned char>(byte)] = add_token(std::string(1, byte));
    for (auto const& [piece, count] : pieces) {
      auto& word = words_.emplace_back();
      word.count = count;
      for (auto const byte : piece)
        word.tokens.push_back(token_of[static_cast<unsigned char>(byte)]);
    }
    std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash> found;
    for (std::uint32_t i = 0; i < words_.size(); ++i)
      for (std::size_t at = 1; at < words_[i].tokens.size(); ++at)
        add({words_[i].tokens[at - 1], words_[i].tokens[at]}, words_[i].count, i, found);
    put_into_queue(found);
  }

  TokenizerDefinition train(std::int64_t num_tokens) {
    auto const wanted = definition_.texts.size() + static_cast<std::size_t>(num_tokens);
    while (definition_.texts.size() < wanted && !queue_.empty()) {
      std::ranges::pop_heap(queue_, is_less);
      auto best = std::move(queue_.back());
      queue_.pop_back();
      if (auto const count = counts_.at(best.pair); count != best.count) {
        best.count = count;
        if (count > 0) put_into_queue(std::move(best));
        continue;
      }
      auto const& [left, right] = best.pair;
      auto const num_before = definition_.texts.size();
      auto const merged = add_token(definition_.texts[left] + definition_.texts[right]);
      if (merged < num_before)
        std::erase_if(definition_.merges, [&](Merge const& merge) {
          return merge.left == left && merge.right == right; // learned again, for words found later
        });
      definition_.merges.push_back({left, right, merged});
      std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash> found;
      for (auto const word : best.words)
        merge(word, best.pair, merged, found);
      put_into_queue(found);
    }
    return std::move(definition_);
  }

 private:
  using Found = std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash>;

  /// The number of the token with this text, a new one if there is none yet.
  std::uint32_t add_token(std::string const& text) {
    auto const [place, is_new] =
        token_of_.emplace(text, static_cast<std::uint32_t>(definition_.texts.size()));
    if (is_new) definition_.texts.push_back(text);
    return place->second;
  }
  void add(Pair const& pair, std::int64_t count, std::uint32_t word, Found& found) {
    counts_[pair] += count;
    auto& words = found[pair];
    if (words.empty() || words.back() != word) words.push_back(word);
  }
  void put_into_queue(Found& found) {
    for (auto& [pair, words] : found)
      if (auto const count = counts_.at(pair); count > 0) put_into_queue({count, pair, std::move(words)});
  }
  void put_into_queue(Waiting waiting) {
    queue_.push_back(std::move(waiting));
    std::ranges::push_heap(queue_, is_less);
  }
  /// Replaces the pair in a word. The count of the pair itself is not changed.
  void merge(std::uint32_t index, Pair const& pair, std::uint32_t merged, Found& found) {
    auto& [tokens, count] = words_[index];
    std::vector<std::uint32_t> shorter;
    for (std::size_t at = 0; at < tokens.size(); ++at) {
      if (at + 1 == tokens.size() || tokens[at] != pair.first || tokens[at + 1] != pair.second) {
        shorter.push_back(tokens[at]);
        continue;
      }
      if (!shorter.empty()) {
        counts_[{shorter.back(), pair.first}] -= count;
        add({shorter.back(), merged}, count, index, found);
      }
      shorter.push_back(merged);
      ++at;
      if (at + 1 < tokens.size()) {
        counts_[{pair.second, tokens[at + 1]}] -= count;
        add({merged, tokens[at + 1]}, count, index, found);
      }
    }
    tokens = std::move(shorter);
  }

  TokenizerDefinition definition_;
  std::unordered_map<std::string, std::uint32_t> token_of_;
  std::vector<Word> words_;
  std::unordered_map<Pair, std::int64_t, PairHash> counts_;
  std::vector<Waiting> queue_; // a heap
};

} // namespace

TokenizerDefinition train_merges(PieceCounts const& pieces, std::int64_t num_tokens) {
  auto definition = Trainer(pieces).train(num_tokens);
  definition.splits_as_gpt2 = true;
  auto const end = static_cast<std::uint32_t>(definition.texts.size());
  definition.texts.emplace_back("<|endoftext|>");
  definition.added.push_back({definition.texts.back(), end});
  return definition;
}

} // namespace orthant::tokens
