#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Many growing lists in one pool of small chunks. Other lists immediately reuse the chunks of a list that is drained. When edges are
// converted to matrix entries, both together therefore need only the memory of the larger of the two.

#include "runtime/error.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace orthant::graph {

/// Chunk size for `num_lists` lists with `total_bytes` in all. On average, each list wastes half a chunk, which should be at most an eighth
/// of the list's bytes. A small number of lists wastes little memory, so it gets large chunks, which are faster to read.
[[nodiscard]] constexpr std::size_t chunk_bytes_for(std::int64_t num_lists, std::int64_t total_bytes) {
  constexpr std::int64_t few_lists = 240 * 240;
  std::size_t bytes = 1024;
  if (num_lists <= few_lists) return bytes;
  while (bytes > 64 && static_cast<std::int64_t>(bytes) > total_bytes / num_lists / 4)
    bytes /= 2;
  return bytes;
}

class ChunkPool {
 public:
  using Chunk = std::uint32_t;
  static constexpr Chunk none = 0xffffffffU;

  /// chunk_bytes must be a power of two from 64 to 1,024.
  explicit ChunkPool(std::size_t chunk_bytes = 1024) : chunk_bits_(std::countr_zero(chunk_bytes)) {}

  [[nodiscard]] std::size_t chunk_bytes() const { return std::size_t{1} << chunk_bits_; }
  [[nodiscard]] Chunk allocate() {
    if (free_ == none) grow();
    auto const chunk = free_;
    free_ = next_[chunk];
    next_[chunk] = none;
    return chunk;
  }
  void release(Chunk chunk) {
    next_[chunk] = free_;
    free_ = chunk;
  }
  [[nodiscard]] std::byte* data(Chunk chunk) const {
    auto const bits = slab_bits - chunk_bits_;
    auto const place = chunk & ((Chunk{1} << bits) - 1);
    return slabs_[chunk >> bits].get() + (std::size_t{place} << chunk_bits_);
  }
  [[nodiscard]] Chunk& next(Chunk chunk) { return next_[chunk]; }
  /// Bytes of the chunks and of their management data.
  [[nodiscard]] std::int64_t reserved_bytes() const {
    return static_cast<std::int64_t>((slabs_.size() << slab_bits) + next_.size() * sizeof(Chunk));
  }

 private:
  static constexpr int slab_bits = 20;
  void grow() {
    auto const chunks_per_slab = std::size_t{1} << (slab_bits - chunk_bits_);
    auto const first = next_.size();
    ORTHANT_REQUIRE(first + chunks_per_slab < none, "more than 2^32 chunks on one rank; use more ranks");
    slabs_.push_back(std::make_unique_for_overwrite<std::byte[]>(std::size_t{1} << slab_bits));
    next_.resize(first + chunks_per_slab);
    for (auto i = next_.size(); i-- > first;)
      release(static_cast<Chunk>(i));
  }

  std::vector<std::unique_ptr<std::byte[]>> slabs_;
  std::vector<Chunk> next_; // next chunk of the same list, or of the free list
  Chunk free_ = none;
  int chunk_bits_;
};

/// Lists of records, each in the order of appending. Borrows the pool, which must outlive the lists.
template<class Record>
class RecordLists {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) <= 64);

 public:
  RecordLists(ChunkPool& pool, std::size_t num_lists)
      : pool_(&pool),
        per_chunk_(static_cast<std::uint32_t>(pool.chunk_bytes() / sizeof(Record))),
        lists_(num_lists) {}

  [[nodiscard]] std::size_t num_lists() const { return lists_.size(); }
  [[nodiscard]] std::int64_t size(std::size_t list) const {
    return static_cast<std::int64_t>(std::uint64_t{lists_[list].num_full} * per_chunk_ +
                                     lists_[list].in_tail);
  }

  void append(std::size_t list, Record const& record) {
    auto& state = lists_[list];
    if (state.in_tail == 0) extend(state);
    std::memcpy(pool_->data(state.tail) + state.in_tail * sizeof(Record), &record, sizeof(Record));
    if (++state.in_tail == per_chunk_) {
      state.in_tail = 0;
      ++state.num_full;
    }
  }

  /// Prefetch hints for a later append(list). Call expect_soon() first: it loads the state of the list. expect_next() reads that state and
  /// loads the memory that append() will write. Lists come in random order, so an append without hints waits for memory twice.
  void expect_soon(std::size_t list) const { __builtin_prefetch(&lists_[list]); }
  void expect_next(std::size_t list) const {
    auto const& state = lists_[list];
    if (state.in_tail != 0) __builtin_prefetch(pool_->data(state.tail) + state.in_tail * sizeof(Record), 1);
  }

  /// Calls visit(span of records) for each contiguous piece of the list.
  template<class Visit>
  void for_each_piece(std::size_t list, Visit&& visit) const {
    auto left = static_cast<std::uint64_t>(size(list));
    for (auto chunk = lists_[list].head; left > 0; chunk = pool_->next(chunk)) {
      auto const count = left < per_chunk_ ? left : std::uint64_t{per_chunk_};
      visit(std::span(reinterpret_cast<Record const*>(pool_->data(chunk)), count));
      left -= count;
    }
  }

  /// records := the list. With `release`, its chunks are returned to the pool and the list is then empty.
  void read(std::size_t list, std::vector<Record>& records) const {
    records.resize(static_cast<std::size_t>(size(list)));
    auto* to = records.data();
    for_each_piece(list, [&](std::span<Record const> piece) {
      std::memcpy(to, piece.data(), piece.size_bytes());
      to += piece.size();
    });
  }
  void drain(std::size_t list, std::vector<Record>& records) {
    read(list, records);
    clear(list);
  }
  void clear(std::size_t list) {
    auto& state = lists_[list];
    for (auto chunk = state.head; chunk != ChunkPool::none;) {
      auto const following = pool_->next(chunk);
      pool_->release(chunk);
      chunk = following;
    }
    state = {};
  }

 private:
  struct List {
    std::uint32_t num_full = 0; // full chunks
    std::uint32_t in_tail = 0;  // records in the last chunk, if that is not full
    ChunkPool::Chunk tail = ChunkPool::none;
    ChunkPool::Chunk head = ChunkPool::none;
  };
  void extend(List& state) {
    auto const chunk = pool_->allocate();
    if (state.head == ChunkPool::none)
      state.head = chunk;
    else
      pool_->next(state.tail) = chunk;
    state.tail = chunk;
  }

  ChunkPool* pool_;
  std::uint32_t per_chunk_;
  std::vector<List> lists_;

 public:
  static constexpr std::size_t bytes_per_list = sizeof(List);
};

} // namespace orthant::graph
