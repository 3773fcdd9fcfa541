#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Keys and values of the tokens that a transformer has computed, so that a pass over the next token of each sequence computes one row per
// sequence only. They are sharded as attention is: a rank has its sequences and its key-value heads. All ranks that share a head have a
// copy of its keys and values.

#include "models/lm/transformer/shared_key_values.hpp"
#include "pmm/grid/process_grid.hpp"

#include <memory>
#include <span>
#include <vector>

namespace orthant::models {

/// Number of elements of a layer on the rank at `coordinates`.
[[nodiscard]] std::int64_t num_cached_numbers(pmm::GridShape const& shape,
                                              pmm::Coordinates const& coordinates,
                                              TransformerPlan const& plan, std::int64_t capacity);

template<class T>
class KeyValueCache {
 public:
  /// `capacity`: positions of each sequence. Throws UserError if ranks share sequences.
  KeyValueCache(pmm::ProcessGrid const& grid, TransformerPlan const& plan, std::int64_t capacity);

  [[nodiscard]] std::int64_t capacity() const { return capacity_; }
  /// Positions of the first tokens of a pass, [sequences of this rank]; 0 at first.
  [[nodiscard]] runtime::Vector<std::int64_t> const& starts() const { return starts_; }
  /// Sets starts() to a copy of these values. The kernels of the previous pass must be complete.
  void set_starts(std::span<std::int64_t const> starts);
  /// Keys and values of key-value head `group` of this rank, [sequences x capacity][keys | values].
  [[nodiscard]] pmm::Panel<T> panel(std::int64_t layer, std::int64_t group) const;
  /// Scratch memory for the scores of a key-value head: one number per sequence, query head and position.
  [[nodiscard]] runtime::Vector<T> const& scores() const { return scores_; }

 private:
  std::int64_t capacity_, num_groups_, width_; // width: columns of a head's keys and values
  std::vector<runtime::Vector<T>> layers_;
  runtime::Vector<std::int64_t> starts_;
  runtime::Vector<T> scores_;
};

/// Positions of the rows of a pass with sequences of this length: of the cached sequences if it has one token of each, else those in
/// documents; empty: they count from 0 in each sequence. `cache` may be null.
template<class T>
[[nodiscard]] runtime::Vector<std::int64_t> const&
positions_of_pass(std::shared_ptr<KeyValueCache<T>> const& cache, std::int64_t sequence,
                  runtime::Vector<std::int64_t> const& in_documents) {
  return cache && sequence == 1 ? cache->starts() : in_documents;
}

extern template class KeyValueCache<float>;
extern template class KeyValueCache<double>;

} // namespace orthant::models
