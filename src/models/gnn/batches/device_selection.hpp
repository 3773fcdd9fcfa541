#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Selections: the items of a list that have a property, in their order. A selection is a bit per item, and the number of selected items
// before each word of 64 bits:
//
//   number(i) = before[i / 64] + number of bits of its word before bit i % 64
//
// select() makes one by two launches, over words and as a scan; list() visits the selected items. The lanes of a thread share the items of a
// word, so that neighboring lanes read neighboring items. The result depends on the items alone: every run gives the same.

#include "pmm/kernels/list_teams.hpp"

#include <cstdint>

namespace orthant::models {

inline constexpr std::int64_t items_a_word = 64;

/// Number of bits that are set. nvcc leaves out what follows a std::popcount of 64 bits.
[[nodiscard]] KOKKOS_INLINE_FUNCTION runtime::Offset bits_in(std::uint64_t word) {
  return __builtin_popcountll(word);
}

struct Selection {
  runtime::Vector<std::uint64_t> bits;     // [num_words]
  runtime::Vector<runtime::Offset> before; // [num_words + 1]
  std::int64_t num_words = 0;

  [[nodiscard]] static KOKKOS_FUNCTION bool has(std::uint64_t const* bits, std::int64_t i) {
    return (bits[i / items_a_word] >> (i % items_a_word) & 1U) != 0;
  }
  [[nodiscard]] KOKKOS_FUNCTION bool has(std::int64_t i) const { return has(bits.data(), i); }
  /// Selected items before item i, at most 64 num_words.
  [[nodiscard]] KOKKOS_FUNCTION runtime::Offset number(std::int64_t i) const {
    auto const word = i / items_a_word;
    auto const in_word = i % items_a_word;
    if (in_word == 0) return before(word);
    return before(word) + bits_in(bits(word) & ((std::uint64_t{1} << in_word) - 1));
  }
  /// Selected items.
  [[nodiscard]] KOKKOS_FUNCTION runtime::Offset count() const { return before(num_words); }
};

namespace detail {

template<class Items>
struct SelectWord {
  Items items;
  std::uint64_t* bits;

  KOKKOS_FUNCTION void operator()(pmm::RowTeam const& team, std::int64_t word) const {
    auto const first = word * items_a_word;
    auto const start = items.start(first);
    std::uint64_t found = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, static_cast<int>(items_a_word)),
        [&](int i, std::uint64_t& some) {
          if (items.selects(first + i, start)) some |= std::uint64_t{1} << i;
        },
        Kokkos::BOr<std::uint64_t>(found));
    Kokkos::single(Kokkos::PerThread(team), [&] { bits[word] = found; });
  }
};

struct NumberWords {
  using value_type = runtime::Offset;
  Selection selection;
  std::int64_t* count; // or null

  KOKKOS_FUNCTION void operator()(std::int64_t word, runtime::Offset& sum, bool is_final) const {
    if (is_final) selection.before(word) = sum;
    if (is_final && count != nullptr && word == selection.num_words) *count = sum;
    if (word < selection.num_words) sum += bits_in(selection.bits(word));
  }
};

template<class Items>
struct ListWord {
  Items items;
  Selection selection;

  KOKKOS_FUNCTION void operator()(pmm::RowTeam const& team, std::int64_t word) const {
    auto const bits = selection.bits(word);
    if (bits == 0) return;
    auto const first = word * items_a_word;
    auto const start = items.start(first);
    auto const before = selection.before(word);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, static_cast<int>(items_a_word)), [&](int i) {
      auto const below = (std::uint64_t{1} << i) - 1;
      if ((bits >> i & 1U) != 0) items.list(first + i, start, before + bits_in(bits & below));
    });
  }
};

} // namespace detail

/// Selects among 64 selection.num_words items; *count := the number of selected ones. Enqueues on exec; does not fence. Items has
///
///   start(first)           what the lanes of a word know in advance; `first` is the word's first item
///   selects(item, start)   whether the item is selected; false for items that do not exist
template<class Items>
void select(runtime::DefaultExec const& exec, char const* label, Items const& items,
            Selection const& selection, std::int64_t* count = nullptr) {
  pmm::for_each_row(exec, label, selection.num_words, items_a_word,
                    detail::SelectWord<Items>{items, selection.bits.data()});
  Kokkos::parallel_scan(
      "orthant::models::number_selected",
      Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, selection.num_words + 1),
      detail::NumberWords{selection, count});
}

/// Calls items.list(item, start, number) for every selected item. Enqueues on exec; does not fence.
template<class Items>
void list(runtime::DefaultExec const& exec, char const* label, Items const& items,
          Selection const& selection) {
  pmm::for_each_row(exec, label, selection.num_words, items_a_word,
                    detail::ListWord<Items>{items, selection});
}

} // namespace orthant::models
