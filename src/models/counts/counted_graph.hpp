#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The rows that move in an epoch on the full graph, counted in the graph for a grid that need not exist. One process reads the store
// once. traits_of() has their mean, or all rows.

#include "graph/store/store_reader.hpp"
#include "models/counts/counted_relayouts.hpp"
#include "models/counts/needed_of_grid.hpp"

#include <cstdint>
#include <string_view>

namespace orthant::models {

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
