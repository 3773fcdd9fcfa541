#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Lists of which rows go to which rank if each row of a matrix chooses several groups, for example a token its experts. Each
// rank along `owners` owns the same number of groups. The choices change from step to step.
//
//   X [rows x columns]        the rows of this rank, equal on all ranks along `copies`, each of which sends a part
//   Y [arrived x columns]     the rows of the groups that this rank owns, from all ranks along `owners`: ordered by
//                             group, then by the sending rank, then by row
//
// Each rank along `copies` sends only its part, so that no row is sent more than once per choice (duplicate token dropping of
// DeepSpeed-TED). The order of Y does not depend on the number of copies.
//
// Source: Singh et al., DeepSpeed-TED (arXiv 2303.06318), sections 4 and 5.

#include "pmm/cost/step_plan.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::pmm {

/// Axes of a dispatch: the ranks that own the groups, and the ranks that have equal rows.
struct DispatchAxes {
  AxisSet owners = Axis::expert;
  AxisSet copies = Axis::x;
};

/// True if there are several owners or copies, so that rows are communicated. Otherwise Y has the order of the sent rows.
[[nodiscard]] bool travels(GridShape const& shape, DispatchAxes const& axes);

/// Numbers of rows that a rank moves in a step.
struct DispatchSizes {
  std::int64_t num_rows = 0;          // rows of X
  std::int64_t num_own_rows = 0;      // rows of X that this rank sends
  std::int64_t num_choices = 0;       // most groups per row
  std::int64_t num_sent = 0;          // rows sent to all owners, one per choice, also to this rank
  std::int64_t num_sent_away = 0;     // num_sent without the rows to this rank
  std::int64_t num_received = 0;      // rows of this rank's part along copies, received from all owners
  std::int64_t num_received_away = 0; // num_received without the rows from this rank
  std::int64_t num_arrived = 0;       // rows of Y: received by all ranks along copies together

  friend bool operator==(DispatchSizes const&, DispatchSizes const&) = default;
};

/// The maximum of each number.
[[nodiscard]] DispatchSizes largest_of(DispatchSizes const& a, DispatchSizes const& b);

class DispatchLists {
 public:
  /// `grid` must outlive this object. Throws Error unless the number of owners divides num_groups. Not collective.
  DispatchLists(ProcessGrid const& grid, DispatchAxes const& axes, std::int64_t num_groups);

  /// Makes the lists of a step. `groups[i * num_choices + k]` is the k-th group of row i, or -1; it must be equal on all ranks
  /// along copies. Exchanges counts by one all_to_all over owners and one all_gather over copies. Collective over both.
  void set(std::span<std::int32_t const> groups, std::int64_t num_choices);

  [[nodiscard]] ProcessGrid const& grid() const { return *grid_; }
  [[nodiscard]] DispatchAxes const& axes() const { return axes_; }
  [[nodiscard]] Range own_groups() const { return own_groups_; }
  [[nodiscard]] Range own_rows() const { return own_rows_; }
  [[nodiscard]] DispatchSizes const& sizes() const { return sizes_; }

  /// [num_sent] choice i * num_choices + k of each row that this rank sends, ordered by group, then by row.
  [[nodiscard]] std::vector<std::int64_t> const& sent_choices() const { return sent_choices_; }
  /// [own rows x choices] place of each choice in sent_choices(), or -1.
  [[nodiscard]] std::vector<std::int64_t> const& places() const { return places_; }
  /// [num_arrived] place of each row of Y in the received rows of all ranks along copies, one rank after the other.
  [[nodiscard]] std::vector<std::int64_t> const& arrivals() const { return arrivals_; }
  /// [own groups] range of the rows of Y of each group.
  [[nodiscard]] std::vector<Range> const& rows_of_groups() const { return rows_of_groups_; }
  /// Numbers of rows to, and from, each rank along owners; and received by each rank along copies.
  [[nodiscard]] std::vector<std::int64_t> const& send_counts() const { return send_counts_; }
  [[nodiscard]] std::vector<std::int64_t> const& receive_counts() const { return receive_counts_; }
  [[nodiscard]] std::vector<std::int64_t> const& gather_counts() const { return gather_counts_; }

 private:
  void list_sent(std::span<std::int32_t const> groups);
  void list_arrivals(std::span<std::int64_t const> counts);

  ProcessGrid const* grid_;
  DispatchAxes axes_;
  std::int64_t num_groups_;
  Range own_groups_, own_rows_;
  DispatchSizes sizes_;
  std::vector<std::int64_t> counts_of_groups_; // [groups] rows that this rank sends
  std::vector<std::int64_t> sent_choices_, places_, arrivals_;
  std::vector<Range> rows_of_groups_;
  std::vector<std::int64_t> send_counts_, receive_counts_, gather_counts_;
};

/// Adds the collectives of DispatchLists::set() to `step`.
void plan_dispatch_lists(StepPlan& step, DispatchAxes const& axes, std::int64_t num_groups);

/// Sizes if every rank along owners has `num_rows` rows with `num_choices` groups each, and all groups are chosen equally often.
[[nodiscard]] DispatchSizes balanced_sizes(GridShape const& shape, Coordinates const& coordinates,
                                           DispatchAxes const& axes, std::int64_t num_rows,
                                           std::int64_t num_choices);
/// Sizes of the most loaded rank if its groups are chosen `imbalance` times as often as the mean, by all ranks along owners
/// alike. `balanced` comes from balanced_sizes(). `imbalance` must be in [1, num_owners]; otherwise throws Error.
[[nodiscard]] DispatchSizes fullest_sizes(DispatchSizes balanced, int num_owners, double imbalance);

} // namespace orthant::pmm
