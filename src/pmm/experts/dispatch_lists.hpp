#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which rows go where if each row of a matrix is wanted by several of many groups, such as a token by its experts. The
// groups are dealt to the ranks along `owners`, equally many to each. Which groups want a row changes from step to step.
//
//   X [rows x columns]        the rows of this rank, equal on the ranks along `copies`, of which each sends a part
//   Y [arrived x columns]     the rows of the groups that this rank owns, from all ranks along `owners`: group after
//                             group, within a group by the rank that they are from, then by their row
//
// If all ranks along `copies` sent their rows, each row would travel as often as there are copies (duplicate token
// dropping of DeepSpeed-TED). The order of Y does not depend on the number of copies.
//
// Source: Singh et al., DeepSpeed-TED (arXiv 2303.06318), sections 4 and 5.

#include "pmm/cost/step_plan.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::pmm {

struct DispatchAxes {
  AxisSet owners = Axis::expert;
  AxisSet copies = Axis::x;
};

/// Whether rows travel at all. If not, Y has the order of what is sent.
[[nodiscard]] bool travels(GridShape const& shape, DispatchAxes const& axes);

/// Rows that a rank moves in a step.
struct DispatchSizes {
  std::int64_t num_rows = 0;     // of X
  std::int64_t num_own_rows = 0; // of them, that this rank sends
  std::int64_t num_choices = 0;  // groups of a row, at most
  std::int64_t num_sent = 0;     // copies of own rows, to all owners; with those to itself
  std::int64_t num_sent_away = 0;
  std::int64_t num_received = 0; // from all ranks along owners, of this rank's part along copies
  std::int64_t num_received_away = 0;
  std::int64_t num_arrived = 0; // of Y: received by all ranks along copies

  friend bool operator==(DispatchSizes const&, DispatchSizes const&) = default;
};

/// The larger of each number.
[[nodiscard]] DispatchSizes largest_of(DispatchSizes const& a, DispatchSizes const& b);

class DispatchLists {
 public:
  /// `grid` must outlive it. Throws Error if the owners do not divide the groups. Not collective.
  DispatchLists(ProcessGrid const& grid, DispatchAxes const& axes, std::int64_t num_groups);

  /// `groups[i * num_choices + k]` is a group that wants row i, or -1; the same on all ranks along copies. Counts are
  /// exchanged by one all_to_all over owners and one all_gather over copies. Collective over both.
  void set(std::span<std::int32_t const> groups, std::int64_t num_choices);

  [[nodiscard]] ProcessGrid const& grid() const { return *grid_; }
  [[nodiscard]] DispatchAxes const& axes() const { return axes_; }
  [[nodiscard]] Range own_groups() const { return own_groups_; }
  [[nodiscard]] Range own_rows() const { return own_rows_; }
  [[nodiscard]] DispatchSizes const& sizes() const { return sizes_; }

  /// [num_sent] i * num_choices + k of each copy that this rank sends, by group, then by row.
  [[nodiscard]] std::vector<std::int64_t> const& sent_choices() const { return sent_choices_; }
  /// [own rows x choices] the place of each choice in sent_choices(), or -1.
  [[nodiscard]] std::vector<std::int64_t> const& places() const { return places_; }
  /// [num_arrived] the place of each row of Y in what the ranks along copies have received, one after the other.
  [[nodiscard]] std::vector<std::int64_t> const& arrivals() const { return arrivals_; }
  /// [own groups] rows of Y of each group.
  [[nodiscard]] std::vector<Range> const& rows_of_groups() const { return rows_of_groups_; }
  /// Rows to and from each rank along owners; and that each rank along copies has received.
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
  std::vector<std::int64_t> counts_of_groups_; // [groups] copies that this rank sends
  std::vector<std::int64_t> sent_choices_, places_, arrivals_;
  std::vector<Range> rows_of_groups_;
  std::vector<std::int64_t> send_counts_, receive_counts_, gather_counts_;
};

/// Lists what DispatchLists::set() communicates.
void plan_dispatch_lists(StepPlan& step, DispatchAxes const& axes, std::int64_t num_groups);

/// What a rank moves if each of `num_rows` rows of every rank along owners has `num_choices` groups, all equally often.
[[nodiscard]] DispatchSizes balanced_sizes(GridShape const& shape, Coordinates const& coordinates,
                                           DispatchAxes const& axes, std::int64_t num_rows,
                                           std::int64_t num_choices);
/// What the fullest rank moves then if its groups are chosen `imbalance` times as often as the mean, and all ranks along owners choose alike.
/// At least 1, and at most the number of owners (Error).
[[nodiscard]] DispatchSizes fullest_sizes(DispatchSizes balanced, int num_owners, double imbalance);

} // namespace orthant::pmm
