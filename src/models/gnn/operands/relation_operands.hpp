#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Blocks of a graph with relations, read from a store or made of parts of it. Each rank reads only its own rectangles.

#include "graph/store/store_reader.hpp"
#include "models/gnn/operands/owned_adjacency.hpp"
#include "pmm/aggregate/cells.hpp"
#include "pmm/relations/relation_block.hpp"
#include "pmm/relations/relation_edges.hpp"

#include <map>
#include <optional>
#include <vector>

namespace orthant::models {

/// For each row of a block, the column of the same vertex.
struct OwnPlaces {
  std::vector<std::int64_t> columns; // [rows] -1: the vertex is not among the columns
  std::vector<std::int64_t> ids;     // [rows] original ids
};
/// The entries of a block. `root_types`: as in RelationShape; if there are any, vertices of a type t that has roots have the self relation
/// R + t, which with_selves() adds as entries. Not collective.
[[nodiscard]] pmm::TypedEntries entries_of(graph::CsrBlock block, graph::StoreFacts const& facts,
                                           std::vector<std::int64_t> const& root_types);
[[nodiscard]] pmm::TypedEntries with_selves(pmm::TypedEntries const& given, graph::StoreFacts const& facts,
                                            OwnPlaces const& places);

/// Reads this rank's block of the whole graph in the schedule `rows`, with self relations. Collective over the grid's group.
[[nodiscard]] OwnedBlock read_relation_block(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                             pmm::Roles const& roles,
                                             std::vector<std::int64_t> const& root_types);
/// Makes the adjacency of layers with relations from such a block, or a part of it that has all entries of its rows. Collective over the
/// grid's group.
template<class T>
[[nodiscard]] OwnedAdjacency<T> make_relations(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                                               pmm::Roles const& roles,
                                               std::vector<std::int64_t> const& root_types, OwnedBlock block);

/// The operand of attention within relations, in the schedule `rows`. `entries` have no self relations. Without ids of rows and columns, no
/// coefficients can be dropped. Collective over axis a, unless the entries list the relations of their rows.
template<class T>
[[nodiscard]] RelationOperand<T>
make_attention_operand(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts, pmm::Roles const& roles,
                       pmm::CellSizes sizes, pmm::TypedEntries const& entries, IdsOfBlock const& ids);

/// Ids for make_attention_operand(). Not collective.
[[nodiscard]] IdsOfBlock read_attention_ids(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                            pmm::Roles const& roles, bool drops_coefficients);

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
  /// The edges of the whole graph in the schedule `rows`, for attention. Collective over the grid's group.
  [[nodiscard]] RelationOperand<T> get_edges(pmm::Roles const& roles, bool drops_coefficients);

 private:
  pmm::ProcessGrid const& grid_;
  graph::GraphStore const& store_;
  std::map<AdjacencyKey, RelationOperand<T>> blocks_;
  std::optional<RelationOperand<T>> edges_;
};

} // namespace orthant::models
