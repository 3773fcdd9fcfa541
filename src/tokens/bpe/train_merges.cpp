// SPDX-License-Identifier: Apache-2.0
#include "tokens/bpe/train_merges.hpp"

#include "tokens/bpe/tokenizer_json.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace orthant::tokens {
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
