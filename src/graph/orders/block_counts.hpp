#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How the entries of A + I fall on the blocks of G x G grids under one placement, for both schedules
// (docs/design.md 2.2):
//
//   pmm3d   block (i, j)   part i of order p1, part j of order p2
//   rows    block (c, a)   p1 is cut over c and each part over a, which makes the cells of a grid G x 1 x G:
//                          rows of all cells (*, c), columns of all cells (a, *)
//
// `rows` moves rows along both axes. With --gather needed it moves those that blocks touch: their share of the
// rows of other ranks is the coverage,
//
//   gather   pairs (v, c'), c' other than that of v, with an entry in column v and a row of c'     / N (G - 1)
//   sum      pairs (v, a'), a' other than that of v, with an entry in row v and a column of a'     / N (G - 1)

#include "graph/exchange.hpp"
#include "runtime/range.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace orthant::graph {

inline constexpr std::array<std::int64_t, 4> statistics_grids{2, 4, 8, 16};

struct GridStatistics {
  double pmm3d_balance = 1; // largest block / mean block
  double rows_balance = 1;
  double gather_coverage = 0;
  double sum_coverage = 0;
};

class BlockCounts {
 public:
  BlockCounts(runtime::Communicator const& comm, std::int64_t num_vertices);

  /// Where a vertex stands.
  struct Positions {
    std::int64_t p1;
    std::int64_t p2;
  };
  /// Counts an entry; each one on one rank. Local.
  void add(Positions row, Positions column);
  /// Tells the owners of vertices what was added since the last call. Collective.
  void deliver();
  /// By statistics_grids, over the entries of all ranks. Collective; once, after deliver().
  [[nodiscard]] std::array<GridStatistics, 4> finish();

 private:
  static constexpr std::size_t num_grids = statistics_grids.size();
  /// Bits c' of `gather` and a' of `sum`, of all grids one after the other, for the vertex at `position`.
  struct Needed {
    std::int64_t position;
    std::uint32_t gather;
    std::uint32_t sum;
  };

  void tell(Needed const& needed);

  runtime::Communicator const& comm_;
  std::int64_t num_vertices_;
  runtime::Range mine_; // positions
  std::array<std::vector<std::int64_t>, num_grids> pmm3d_;
  std::array<std::vector<std::int64_t>, num_grids> rows_;
  std::vector<std::uint32_t> gather_; // of this rank's positions
  std::vector<std::uint32_t> sum_;
  Outbox<Needed> outbox_;
};

} // namespace orthant::graph
