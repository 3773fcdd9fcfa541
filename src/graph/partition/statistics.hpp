#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How A + I falls on the blocks of a grid under each permutation, the distribution of degrees, and what METIS
// would make of the graph: what `orthant partition --stats` prints.

#include "graph/exchange.hpp"
#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/range.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

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

// How near the rows are that a sparse product gathers, under one order of the vertices. A core that multiplies rows of A
// in their order finds a row of the operand in its cache if it gathered that row a little earlier. So A's rows are cut into
// windows of about 4,096 non-zeros (128 numbers of each row are 2 MiB), and
//
//   fresh share  =  distinct columns of all windows  /  non-zeros of all windows
//
// On a mesh in the order of the ids it is 0.33, on a road network 0.60, in a random order nearly 1 on both. Where a graph has more
// than 2^21 non-zeros, only every s-th window is looked at. Columns may be numbered in any order.

class RowReuse {
 public:
  RowReuse(runtime::Communicator const& comm, std::int64_t num_vertices, std::int64_t num_entries);

  /// Counts an entry; each one on one rank. Local.
  void add(std::int64_t row, std::int64_t column);
  /// Sends what was added since the last call where its window is. Collective.
  void deliver();
  /// The fresh share, over the entries of all ranks; 0 if there are none. Collective; once, after deliver().
  [[nodiscard]] double finish();

 private:
  struct Entry {
    std::int64_t window;
    std::int64_t column;
    auto operator<=>(Entry const&) const = default;
  };

  runtime::Communicator const& comm_;
  std::int64_t rows_per_window_;
  std::int64_t window_step_; // every so-many-th window
  Outbox<Entry> outbox_;
  std::vector<Entry> entries_; // of this rank's windows
};

struct PermutationStatistics {
  PermutationKind kind;
  std::array<GridStatistics, 4> grids; // by statistics_grids
  double fresh_share = 1;              // RowReuse
};

struct MetisStatistics {
  std::int64_t num_parts;
  std::int64_t cut;
  std::int64_t volume;
  double balance;
};

struct DegreeStatistics {
  std::int64_t num_isolated = 0;
  std::int64_t median = 0;
  double mean = 0;
  std::int64_t max = 0;
  std::vector<std::int64_t> by_power_of_two; // vertices of degree 0, 1, 2..3, 4..7, ..
};

/// `degrees` of this rank's vertices. Collective.
[[nodiscard]] DegreeStatistics measure_degrees(runtime::Communicator const& comm,
                                               std::span<std::int64_t const> degrees);

struct GraphStatistics {
  DegreeStatistics degrees;
  std::vector<PermutationStatistics> permutations;
  std::vector<MetisStatistics> metis; // empty where the graph is too large for it
};

/// What gathers of sparse products cost in the largest of the 8x8 blocks of `rows`:
///
///   cost  =  largest block / mean block  *  (1 + c * fresh share)
///
/// in units of an even block whose rows are all in a core's cache. c is what a row of 128 numbers from further away costs
/// more: 0.4 from a last-level cache, 2 from memory, which is reckoned with from 2^16 vertices on (32 MiB; a little beyond
/// that it is too much: tests/bench/results/2026-11-25-orders.md).
[[nodiscard]] double gather_cost(PermutationStatistics const& order, std::int64_t num_vertices);

/// The order that fits trainings with the schedule `rows`, of twofold, cluster and pieces: pieces, if on 8x8 blocks owners need
/// so few rows of each other that --gather auto moves only those, and gathers cost at most 10 % more than in the other two.
/// Otherwise twofold, or cluster where its gathers cost at least 5 % less. Only orders that were measured.
[[nodiscard]] PermutationKind choose_order(std::span<PermutationStatistics const> orders,
                                           std::int64_t num_vertices);

/// Tables for people.
[[nodiscard]] std::string format_statistics(GraphStatistics const& statistics, StoreFacts const& facts);

} // namespace orthant::graph
