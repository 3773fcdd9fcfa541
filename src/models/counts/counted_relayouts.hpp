#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How many rows move where the two orders of the vertices decide it: counted, in place of the mean (epoch_traits.hpp).

#include "models/plan/epoch_traits.hpp"

#include <cstdint>
#include <vector>

namespace orthant::models {

/// Where vertices lie in both orders.
struct VertexOrders {
  VertexOrders() = default;
  /// Positions of the same vertices, ascending in p1.
  VertexOrders(std::vector<std::int64_t> positions_in_p1, std::vector<std::int64_t> positions_in_p2);

  [[nodiscard]] std::int64_t size() const { return std::ssize(in_p1); }
  /// How many vertices lie in a range of an order, and in both ranges.
  [[nodiscard]] std::int64_t count(pmm::IndexOrder order, runtime::Range range) const;
  [[nodiscard]] std::int64_t count_both(pmm::IndexOrder first_order, runtime::Range first,
                                        pmm::IndexOrder second_order, runtime::Range second) const;

  std::vector<std::int64_t> in_p1;    // [n] ascending
  std::vector<std::int64_t> p2_of_p1; // [n] of the same vertices
  std::vector<std::int64_t> in_p2;    // [n] ascending
};

/// Whose relayouts: those of the full graph make their call also if no row moves.
enum class RelayoutRows : std::uint8_t { all, sampled };

/// What the rank at `coordinates` moves of these vertices for residuals, rows of the vertex itself and H0. `plan`: of the whole graph.
/// Exact but for the numbers of runs. Cost: O(vertices of the rank) per relayout.
void set_counted_relayouts(NetworkEpochTraits& traits, pmm::GridShape const& shape,
                           pmm::Coordinates const& coordinates, NetworkPlan const& plan,
                           VertexOrders const& orders, RelayoutRows rows);

/// Whether a network on this plan has such relayouts.
[[nodiscard]] bool has_relayouts(NetworkPlan const& plan);

} // namespace orthant::models
