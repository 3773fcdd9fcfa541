#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair encoding of one piece of a text: of all pairs of neighboring tokens for which there is a merge, the one of the lowest rank is
// merged (the leftmost first), until there is none. Sennrich et al., Neural Machine Translation of Rare Words with Subword Units (2016).

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orthant::tokens {

/// Two neighboring tokens and the token that they become. The rank of a merge is its place in a list.
struct Merge {
  std::uint32_t left = 0;
  std::uint32_t right = 0;
  std::uint32_t merged = 0;

  [[nodiscard]] bool operator==(Merge const&) const = default;
};

/// Stands for the token of a byte that has none.
inline constexpr std::uint32_t no_token = 0xffffffff;

/// The merges by pair, in a hash table with open addressing.
class MergeTable {
 public:
  struct Entry {
    std::uint64_t pair = 0;
    std::uint32_t rank = no_token; // no_token: the entry is free
    std::uint32_t merged = 0;
  };

  /// If a pair occurs twice in the list, its last rank counts.
  explicit MergeTable(std::vector<Merge> const& merges);

  /// The entry of a pair; a free entry if there is no merge of the pair.
  [[nodiscard]] Entry const& find(std::uint32_t left, std::uint32_t right) const {
    return entries_[slot_of(std::uint64_t{left} << 32U | right)];
  }

 private:
  [[nodiscard]] std::size_t slot_of(std::uint64_t pair) const;

  std::vector<Entry> entries_;
};

/// Encodes pieces, and keeps their tokens in a cache. Therefore only one thread at a time may use it.
class PieceEncoder {
 public:
  /// byte_tokens  the token of each byte, or no_token
  /// whole        tokens that a piece becomes as a whole, by their bytes; may be empty
  /// The arguments must outlive this object.
  PieceEncoder(std::array<std::uint32_t, 256> const& byte_tokens, MergeTable const& merges,
               std::unordered_map<std::string_view, std::uint32_t> const& whole);

  /// Appends the tokens of a piece. Throws UserError if a byte is no token, or if the piece has more than 2^31 - 1 bytes and is no
  /// token.
  void encode(std::string_view piece, std::vector<std::uint32_t>& ids);

 private:
  /// A piece and its tokens, in a cache line.
  struct alignas(64) Remembered {
    static constexpr std::size_t most_bytes = 34;
    static constexpr std::size_t most_ids = 7;
    std::uint8_t num_bytes = 0;
    std::uint8_t num_ids = 0;
    std::array<char, most_bytes> bytes{};
    std::array<std::uint32_t, most_ids> ids{};
  };
  struct Symbol {
    std::uint32_t token;
    std::int32_t previous; // -1: none
    std::int32_t next;
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t at;
    std::uint32_t merged;
  };

  [[nodiscard]] static bool is_later(Candidate const& a, Candidate const& b);
  void merge(std::string_view piece, std::vector<std::uint32_t>& ids);
  void propose(std::int32_t left);

  std::array<std::uint32_t, 256> const& byte_tokens_;
  MergeTable const& merges_;
  std::unordered_map<std::string_view, std::uint32_t> const& whole_;
  std::vector<Remembered> cache_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> candidates_; // a heap
};

} // namespace orthant::tokens
