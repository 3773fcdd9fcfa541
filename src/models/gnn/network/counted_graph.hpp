#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Exact numbers of rows that move in an epoch on the full graph, for any grid, without its processes. One process reads the
// store once and counts. traits_of() in epoch_traits.hpp, by contrast, uses the mean number of rows, or all rows.

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

// Relayouts: the two orders of the vertices decide how many rows move.

/// Positions of a set of vertices in both orders.
struct VertexOrders {
  VertexOrders() = default;
  /// The two arguments are positions of the same vertices, ascending in p1.
  VertexOrders(std::vector<std::int64_t> positions_in_p1, std::vector<std::int64_t> positions_in_p2);

  [[nodiscard]] std::int64_t size() const { return std::ssize(in_p1); }
  /// Number of vertices within a range of an order, and within both ranges.
  [[nodiscard]] std::int64_t count(pmm::IndexOrder order, runtime::Range range) const;
  [[nodiscard]] std::int64_t count_both(pmm::IndexOrder first_order, runtime::Range first,
                                        pmm::IndexOrder second_order, runtime::Range second) const;

  std::vector<std::int64_t> in_p1;    // [n] ascending
  std::vector<std::int64_t> p2_of_p1; // [n] positions of the same vertices
  std::vector<std::int64_t> in_p2;    // [n] ascending
};

/// all: the full graph, whose relayouts call a collective even if no row moves. sampled: no row, no call.
enum class RelayoutRows : std::uint8_t { all, sampled };

/// Counts the rows that the rank at `coordinates` moves for residuals, self terms and H0, if only the vertices in `orders` exist. `plan` is
/// the plan of the whole graph. The counts are exact; the numbers of runs are estimates. Cost: O(vertices of the rank) per relayout.
void set_counted_relayouts(NetworkEpochTraits& traits, pmm::GridShape const& shape,
                           pmm::Coordinates const& coordinates, NetworkPlan const& plan,
                           VertexOrders const& orders, RelayoutRows rows);

/// Whether a network on this plan moves rows by relayouts.
[[nodiscard]] bool has_relayouts(NetworkPlan const& plan);

// Needed rows (pmm/aggregate/needed_rows.hpp): the rows that ranks of the schedule `rows` exchange if they have an entry at their
// destination. One process goes through all entries of the matrix once.

/// Counts for all ranks of a grid. Empty if all rows are exchanged.
struct NeededOfGrid {
  using Counts = std::vector<std::vector<std::optional<pmm::NeededCounts>>>;
  Counts over_c; // [a, c] by the coordinates along these axes; nullopt: all rows
  Counts over_a; // [c, a]

  /// Counts of one rank.
  [[nodiscard]] pmm::NeededCountsOfAxes of(pmm::Coordinates const& coordinates,
                                           pmm::Roles const& roles) const;
};

class TouchedRows {
 public:
  /// `positions`: positions in order p1 of the vertices that are rows and columns. The cells partition `num_vertices` positions.
  TouchedRows(pmm::GridShape const& shape, pmm::Roles const& roles, std::int64_t num_vertices,
              std::span<std::int64_t const> positions);

  /// Records an entry. `row` and `column` are indices into `positions`.
  void meet(std::size_t row, std::size_t column) {
    meets_c_[column * num_c_ + static_cast<std::size_t>(slab_[row])] = true;
    meets_a_[row * num_a_ + static_cast<std::size_t>(outer_[column])] = true;
  }
  /// Returns the counts after meet() has been called for every entry.
  [[nodiscard]] NeededOfGrid needed(pmm::Gather gather) const;

 private:
  std::size_t num_a_, num_c_;
  std::vector<int> outer_, slab_; // [n] coordinate of the owner along axis a, and along c
  // Whether a vertex is the column of an entry whose row belongs to part c, or the row of an entry whose column belongs to part a.
  std::vector<bool> meets_c_; // [n x num_c]
  std::vector<bool> meets_a_; // [n x num_a]
};

/// Accuracy of a predicted number of sent bytes.
enum class Exactness : std::uint8_t {
  exact,
  at_most, // all rows are listed, but training moves only the needed ones
  about,   // a mean
};
/// Accepts "exact", "at most" or "about". Throws UserError for other words.
[[nodiscard]] Exactness parse_exactness(std::string_view word);
[[nodiscard]] std::string_view name_of(Exactness exactness);

/// Exactness of the sent bytes of lists made with the traits of traits_of(), without counted rows.
[[nodiscard]] Exactness exactness_without_counts(pmm::GridShape const& shape, NetworkPlan const& plan,
                                                 NetworkSettings const& settings);

class CountedGraph {
 public:
  /// Counts the rows that move. `settings.gather` says which rows ranks exchange. Not collective. Cost: one pass over all non-zeros,
  /// or over both orders; nothing is read if no count is needed. Throws Error if the store cannot be read.
  CountedGraph(graph::GraphStore const& store, pmm::GridShape const& shape, NetworkPlan const& plan,
               NetworkSettings const& settings);

  /// Traits of an epoch with the numbers of rows that this rank moves.
  [[nodiscard]] NetworkEpochTraits traits_of(pmm::Coordinates const& coordinates) const;
  /// Exactness of the sent bytes of lists made with these traits.
  [[nodiscard]] Exactness exactness() const;

 private:
  graph::GraphStore const& store_;
  pmm::GridShape shape_;
  NetworkPlan const& plan_;
  NetworkSettings const& settings_;
  VertexOrders orders_; // empty if there are no relayouts
  NeededOfGrid needed_;
};

} // namespace orthant::models
