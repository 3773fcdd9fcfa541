#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Blocks of a graph with relations, read from a store. Each rank reads only its own rectangles.

#include "graph/store/store_reader.hpp"
#include "models/gnn/operands/graph_operands.hpp"
#include "pmm/aggregate/cells.hpp"
#include "pmm/relations/relation_block.hpp"
#include "pmm/relations/relation_edges.hpp"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace orthant::models {

/// The block of a layer. Copies share memory.
template<class T>
struct RelationOperand {
  std::shared_ptr<pmm::RelationBlock<T> const> block;
  pmm::CellSizes sizes;                              // schedule `rows`
  std::shared_ptr<pmm::RelationEdges const> edges{}; // for attention, in place of `block`
  runtime::Vector<T>
      types{}; // for attention with biases: [own rows x types of vertices] 1 for the type of the row
};

/// Reads blocks, one per pair of axes and parity; layers share them.
template<class T>
class RelationOperands {
 public:
  /// Both must outlive this object.
  RelationOperands(pmm::ProcessGrid const& grid, graph::GraphStore const& store)
      : grid_(grid),
        store_(store) {}

  /// The block with this placement, in the schedule `pmm3d`. `root_types`: as in RelationShape. Collective over the grid's group.
  [[nodiscard]] RelationOperand<T> get(pmm::Placement const& placement,
                                       std::vector<std::int64_t> const& root_types, bool is_even);
  /// The block of the whole graph in the schedule `rows`. Collective over the grid's group.
  [[nodiscard]] RelationOperand<T> get(pmm::Roles const& roles, std::vector<std::int64_t> const& root_types);
  /// The edges of the whole graph in the schedule `rows`, for attention. `needs_ids`: coefficients are dropped. Collective over the grid's
  /// group.
  [[nodiscard]] RelationOperand<T> get_edges(pmm::Roles const& roles, bool needs_ids);

 private:
  pmm::ProcessGrid const& grid_;
  graph::GraphStore const& store_;
  std::map<AdjacencyKey, RelationOperand<T>> blocks_;
  std::optional<RelationOperand<T>> edges_;
};

} // namespace orthant::models
