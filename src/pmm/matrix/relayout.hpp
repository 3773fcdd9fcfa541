#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Redistribution of a matrix to another placement: other axes, another storage, or another order of rows. Residual connections need it,
// because the input and the output of a GNN layer have different axes (docs/design.md 2.2).
//
// If the row orders are equal, every rank receives the intersections of its new piece with the old pieces of the other ranks. If there are
// equal copies, it reads its own, or otherwise one that balances the load (on a cubic grid a permutation of the ranks). If the row orders
// differ, the ranks exchange once, at set-up, lists of the rows that they need. Rows that are a sample of a larger matrix need no such
// exchange: both sides of a message order its rows by their positions in the larger matrix. A relayout is one all_to_all of the
// X x Y x Z group, or no call if every rank already stores its new piece.

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

/// Sizes of a relayout on one rank. They depend on the position of each row in both row orders. Before the orders are known, only their
/// mean is known, because two different orders place rows at random relative to each other.
struct RelayoutSizes {
  // Numbers of contiguous copies: on this rank, to the send buffer, and from the receive buffer.
  std::int64_t num_kept_runs = 0;
  std::int64_t num_packed_runs = 0;
  std::int64_t num_unpacked_runs = 0;
  std::int64_t num_kept = 0;     // elements that stay on this rank
  std::int64_t num_sent = 0;     // elements
  std::int64_t num_received = 0; // elements
  bool communicates = false;     // true if the group makes an all_to_all
};

/// Longest contiguous copy, in elements: long enough for full bandwidth, short enough to distribute over threads.
inline constexpr std::int64_t longest_run = 4096;

/// Lists the copies and the all_to_all of one Relayout::run() with numbers in this format.
void plan_relayout(StepPlan& step, RelayoutSizes const& sizes, Wire format = Wire::native);
/// Lists the arrays of a Relayout.
void plan_relayout_arrays(StepPlan& step, RelayoutSizes const& sizes);

/// Whether rows have the same numbers in `from` and `to`, or are permuted at random.
enum class RowOrders : std::uint8_t { equal, independent };

/// Expected sizes of this rank's Relayout between replicated placements, rounded to whole runs and elements: the mean over all pairs of
/// independent orders. Nearly exact for equal orders. Cost: O(ranks of the group).
[[nodiscard]] RelayoutSizes expected_sizes(GridShape const& shape, Coordinates const& coordinates,
                                           Placement const& from, Placement const& to, RowOrders orders);

/// Returns the number of rows of a sample that are both in the rows `given` of `from` and in the rows `wanted` of `to`.
using CountRows = std::function<std::int64_t(Range given, Range wanted)>;

/// Sizes of a Relayout of sampled rows, which `count` counts. `from` and `to` are placements of the whole matrix. Exact except for the
/// numbers of runs.
[[nodiscard]] RelayoutSizes sampled_sizes(GridShape const& shape, Coordinates const& coordinates,
                                          Placement const& from, Placement const& to, CountRows const& count);

// Messages of numbers. Collectives send 16-bit numbers as bytes, and all others in their own type.

/// Returns `numbers` as the buffer of a message, which borrows the memory: `numbers` must outlive it.
template<class T>
[[nodiscard]] auto as_message(runtime::Vector<T> const& numbers) {
  if constexpr (runtime::is_16_bit<T>)
    return runtime::Vector<std::byte>(reinterpret_cast<std::byte*>(numbers.data()),
                                      numbers.extent(0) * sizeof(T));
  else
    return numbers;
}

/// Converts counts of numbers to counts of elements of such messages.
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

/// Rows and columns that one rank sends to another, with global indices. The sender reads only source_row, and the receiver only
/// target_row.
struct Move {
  std::int64_t source_row = 0;
  std::int64_t target_row = 0;
  std::int64_t num_rows = 0;
  Range columns;
};
using MovesByRank = std::vector<std::vector<Move>>; // by rank within the group
} // namespace detail

/// Positions of sampled rows in the larger matrix, whose balanced blocks determine their ranks. A position is the number of a row of the
/// larger matrix, in the row order of `from` or of `to`. If the orders are equal, both positions are equal.
struct SampledRows {
  std::int64_t num_positions = 0;               // rows of the larger matrix
  std::span<std::int64_t const> from_in_target; // [rows of this rank in `from`] position in the order of `to`
  std::span<std::int64_t const> to_in_target;   // [rows of this rank in `to`] position in the order of `to`
  std::span<std::int64_t const> to_in_source;   // [rows of this rank in `to`] position in the order of `from`
};

/// A plan for redistributing matrices from one placement to another, with its buffers.
template<class T>
class Relayout {
 public:
  /// For placements with equal orders and extents, otherwise throws Error. Any storages. Not collective. Cost: O(ranks + local rows).
  Relayout(ProcessGrid const& grid, Placement const& from, Placement const& to);

  /// For different row orders: row `source_rows[i]` of `from` becomes row stored_rows.begin + i of `to`. `source_rows` has one number for
  /// each row that this rank stores in `to`. Extents and column orders must be equal, and no storage flat-sharded; otherwise throws Error
  /// on all ranks. Collective over the grid's group.
  Relayout(ProcessGrid const& grid, Placement const& from, Placement const& to,
           std::vector<std::int64_t> const& source_rows);

  /// For placements of sampled rows (own_rows set in both), with equal or different row orders. Extents and column orders must be equal,
  /// both storages replicated, and the rows of each rank in its blocks of the larger matrix. Throws Error, possibly on one rank only, for
  /// mismatches that this rank can detect. Not collective. Cost: O(local rows (log local rows + ranks on the column axes)).
  Relayout(ProcessGrid const& grid, Placement const& from, Placement const& to, SampledRows const& rows);

  /// to := from. Collective over the group. The memory of both must not overlap. Enqueues on exec; complete on return on the host. Does not
  /// change the padding of flat shards. Number: T, or a 16-bit number if T is float, which is sent without conversion.
  template<class Number>
  void run(DefaultExec const& exec, DistMatrix<Number> const& from, DistMatrix<Number> const& to) const;

  /// Sizes on this rank. They depend on the position of each row in both orders, and not only on the layouts.
  [[nodiscard]] RelayoutSizes sizes() const;
  /// The collectives of one run.
  [[nodiscard]] std::vector<PlannedCall> calls() const;

 private:
  void plan(detail::MovesByRank const& sends, detail::MovesByRank const& receives);

  ProcessGrid const* grid_;
  Placement from_;
  Placement to_;
  bool is_local_ = false;     // true if no rank communicates
  detail::Runs kept_;         // from -> to, on this rank
  std::int64_t num_kept_ = 0; // elements of kept_
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
