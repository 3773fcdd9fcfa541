#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Statistics of `orthant partition --stats`: the distribution of A + I over the blocks of a grid under each permutation, the distribution
// of degrees, and METIS's partitions of the graph.

#include "graph/exchange.hpp"
#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/range.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

// Distribution of the entries of A + I over the blocks of G x G grids under one placement, for both schedules (docs/design.md 2.2):
//
//   pmm3d   block (i, j)   part i of order p1, part j of order p2
//   rows    block (c, a)   p1 is partitioned over c and each part over a, which makes the cells of a grid G x 1 x G:
//                          rows of all cells (*, c), columns of all cells (a, *)
//
// `rows` moves matrix rows along both axes. With --gather needed it moves only the rows that blocks use. The coverage is their fraction of
// the rows of other ranks:
//
//   gather   pairs (v, c'), c' other than the c of v, with an entry in column v and a row of c'     / N (G - 1)
//   sum      pairs (v, a'), a' other than the a of v, with an entry in row v and a column of a'     / N (G - 1)

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

  /// Positions of a vertex.
  struct Positions {
    std::int64_t p1;
    std::int64_t p2;
  };
  /// Counts an entry. Each entry must be added on exactly one rank. Local.
  void add(Positions row, Positions column);
  /// Sends the results of add() since the last call to the owners of the vertices. Collective.
  void deliver();
  /// Results for statistics_grids over the entries of all ranks. Collective; call once, after deliver().
  [[nodiscard]] std::array<GridStatistics, 4> finish();

 private:
  static constexpr std::size_t num_grids = statistics_grids.size();
  /// Bits c' of `gather` and a' of `sum` for the vertex at `position`; the bits of all grids follow one another.
  struct Needed {
    std::int64_t position;
    std::uint32_t gather;
    std::uint32_t sum;
  };

  void tell(Needed const& needed);

  runtime::Communicator const& comm_;
  std::int64_t num_vertices_;
  runtime::Range mine_; // owned positions
  std::array<std::vector<std::int64_t>, num_grids> pmm3d_;
  std::array<std::vector<std::int64_t>, num_grids> rows_;
  std::vector<std::uint32_t> gather_; // for this rank's positions
  std::vector<std::uint32_t> sum_;
  Outbox<Needed> outbox_;
};

// Locality of the rows that a sparse product gathers, under one order of the vertices. A core that multiplies rows of A in order finds a
// row of the operand in its cache if it gathered that row shortly before. Therefore the rows of A are cut into windows of about 4,096
// nonzeros (128 numbers of each row are 2 MiB), and
//
//   fresh share  =  distinct columns of all windows  /  nonzeros of all windows
//
// It is 0.33 on a mesh in the order of the ids, 0.60 on a road network, and nearly 1 on both in a random order. If a graph has more than
// 2^21 nonzeros, only every s-th window is used. Columns may be numbered in any order.

class RowReuse {
 public:
  RowReuse(runtime::Communicator const& comm, std::int64_t num_vertices, std::int64_t num_entries);

  /// Counts an entry. Each entry must be added on exactly one rank. Local.
  void add(std::int64_t row, std::int64_t column);
  /// Sends the entries added since the last call to the owners of their windows. Collective.
  void deliver();
  /// The fresh share over the entries of all ranks; 0 if there are no entries. Collective; call once, after deliver().
  [[nodiscard]] double finish();

 private:
  struct Entry {
    std::int64_t window;
    std::int64_t column;
    auto operator<=>(Entry const&) const = default;
  };

  runtime::Communicator const& comm_;
  std::int64_t rows_per_window_;
  std::int64_t window_step_; // only every window_step_-th window is used
  Outbox<Entry> outbox_;
  std::vector<Entry> entries_; // of this rank's windows
};

struct PermutationStatistics {
  PermutationKind kind;
  std::array<GridStatistics, 4> grids; // by statistics_grids
  double fresh_share = 1;              // from RowReuse
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
  std::vector<std::int64_t> by_power_of_two; // numbers of vertices of degree 0, 1, 2..3, 4..7, ..
};

/// `degrees` are the degrees of this rank's vertices. Collective.
[[nodiscard]] DegreeStatistics measure_degrees(runtime::Communicator const& comm,
                                               std::span<std::int64_t const> degrees);

struct GraphStatistics {
  DegreeStatistics degrees;
  std::vector<PermutationStatistics> permutations;
  std::vector<MetisStatistics> metis; // empty if the graph is too large for METIS
};

/// Cost of the gathers of sparse products in the largest of the 8x8 blocks of `rows`:
///
///   cost  =  largest block / mean block  *  (1 + c * fresh share)
///
/// in units of an even block whose rows are all in a core's cache. c is the additional cost of a row of 128 numbers from farther away: 0.4
/// from the last-level cache, 2 from memory, which is assumed from 2^16 vertices on (32 MiB; slightly above this size that is too high:
/// tests/bench/results/2026-11-25-orders.md).
[[nodiscard]] double gather_cost(PermutationStatistics const& order, std::int64_t num_vertices);

/// The best order for training with the schedule `rows` among the measured orders of twofold, cluster and pieces. It is pieces if, on 8x8
/// blocks, ranks need so few rows of each other that --gather auto moves only those, and gathers cost at most 10 % more than in the other
/// two. Otherwise it is cluster if its gathers cost at least 5 % less than in twofold, else twofold.
[[nodiscard]] PermutationKind choose_order(std::span<PermutationStatistics const> orders,
                                           std::int64_t num_vertices);

/// Formats the statistics as tables for the user.
[[nodiscard]] std::string format_statistics(GraphStatistics const& statistics, StoreFacts const& facts);

} // namespace orthant::graph
