#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The same matrix in another placement: other axes, another storage, or another order of rows. Residual
// connections need it, because a GNN layer's input and output lie on different planes (docs/design.md 2.2).
//
// If the orders are equal, every rank takes the intersections of its new piece with the others' old pieces. Of equal
// copies it takes its own, or else one that spreads the load (on a cubic grid a permutation of the ranks). If the row
// orders differ, the ranks agree once, at set-up, which rows each of them asks of each other rank. Rows that are a
// sample of a larger matrix need no agreement: both sides of a message list its rows by their positions in the larger
// matrix.
// A relayout makes one all_to_all of the X x Y x Z group, or no call if every piece is in its place already.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace orthant::pmm {

// How much a relayout moves on one rank. It depends on where the row orders put each row, so it is exact only once
// the orders are known. Before that only its mean is known, because rows lie at random under two different orders.

struct RelayoutSizes {
  // Contiguous copies on this rank, into the send buffer, and out of the receive buffer.
  std::int64_t num_kept_runs = 0;
  std::int64_t num_packed_runs = 0;
  std::int64_t num_unpacked_runs = 0;
  std::int64_t num_kept = 0;     // elements that this rank copies to itself
  std::int64_t num_sent = 0;     // elements
  std::int64_t num_received = 0; // elements
  bool communicates = false;     // on any rank of the group
};

/// The longest contiguous copy, in elements: long enough to stream, short enough to share out.
inline constexpr std::int64_t longest_run = 4096;

/// Lists the copies and the all_to_all of one run, of numbers in that format; and the arrays of a Relayout.
void plan_relayout(StepPlan& step, RelayoutSizes const& sizes, Wire format = Wire::native);
void plan_relayout_arrays(StepPlan& step, RelayoutSizes const& sizes);

/// Whether rows of `from` have the same numbers in `to`, or lie there at random.
enum class RowOrders : std::uint8_t { equal, independent };

/// The sizes of this rank's Relayout between replicated placements, rounded to whole runs and elements: the
/// mean over all pairs of independent orders, nearly exact for equal ones. Cost: O(ranks of the group).
[[nodiscard]] RelayoutSizes expected_sizes(GridShape const& shape, Coordinates const& coordinates,
                                           Placement const& from, Placement const& to, RowOrders orders);

/// How many rows of a sample lie both in these rows of `from` and in these rows of `to`.
using CountRows = std::function<std::int64_t(Range given, Range wanted)>;

/// The same of sampled rows, which are counted; placements are those of the whole matrix. Exact but for the numbers of runs.
[[nodiscard]] RelayoutSizes sampled_sizes(GridShape const& shape, Coordinates const& coordinates,
                                          Placement const& from, Placement const& to, CountRows const& count);

// Numbers as collectives take them: those of 16 bits travel as bytes, all others as they are.

/// Shares the memory, and does not keep it alive.
template<class T>
[[nodiscard]] auto as_message(runtime::Vector<T> const& numbers) {
  if constexpr (runtime::is_16_bit<T>)
    return runtime::Vector<std::byte>(reinterpret_cast<std::byte*>(numbers.data()),
                                      numbers.extent(0) * sizeof(T));
  else
    return numbers;
}

/// The counts of such messages from counts of numbers.
template<class T>
[[nodiscard]] std::vector<std::int64_t> message_counts(std::vector<std::int64_t> counts) {
  if constexpr (runtime::is_16_bit<T>)
    for (auto& count : counts)
      count *= static_cast<std::int64_t>(sizeof(T));
  return counts;
}

namespace detail {
/// Contiguous copies: lengths[i] elements from sources[i] to targets[i].
struct Runs {
  Vector<std::int64_t> sources;
  Vector<std::int64_t> targets;
  Vector<std::int64_t> lengths;
};

/// Rows and columns that one rank gives another; global indices, each rank reads its own side's.
struct Move {
  std::int64_t source_row = 0;
  std::int64_t target_row = 0;
  std::int64_t num_rows = 0;
  Range columns;
};
using MovesByRank = std::vector<std::vector<Move>>; // in the group's order
} // namespace detail

/// Where sampled rows lie in the larger matrix, whose balanced blocks own them. Positions are its rows,
/// numbered in the order of `from` or of `to`. If the orders are equal, the two are the same.
struct SampledRows {
  std::int64_t num_positions = 0;               // rows of the larger matrix
  std::span<std::int64_t const> from_in_target; // [rows of this rank in `from`] position in the order of `to`
  std::span<std::int64_t const> to_in_target;   // [rows of this rank in `to`] position in the order of `to`
  std::span<std::int64_t const> to_in_source;   // [rows of this rank in `to`] position in the order of `from`
};

template<class T>
class Relayout {
 public:
  /// Between equal orders and extents (Error). Any storages. Not collective; costs O(ranks + local rows).
  Relayout(ProcessGrid const& grid, Placement const& from, Placement const& to);

  /// Between row orders: row `source_rows[i]` of `from` becomes row stored_rows.begin + i of `to`; one number
  /// for each row that this rank stores in `to`. Extents and column orders must be equal, storages replicated
  /// or row-sharded (Error, on all ranks). Collective over the grid's group.
  Relayout(ProcessGrid const& grid, Placement const& from, Placement const& to,
           std::vector<std::int64_t> const& source_rows);

  /// Between placements of sampled rows (own_rows set in both), of equal row orders or not. Extents and
  /// column orders must be equal, storages replicated, and each rank's rows lie in its blocks of the larger
  /// matrix (Error, on the rank that sees it). No communication; costs O(local rows (log + ranks on the
  /// column axes)).
  Relayout(ProcessGrid const& grid, Placement const& from, Placement const& to, SampledRows const& rows);

  /// to := from. Collective over the group. No overlap. Enqueues on exec; on the host complete on return.
  /// Padding of flat shards is left as it is. Number: T, or a 16-bit number if T is float, which travels
  /// as it is.
  template<class Number>
  void run(DefaultExec const& exec, DistMatrix<Number> const& from, DistMatrix<Number> const& to) const;

  /// What this rank moves. It depends on where the row orders put each row, not on layouts alone.
  [[nodiscard]] RelayoutSizes sizes() const;
  /// The collectives of one run.
  [[nodiscard]] std::vector<PlannedCall> calls() const;

 private:
  void plan(detail::MovesByRank const& sends, detail::MovesByRank const& receives);

  ProcessGrid const* grid_;
  Placement from_;
  Placement to_;
  bool is_local_ = false;     // on every rank
  detail::Runs kept_;         // from -> to, on this rank
  std::int64_t num_kept_ = 0; // elements
  detail::Runs packed_;       // from -> send buffer
  detail::Runs unpacked_;     // receive buffer -> to
  std::vector<std::int64_t> send_counts_;
  std::vector<std::int64_t> receive_counts_;
  Vector<T> send_;
  Vector<T> receive_;
};

extern template class Relayout<float>;
extern template class Relayout<double>;

} // namespace orthant::pmm
