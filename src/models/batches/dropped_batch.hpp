#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Dropout of edges of a batch: values of its sampled blocks and of their transposes, which each pass fills (pmm/neighbors/edge_dropout.hpp).
// A draw is keyed by the batch's dropout key and by the original ids of its ends, so the block and its transpose, which lie apart,
// have the same edges. Self loops lie apart from a sampled block, and stay.

#include "pmm/neighbors/edge_dropout.hpp"
#include "runtime/arrays/growing_vector.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace orthant::models {

/// A block of a batch and its transpose, as products read them.
template<class T>
struct BatchBlocks {
  pmm::SparseBlock<T> forward, adjoint;
};

/// Original ids of the rows and the columns of a block.
struct BlockIds {
  runtime::Vector<std::int64_t> rows, columns;
};

/// Memory of the values, which grows only: of one batch at a time.
template<class T>
class DroppedBatch {
 public:
  /// Another batch begins.
  void begin() {
    for (auto& pair : pairs_)
      pair.is_used = false;
  }
  /// `blocks` with values in this memory. Of the pair of that index, `is_transposed` says that `blocks.forward` is its transpose. The
  /// first call for a pair since begin() adds both to `all`; later ones share their values.
  [[nodiscard]] BatchBlocks<T> with_values(std::size_t index, bool is_transposed, BatchBlocks<T> blocks,
                                           BlockIds const& ids, std::vector<pmm::DroppedBlock<T>>& all);

 private:
  struct Pair {
    std::array<runtime::GrowingVector<T>, 2> memory{
        runtime::GrowingVector<T>("orthant::pmm::dropped_values"),
        runtime::GrowingVector<T>("orthant::pmm::dropped_values")};
    std::array<runtime::Vector<T>, 2> values; // of the block and of its transpose, in the memory
    bool is_used = false;
  };
  std::vector<Pair> pairs_;
};

extern template class DroppedBatch<float>;
extern template class DroppedBatch<double>;

} // namespace orthant::models
