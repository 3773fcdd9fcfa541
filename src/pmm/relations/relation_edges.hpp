#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// This rank's block of a graph with relations, for a softmax over the neighbors of each relation. An edge (i, r, j) leads from the *source
// pair* (r, j) to the *target pair* (i, r):
//
//   source pair   a column j with an edge of relation r in this block; pairs are numbered by relation, then by column
//   target pair   a row i with an edge of relation r in the block of any rank along `columns`; numbered by row, then by relation
//
// Edges are sorted by row, then by relation, then by column. They are therefore sorted by target pair as well, and two patterns share one
// array of values: `of_pairs`, for scores and their softmax, and `of_rows`, for products that sum over the relations of a row at once.

#include "pmm/edges/edge_softmax.hpp"
#include "pmm/relations/relation_block.hpp"

#include <cstdint>
#include <vector>

namespace orthant::pmm {

/// Numbers of pairs and edges of a block, for plans that have no block.
struct RelationEdgeCounts {
  std::int64_t sources = 0, targets = 0, edges = 0;
};

struct RelationEdges {
  EdgeBlock of_pairs;                      // [target pairs x source pairs]
  EdgeBlock of_rows;                       // [rows x source pairs]
  std::int64_t num_columns = 0;            // of the block
  std::vector<std::int64_t> first_sources; // [relations + 1] index of each relation's first source pair
  Vector<LocalColumn> source_columns;      // [source pairs]
  std::vector<std::int64_t> first_targets; // [relations + 1] into the two lists below, which are by relation
  Vector<LocalColumn> target_rows;         // [target pairs]
  Vector<LocalColumn> target_pairs;        // [target pairs] number of the pair
  Vector<std::int64_t> target_ids, source_ids; // keys of dropout; empty without ids

  [[nodiscard]] RelationEdgeCounts counts() const {
    return {of_pairs.num_columns, of_pairs.num_rows, of_pairs.num_edges()};
  }
};

/// Makes the block. `row_ids` and `column_ids`: original ids of rows and columns, or empty if no coefficients are dropped. The columns of a
/// row are split over axis `columns`. Unless the entries list the relations of their rows, target pairs are found over its ranks, with one
/// all_reduce for each relation. Throws Error if there are 2^31 pairs or more, or self relations. Cost: O(entries + relations x rows).
[[nodiscard]] RelationEdges make_relation_edges(ProcessGrid const& grid, AxisSet columns,
                                                TypedEntries const& entries,
                                                std::vector<std::int64_t> const& row_ids = {},
                                                std::vector<std::int64_t> const& column_ids = {});
/// List the arrays of a RelationEdges with `num_rows` rows, and those of ids.
void plan_relation_edges(StepPlan& step, std::int64_t num_rows, RelationEdgeCounts const& counts);
void plan_relation_ids(StepPlan& step, RelationEdgeCounts const& counts);

} // namespace orthant::pmm
