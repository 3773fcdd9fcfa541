#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What one rank does in an epoch of a GCN on the full graph, listed from the plan alone
// (pmm/cost/step_plan.hpp): no communicator, no array, no graph. The prediction of bytes and the bare products
// of `bench epoch` are sums over this list; a test holds it against the ledgers and the products of a real
// epoch on every grid.

#include "models/plan/gcn_settings.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/rows/row_loss.hpp"

#include <array>
#include <functional>
#include <optional>

namespace orthant::models {

/// Non-zeros of A^: entries of the store, and the self loops that are added.
[[nodiscard]] std::int64_t num_adjacency_entries(graph::StoreFacts const& facts);
/// Of `count` entries of a matrix, those of one block if all blocks have as many, rounded up.
[[nodiscard]] std::int64_t even_share(std::int64_t count, pmm::GridShape const& shape,
                                      pmm::Layout const& layout);

/// What decides the operations of an epoch beside plan and settings.
struct GcnEpochTraits {
  bool has_sparse_features = false;
  bool keeps_first_aggregate = false; // A^ F0 of an earlier epoch
  pmm::LossKind loss = pmm::LossKind::softmax;
  /// Non-zeros of this rank's block of A^, or of sparse features, of that placement.
  std::function<std::int64_t(pmm::Placement const&)> num_nonzeros = [](pmm::Placement const&) {
    return std::int64_t{0};
  };
  /// Bytes that this rank sends for the residual of a layer, or nothing if that makes no call: where the row
  /// orders put each row decides, not the layout. `is_backward`: for dF.
  std::function<std::optional<std::int64_t>(GcnLayerPlan const&, bool is_backward)> residual_bytes =
      [](GcnLayerPlan const&, bool) { return std::nullopt; };
  pmm::NeededCountsOfAxes needed; // rows that move between owners of vertices: the graph decides, too
};

/// Those of an epoch after the first, if non-zeros fall evenly on blocks and all rows move; without the calls
/// of residuals.
[[nodiscard]] GcnEpochTraits traits_of(graph::StoreFacts const& facts, pmm::GridShape const& shape,
                                       GcnPlan const& plan, GcnSettings const& settings);

/// Lists forward pass, loss, backward pass and the norms of the update, as Gcn, RowLoss and ParameterUpdate
/// run them.
void plan_epoch(pmm::StepPlan& step, GcnPlan const& plan, GcnSettings const& settings,
                GcnEpochTraits const& traits);

/// Bytes that the ledgers of x, y and z count in an epoch after the first, without evaluation: summed over
/// the ranks of the grid, none of which need exist. Residuals travel over the whole group, which is not
/// counted here. Softmax loss. T is the scalar of training. Cost: O(ranks x layers x
/// the largest axis).
template<class T>
[[nodiscard]] std::array<std::int64_t, 3>
predict_epoch_bytes(pmm::GridShape const& shape, GcnPlan const& plan, GcnSettings const& settings);

} // namespace orthant::models
