#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What decides the operations of an epoch beside plan and settings: counts of the graph's blocks and of rows that move.

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

/// Of `count` entries of a matrix, those of one block if all blocks have as many, rounded up.
[[nodiscard]] std::int64_t even_share(std::int64_t count, pmm::GridShape const& shape,
                                      pmm::Layout const& layout);

/// What decides the operations of an epoch beside plan and settings.
struct NetworkEpochTraits {
  bool has_sparse_features = false;
  bool features_have_values = true;   // sparse ones: else a pattern
  bool keeps_first_aggregate = false; // A^ F0 of an earlier epoch
  pmm::LossKind loss = pmm::LossKind::softmax;
  LinkCounts links{};                  // of this rank's block, if links are predicted
  std::vector<pmm::Placement> dropped; // blocks of A^ whose entries are dropped, each with its transpose
  int num_dropped_ways = 2;            // 1: the transpose shares its values
  bool weighs_edges = false;           // blocks of A^ have values; else they are patterns
  bool counts_rows = false;            // of a batch, together with its loss
  std::optional<pmm::CellSizes> cells; // of a batch between owners; else contiguous
  CountNonzeros num_nonzeros = [](pmm::Placement const&) { return std::int64_t{0}; };
  /// What this rank moves for the residual of a layer: where the row orders put each row decides, not the
  /// layout. `is_backward`: for dF. Residuals of no size make no call.
  std::function<pmm::RelayoutSizes(NetworkLayerPlan const&, bool is_backward)> residual_sizes =
      [](NetworkLayerPlan const&, bool) { return pmm::RelayoutSizes{}; };
  /// The same of rows of the vertex itself, to and from where its aggregate lies.
  std::function<pmm::RelayoutSizes(NetworkLayerPlan const&, bool is_backward)> self_sizes =
      [](NetworkLayerPlan const&, bool) { return pmm::RelayoutSizes{}; };
  /// The same of H0, from where it lies to a site of the plan's teleport.
  std::function<pmm::RelayoutSizes(NetworkPlan const&, pmm::Placement const& site, bool is_backward)>
      teleport_sizes = [](NetworkPlan const&, pmm::Placement const&, bool) { return pmm::RelayoutSizes{}; };
  pmm::NeededCountsOfAxes needed; // rows that move between owners of vertices; empty: all

  /// Non-zeros of this rank's block of the features; empty if they are dense.
  [[nodiscard]] std::optional<std::int64_t> num_feature_nonzeros(NetworkPlan const& plan) const {
    return has_sparse_features ? std::optional(num_nonzeros(plan.features())) : std::nullopt;
  }
};

/// Where the outputs of a network that predicts links lie, and what scores them.
[[nodiscard]] LinkPlan link_plan_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                    NetworkPlan const& plan, NetworkSettings const& settings);

/// Those of an epoch after the first on one rank, if non-zeros fall evenly on blocks, rows at random on the
/// two orders, and all rows move between owners.
[[nodiscard]] NetworkEpochTraits traits_of(graph::StoreFacts const& facts, pmm::GridShape const& shape,
                                           pmm::Coordinates const& coordinates, NetworkPlan const& plan,
                                           NetworkSettings const& settings);

// Which blocks of A^ a sampler has; and how many non-zeros lie in the block of each rank of a grid that need not exist, by reading the store
// once.

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
