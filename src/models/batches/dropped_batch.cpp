// SPDX-License-Identifier: Apache-2.0
#include "models/batches/dropped_batch.hpp"

#include "runtime/arrays/part_of.hpp"

#include <algorithm>

namespace orthant::models {

template<class T>
BatchBlocks<T> DroppedBatch<T>::with_values(std::size_t index, bool is_transposed, BatchBlocks<T> blocks,
                                            BlockIds const& ids, std::vector<pmm::DroppedBlock<T>>& all) {
  pairs_.resize(std::max(pairs_.size(), index + 1));
  auto& pair = pairs_[index];
  auto const forward = is_transposed ? std::size_t{1} : std::size_t{0};
  auto const add = [&](std::size_t which, pmm::SparseBlock<T> const& block, auto const& rows,
                       auto const& columns) {
    auto const num_nonzeros = block.csr.num_nonzeros();
    pair.values[which] = runtime::part_of(pair.memory[which].reserve(num_nonzeros), 0, num_nonzeros);
    static_cast<void>(with_dropped_values(block, pair.values[which], rows, columns, all));
  };
  if (!pair.is_used) {
    add(forward, blocks.forward, ids.rows, ids.columns);
    add(1 - forward, blocks.adjoint, ids.columns, ids.rows);
    pair.is_used = true;
  }
  blocks.forward.csr.values = pair.values[forward];
  blocks.adjoint.csr.values = pair.values[1 - forward];
  return blocks;
}

template class DroppedBatch<float>;
template class DroppedBatch<double>;

} // namespace orthant::models
