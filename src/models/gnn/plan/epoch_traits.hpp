#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The facts that, together with plan and settings, determine the operations of an epoch: sizes of the graph's blocks and
// numbers of rows that move.

#include "graph/store/store_reader.hpp"
#include "models/gnn/links/link_step.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "models/gnn/plan/network_settings.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/grid/layout.hpp"
#include "pmm/matrix/relayout.hpp"
#include "pmm/rows/row_loss.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace orthant::models {

/// Entries per block if all blocks of a matrix with `count` entries have equally many, rounded up.
[[nodiscard]] std::int64_t even_share(std::int64_t count, pmm::GridShape const& shape,
                                      pmm::Layout const& layout);

/// Facts that, together with plan and settings, determine the operations of an epoch.
struct NetworkEpochTraits {
  bool has_sparse_features = false;
  bool features_have_values = true;   // sparse features: false if they are a pattern
  bool keeps_first_aggregate = false; // A^ F0 is kept from an earlier epoch
  pmm::LossKind loss = pmm::LossKind::softmax;
  LinkCounts links{};                  // of this rank's block, if links are predicted
  std::vector<pmm::Placement> dropped; // blocks of A^ whose entries are dropped, each with its transpose
  int num_dropped_ways = 2;  // value arrays per block: 1 if a block and its transpose share them; else 2
  bool weighs_edges = false; // blocks of A^ have values; else they are patterns
  bool counts_rows = false;  // a batch: rows are counted together with the loss
  std::optional<pmm::CellSizes> cells; // of a batch in the schedule `rows`; nullopt: contiguous ranges
  CountNonzeros num_nonzeros = [](pmm::Placement const&) { return std::int64_t{0}; };
  /// Number of pairs of a relation and a row with such a neighbor in this rank's block of A (pmm/relations/relation_block.hpp).
  CountNonzeros num_pairs = [](pmm::Placement const&) { return std::int64_t{0}; };
  /// Number of pairs of self relations; and their number if the pairs of a type count once for each of its roots.
  struct SelfPairs {
    std::int64_t self_pairs = 0, root_pairs = 0;
  };
  std::function<SelfPairs(pmm::Placement const&)> num_self_pairs = [](pmm::Placement const&) {
    return SelfPairs{};
  };
  /// Pairs and edges in this rank's block of A for attention within relations (pmm/relations/relation_edges.hpp).
  std::function<pmm::RelationEdgeCounts(pmm::Placement const&)> num_relation_edges =
      [](pmm::Placement const&) { return pmm::RelationEdgeCounts{}; };
  /// Numbers of rows that this rank moves for the residual of a layer. They depend on the orders of the vertices, not only on the layouts.
  /// `is_backward`: the move of dF. Default sizes make no call.
  std::function<pmm::RelayoutSizes(NetworkLayerPlan const&, bool is_backward)> residual_sizes =
      [](NetworkLayerPlan const&, bool) { return pmm::RelayoutSizes{}; };
  /// Numbers of rows that this rank moves for the term of the vertex itself.
  std::function<pmm::RelayoutSizes(NetworkLayerPlan const&, bool is_backward)> self_sizes =
      [](NetworkLayerPlan const&, bool) { return pmm::RelayoutSizes{}; };
  /// Numbers of rows of H0 that this rank moves to a site of the plan's teleport.
  std::function<pmm::RelayoutSizes(NetworkPlan const&, pmm::Placement const& site, bool is_backward)>
      teleport_sizes = [](NetworkPlan const&, pmm::Placement const&, bool) { return pmm::RelayoutSizes{}; };
  /// Numbers of rows that this rank moves to the head for layer k of a jump.
  std::function<pmm::RelayoutSizes(NetworkPlan const&, std::size_t k, bool is_backward)> jump_sizes =
      [](NetworkPlan const&, std::size_t, bool) { return pmm::RelayoutSizes{}; };
  pmm::NeededCountsOfAxes needed; // rows exchanged in the schedule `rows`; empty: all
  std::optional<std::int64_t>
      own_features; // numbers of trained features in this rank's shard that a batch reads; nullopt: the mean

  /// Number of non-zeros in this rank's block of the features; nullopt if they are dense.
  [[nodiscard]] std::optional<std::int64_t> num_feature_nonzeros(NetworkPlan const& plan) const {
    return has_sparse_features ? std::optional(num_nonzeros(plan.features())) : std::nullopt;
  }
  /// Numbers in this rank's shard of trained features that are gathered; nullopt: none are trained, or they are read in place.
  [[nodiscard]] std::optional<std::int64_t> num_own_features(pmm::StepPlan const& step,
                                                             NetworkPlan const& plan) const;
};

/// Layout of the outputs of a network that predicts links, and the decoder that scores them.
[[nodiscard]] LinkPlan link_plan_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                    NetworkPlan const& plan, NetworkSettings const& settings);

/// Traits of an epoch after the first on one rank. Assumes that non-zeros are spread evenly over blocks and rows at random over the
/// two orders, and that in the schedule `rows` all rows are exchanged.
[[nodiscard]] NetworkEpochTraits traits_of(graph::StoreFacts const& facts, pmm::GridShape const& shape,
                                           pmm::Coordinates const& coordinates, NetworkPlan const& plan,
                                           NetworkSettings const& settings);

/// Mean counts of a batch of at most `num_vertices` vertices. An edge is in the batch if both its ends are.
[[nodiscard]] graph::StoreFacts facts_of_batch(graph::StoreFacts facts, std::int64_t num_vertices);

/// Lists the passes that drop edges. `draws`: in a training step.
void plan_dropped_edges(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits,
                        bool draws);

// Blocks of A^ that a sampler keeps, and the number of non-zeros in each rank's block on any grid, counted by one process
// that reads the store once.

/// Distinct blocks of the layers in the sampler (sampling/batch_builder.hpp). Blocks are equal if their ranges of rows and columns
/// are; with `shares_transposes` a block and its transpose count once.
[[nodiscard]] std::vector<pmm::Placement> sampled_blocks(pmm::GridShape const& shape,
                                                         pmm::Coordinates const& coordinates,
                                                         graph::StoreFacts const& facts,
                                                         NetworkPlan const& plan, bool shares_transposes);

/// Non-zeros in all blocks of one layer on a grid. Layers with the same placement of A^ share one object.
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
  std::vector<std::int32_t> row_parts_; // [positions] part along these axes
  std::vector<std::int32_t> column_parts_;
  std::vector<std::int64_t> counts_; // [row parts x column parts]
};

/// One object per kind of layer. Cost: a pass over all non-zeros.
[[nodiscard]] std::vector<BlockCounts> count_blocks(graph::GraphStore const& store,
                                                    pmm::GridShape const& shape, NetworkPlan const& plan);

} // namespace orthant::models
