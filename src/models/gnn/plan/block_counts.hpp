#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which blocks of A^ a sampler has; and how many non-zeros lie in the block of each rank of a grid that need not exist, by reading the store
// once.

#include "graph/store/store_reader.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "pmm/grid/layout.hpp"

#include <cstdint>
#include <vector>

namespace orthant::models {

/// The different blocks of the layers as the sampler has them (sampling/batch_builder.hpp): by their ranges of rows and columns, and one
/// for both ways if `shares_transposes`.
[[nodiscard]] std::vector<pmm::Placement> sampled_blocks(pmm::GridShape const& shape,
                                                         pmm::Coordinates const& coordinates,
                                                         graph::StoreFacts const& facts,
                                                         NetworkPlan const& plan, bool shares_transposes);

/// Of one layer on a grid. Layers alike have the same.
class BlockCounts {
 public:
  BlockCounts(pmm::GridShape const& shape, NetworkLayerPlan const& layer);

  [[nodiscard]] bool are_of(pmm::Placement const& adjacency) const { return adjacency == adjacency_; }
  [[nodiscard]] graph::Parity parity() const { return parity_; }
  void add(graph::CsrBlock const& rows);
  [[nodiscard]] std::int64_t of(pmm::Coordinates const& coordinates) const;

 private:
  pmm::GridShape shape_;
  pmm::Placement adjacency_;
  graph::Parity parity_;
  pmm::AxisSet row_axes_;
  pmm::AxisSet column_axes_;
  std::vector<std::int32_t> row_parts_; // of each position the place along these axes
  std::vector<std::int32_t> column_parts_;
  std::vector<std::int64_t> counts_; // [row parts x column parts]
};

/// One for each kind of layer. Costs a pass over all non-zeros.
[[nodiscard]] std::vector<BlockCounts> count_blocks(graph::GraphStore const& store,
                                                    pmm::GridShape const& shape, NetworkPlan const& plan);

} // namespace orthant::models
