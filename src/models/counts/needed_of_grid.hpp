#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which rows move between the owners of a grid that need not exist (pmm/aggregate/needed_rows.hpp). One process sees every entry of
// the matrix once.

#include "models/plan/gcn_plan.hpp"
#include "pmm/aggregate/needed_rows.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace orthant::models {

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

} // namespace orthant::models
