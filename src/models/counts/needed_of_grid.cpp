// SPDX-License-Identifier: Apache-2.0
#include "models/counts/needed_of_grid.hpp"

#include <utility>

namespace orthant::models {
namespace {

/// Numbers of rows by block and slab along an axis, for each place on the other axis of the blocks.
class SlabCounts {
 public:
  SlabCounts(int num_outer, int num_ranks)
      : num_ranks_(num_ranks),
        counts_(static_cast<std::size_t>(num_outer) * static_cast<std::size_t>(num_ranks) *
                static_cast<std::size_t>(num_ranks)) {}

  [[nodiscard]] std::int64_t& at(int outer, int block, int slab) {
    return counts_[static_cast<std::size_t>((outer * num_ranks_ + block) * num_ranks_ + slab)];
  }
  /// Of the slabs of other ranks than the block's.
  [[nodiscard]] std::int64_t of_others() const {
    auto sum = std::int64_t{0};
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      auto const place = static_cast<int>(i);
      if (place / num_ranks_ % num_ranks_ != place % num_ranks_) sum += counts_[i];
    }
    return sum;
  }

 private:
  int num_ranks_;
  std::vector<std::int64_t> counts_;
};

/// Where the vertices lie: in which slab along an axis, and where along the other axis of the blocks.
struct VertexPlaces {
  std::vector<int> const& outer; // [n]
  std::vector<int> const& slab;  // [n]
  int num_outer = 1;
  int num_ranks = 1; // of the axis
};

/// `meets`: [n x num_ranks] whether the block at each place touches a vertex.
NeededOfGrid::Counts count_touched(VertexPlaces const& places, std::vector<bool> const& meets,
                                   pmm::Gather gather) {
  auto const num_ranks = places.num_ranks;
  SlabCounts touched(places.num_outer, num_ranks);
  SlabCounts all(places.num_outer, num_ranks);
  for (std::size_t i = 0; i < places.slab.size(); ++i)
    for (int block = 0; block < num_ranks; ++block) {
      ++all.at(places.outer[i], block, places.slab[i]);
      if (meets[i * static_cast<std::size_t>(num_ranks) + static_cast<std::size_t>(block)])
        ++touched.at(places.outer[i], block, places.slab[i]);
    }
  NeededOfGrid::Counts table(
      static_cast<std::size_t>(places.num_outer),
      std::vector<std::optional<pmm::NeededCounts>>(static_cast<std::size_t>(num_ranks)));
  auto const num_others = all.of_others();
  auto const coverage =
      num_others == 0 ? 1 : static_cast<double>(touched.of_others()) / static_cast<double>(num_others);
  if (num_others == 0 || (gather == pmm::Gather::automatic && coverage >= pmm::most_coverage)) return table;
  for (int outer = 0; outer < places.num_outer; ++outer)
    for (int own = 0; own < num_ranks; ++own) {
      pmm::NeededCounts counts;
      for (int other = 0; other < num_ranks; ++other) {
        counts.touched.push_back(touched.at(outer, own, other));
        counts.asked.push_back(touched.at(outer, other, own));
      }
      table[static_cast<std::size_t>(outer)][static_cast<std::size_t>(own)] = std::move(counts);
    }
  return table;
}

} // namespace

pmm::Gather gather_of(NetworkPlan const& plan, pmm::Gather asked) {
  return plan.layers.front().reads_edges() ? pmm::Gather::all : asked;
}

pmm::NeededCountsOfAxes NeededOfGrid::of(pmm::Coordinates const& coordinates, pmm::Roles const& roles) const {
  if (over_c.empty()) return {};
  auto const a = static_cast<std::size_t>(coordinates.along(roles.a));
  auto const c = static_cast<std::size_t>(coordinates.along(roles.c));
  return {over_c[a][c], over_a[c][a]};
}

TouchedRows::TouchedRows(pmm::GridShape const& shape, pmm::Roles const& roles, std::int64_t num_vertices,
                         std::span<std::int64_t const> positions)
    : num_a_(static_cast<std::size_t>(shape.size(roles.a))),
      num_c_(static_cast<std::size_t>(shape.size(roles.c))),
      meets_c_(positions.size() * num_c_),
      meets_a_(positions.size() * num_a_) {
  outer_.reserve(positions.size());
  slab_.reserve(positions.size());
  for (auto const position : positions) {
    auto const cell = pmm::part_holding(shape, pmm::group_axes, num_vertices, position);
    auto const owner = pmm::member_of(shape, {}, pmm::group_axes, cell);
    outer_.push_back(owner.along(roles.a));
    slab_.push_back(owner.along(roles.c));
  }
}

NeededOfGrid TouchedRows::needed(pmm::Gather gather) const {
  auto const num_a = static_cast<int>(num_a_);
  auto const num_c = static_cast<int>(num_c_);
  return {count_touched({outer_, slab_, num_a, num_c}, meets_c_, gather),
          count_touched({slab_, outer_, num_c, num_a}, meets_a_, gather)};
}

} // namespace orthant::models
