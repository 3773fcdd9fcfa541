#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The rows that move in an epoch on the full graph, counted in the graph for a grid that need not exist. One process reads the store
// once. traits_of() has their mean, or all rows.

#include "graph/store/store_reader.hpp"
#include "models/gnn/plan/epoch_traits.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "pmm/aggregate/needed_rows.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace orthant::models {

// How many rows move where the two orders of the vertices decide it: counted, in place of the mean (epoch_traits.hpp).

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

// Which rows move between the owners of a grid that need not exist (pmm/aggregate/needed_rows.hpp). One process sees every entry of
// the matrix once.

/// Which rows move between owners: all of them for layers that read single edges, else as it is asked.
[[nodiscard]] pmm::Gather gather_of(NetworkPlan const& plan, pmm::Gather asked);

/// Empty if all rows are exchanged.
struct NeededOfGrid {
  using Counts = std::vector<std::vector<std::optional<pmm::NeededCounts>>>;
  Counts over_c; // [a, c] by the places of a rank along these axes; none: all rows
  Counts over_a; // [c, a]

  /// Those of one rank.
  [[nodiscard]] pmm::NeededCountsOfAxes of(pmm::Coordinates const& coordinates,
                                           pmm::Roles const& roles) const;
};

class TouchedRows {
 public:
  /// `positions`: in order p1 of the vertices that are rows and columns, of `num_vertices` that are cut into cells.
  TouchedRows(pmm::GridShape const& shape, pmm::Roles const& roles, std::int64_t num_vertices,
              std::span<std::int64_t const> positions);

  /// There is an entry in this row and column, by the places of their vertices in `positions`.
  void meet(std::size_t row, std::size_t column) {
    meets_c_[column * num_c_ + static_cast<std::size_t>(slab_[row])] = true;
    meets_a_[row * num_a_ + static_cast<std::size_t>(outer_[column])] = true;
  }
  /// The counts, after meet() has seen every entry.
  [[nodiscard]] NeededOfGrid needed(pmm::Gather gather) const;

 private:
  std::size_t num_a_, num_c_;
  std::vector<int> outer_, slab_; // [n] the owner's place along axis a, and along c
  // Whether a vertex is a column of an entry whose row lies in part c, or a row of one whose column lies in part a.
  std::vector<bool> meets_c_; // [n x num_c]
  std::vector<bool> meets_a_; // [n x num_a]
};

/// Accuracy of a predicted number of sent bytes.
enum class Exactness : std::uint8_t {
  exact,
  at_most, // all rows are listed, and training moves those that are needed
  about,   // a mean
};
/// "exact", "at most" or "about". Throws UserError for another word.
[[nodiscard]] Exactness parse_exactness(std::string_view word);
[[nodiscard]] std::string_view name_of(Exactness exactness);

/// What the sent bytes of lists are if they are made by traits_of(), without counts.
[[nodiscard]] Exactness exactness_without_counts(pmm::GridShape const& shape, NetworkPlan const& plan,
                                                 NetworkSettings const& settings);

class CountedGraph {
 public:
  /// Reads only what is needed to count the rows that move. `settings.gather` says which rows owners exchange. Cost: a pass over all non-zeros, or over
  /// both orders. Not collective; throws as the store does.
  CountedGraph(graph::GraphStore const& store, pmm::GridShape const& shape, NetworkPlan const& plan,
               NetworkSettings const& settings);

  /// Those of traits_of(), with the rows that move on this rank.
  [[nodiscard]] NetworkEpochTraits traits_of(pmm::Coordinates const& coordinates) const;
  /// Of the sent bytes of lists by these traits.
  [[nodiscard]] Exactness exactness() const;

 private:
  graph::GraphStore const& store_;
  pmm::GridShape shape_;
  NetworkPlan const& plan_;
  NetworkSettings const& settings_;
  VertexOrders orders_; // empty: no relayouts
  NeededOfGrid needed_;
};

} // namespace orthant::models
