// SPDX-License-Identifier: Apache-2.0
#include "tokens/bpe/byte_pairs.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace orthant::tokens {
namespace {

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;

/// Mixes the bits of a pair, so that each bit of the result depends on all of them.
std::uint64_t mixed(std::uint64_t bits) {
  constexpr unsigned half = 32;
  bits *= golden;
  return bits ^ bits >> half;
}

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = text.size();
  for (; text.size() >= sizeof(hash); text.remove_prefix(sizeof(hash))) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), sizeof(word));
    hash = mixed(hash ^ word);
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, text.data(), text.size());
  return mixed(hash ^ rest);
}

constexpr std::size_t cached_pieces = std::size_t{1} << 15;

} // namespace

MergeTable::MergeTable(std::vector<Merge> const& merges) : entries_(std::bit_ceil(2 * merges.size() + 1)) {
  for (std::uint32_t rank = 0; rank < merges.size(); ++rank) {
    auto const& merge = merges[rank];
    auto const pair = std::uint64_t{merge.left} << 32U | merge.right;
    entries_[slot_of(pair)] = {pair, rank, merge.merged};
  }
}

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  auto const mask = entries_.size() - 1;
  auto slot = mixed(pair) & mask;
  while (entries_[slot].rank != no_token && entries_[slot].pair != pair)
    slot = (slot + 1) & mask;
  return slot;
}

PieceEncoder::PieceEncoder(std::array<std::uint32_t, 256> const& byte_tokens, MergeTable const& merges,
                           std::unordered_map<std::string_view, std::uint32_t> const& whole)
    : byte_tokens_(byte_tokens),
      merges_(merges),
      whole_(whole),
      cache_(cached_pieces) {}

void PieceEncoder::encode(std::string_view piece, std::vector<std::uint32_t>& ids) {
  auto const is_short = piece.size() <= Remembered::most_bytes;
  auto& remembered = cache_[is_short ? hash_of(piece) % cached_pieces : 0];
  if (is_short && piece == std::string_view(remembered.bytes.data(), remembered.num_bytes)) {
    ids.insert(ids.end(), remembered.ids.begin(), remembered.ids.begin() + remembered.num_ids);
    return;
  }
  auto const begin = ids.size();
  if (auto const found = whole_.find(piece); found != whole_.end())
    ids.push_back(found->second);
  else
    merge(piece, ids);
  auto const count = ids.size() - begin;
  if (!is_short || count > Remembered::most_ids) return;
  remembered.num_bytes = static_cast<std::uint8_t>(piece.size());
  remembered.num_ids = static_cast<std::uint8_t>(count);
  std::ranges::copy(piece, remembered.bytes.begin());
  std::copy(ids.end() - static_cast<std::ptrdiff_t>(count), ids.end(), remembered.ids.begin());
}

bool PieceEncoder::is_later(Candidate const& a, Candidate const& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

/// Puts the merge of a symbol and the next one into the heap, if there is one.
void PieceEncoder::propose(std::int32_t left) {
  auto const& symbol = symbols_[static_cast<std::size_t>(left)];
  if (symbol.next < 0) return;
  auto const& entry = merges_.find(symbol.token, symbols_[static_cast<std::size_t>(symbol.next)].token);
  if (entry.rank == no_token) return;
  candidates_.push_back({entry.rank, left, entry.merged});
  std::ranges::push_heap(candidates_, is_later);
}

void PieceEncoder::merge(std::string_view piece, std::vector<std::uint32_t>& ids) {
  symbols_.clear();
  candidates_.clear();
  if (!std::in_range<std::int32_t>(piece.size()))
    runtime::throw_user("the tokenizer does not split a piece of {} bytes; a piece has at most {}",
                        piece.size(), std::numeric_limits<std::int32_t>::max());
  auto const size = static_cast<std::int32_t>(piece.size());
  for (std::int32_t i = 0; i < size; ++i) {
    auto const byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    if (byte_tokens_[byte] == no_token)
      runtime::throw_user("the tokenizer has no token for the byte 0x{:02x}, which the text contains", byte);
    symbols_.push_back({byte_tokens_[byte], i - 1, i + 1 < size ? i + 1 : -1});
  }
  for (std::int32_t i = 0; i < size; ++i)
    propose(i);
  while (!candidates_.empty()) {
    std::ranges::pop_heap(candidates_, is_later);
    auto const best = candidates_.back();
    candidates_.pop_back();
    // A candidate is outdated if one of its symbols has been merged since.
    auto& left = symbols_[static_cast<std::size_t>(best.at)];
    if (left.token == no_token || left.next < 0) continue;
    auto& right = symbols_[static_cast<std::size_t>(left.next)];
    if (merges_.find(left.token, right.token).rank != best.rank) continue;
    left.token = best.merged;
    left.next = right.next;
    right.token = no_token;
    if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = best.at;
    propose(best.at);
    if (left.previous >= 0) propose(left.previous);
  }
  for (std::int32_t i = 0; i >= 0 && i < size; i = symbols_[static_cast<std::size_t>(i)].next)
    ids.push_back(symbols_[static_cast<std::size_t>(i)].token);
}

} // namespace orthant::tokens
