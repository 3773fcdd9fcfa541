#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Many growing lists in one pool of small chunks. A drained list's chunks serve other lists at once, so edges
// that turn into matrix entries need the memory of the larger of the two, not of both.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace orthant::graph {

class ChunkPool {
 public:
  using Chunk = std::uint32_t;
  static constexpr std::size_t chunk_bytes = 1024; // half of one is lost a list, on average
  static constexpr Chunk none = 0xffffffffU;

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
    return slabs_[chunk / chunks_per_slab].get() + (chunk % chunks_per_slab) * chunk_bytes;
  }
  [[nodiscard]] Chunk& next(Chunk chunk) { return next_[chunk]; }
  [[nodiscard]] std::int64_t reserved_bytes() const {
    return static_cast<std::int64_t>(slabs_.size() * chunks_per_slab * chunk_bytes);
  }

 private:
  static constexpr std::size_t chunks_per_slab = 1024;
  void grow() {
    slabs_.push_back(std::make_unique_for_overwrite<std::byte[]>(chunks_per_slab * chunk_bytes));
    auto const first = next_.size();
    next_.resize(first + chunks_per_slab);
    for (auto i = next_.size(); i-- > first;)
      release(static_cast<Chunk>(i));
  }

  std::vector<std::unique_ptr<std::byte[]>> slabs_;
  std::vector<Chunk> next_; // of the same list, or of the free ones
  Chunk free_ = none;
};

/// Lists of records, each kept in the order of appending. Borrows the pool.
template<class Record>
class RecordLists {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) <= 64);

 public:
  RecordLists(ChunkPool& pool, std::size_t num_lists) : pool_(&pool), lists_(num_lists) {}

  [[nodiscard]] std::size_t num_lists() const { return lists_.size(); }
  [[nodiscard]] std::int64_t size(std::size_t list) const { return lists_[list].count; }

  void append(std::size_t list, Record const& record) {
    auto& state = lists_[list];
    auto const place = static_cast<std::uint64_t>(state.count) % per_chunk;
    if (place == 0) extend(state);
    std::memcpy(pool_->data(state.tail) + place * sizeof(Record), &record, sizeof(Record));
    ++state.count;
  }

  /// Hints that append(list) is to come: soon, and (its list's state being there) very soon. Lists are many
  /// and met in random order, so that an append otherwise waits for memory twice.
  void expect_soon(std::size_t list) const { __builtin_prefetch(&lists_[list]); }
  void expect_next(std::size_t list) const {
    auto const& state = lists_[list];
    auto const place = static_cast<std::uint64_t>(state.count) % per_chunk;
    if (place != 0) __builtin_prefetch(pool_->data(state.tail) + place * sizeof(Record), 1);
  }

  /// Calls visit(span of records) over the list, piece by piece.
  template<class Visit>
  void for_each_piece(std::size_t list, Visit&& visit) const {
    auto left = static_cast<std::uint64_t>(lists_[list].count);
    for (auto chunk = lists_[list].head; left > 0; chunk = pool_->next(chunk)) {
      auto const count = left < per_chunk ? left : per_chunk;
      visit(std::span(reinterpret_cast<Record const*>(pool_->data(chunk)), count));
      left -= count;
    }
  }

  /// records := the list; with `release` its chunks go back to the pool and it is empty.
  void read(std::size_t list, std::vector<Record>& records) const {
    records.resize(static_cast<std::size_t>(lists_[list].count));
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
  static constexpr std::uint64_t per_chunk = ChunkPool::chunk_bytes / sizeof(Record);
  struct List {
    std::int64_t count = 0;
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
  std::vector<List> lists_;
};

} // namespace orthant::graph
