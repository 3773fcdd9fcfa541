// SPDX-License-Identifier: Apache-2.0
#include "pmm/matrix/relayout_sizes.hpp"

#include "pmm/matrix/relayout_moves.hpp"

#include <algorithm>
#include <cmath>

namespace orthant::pmm {
namespace {

/// What one rank gives another on average.
struct ExpectedMove {
  double num_rows = 0;
  double share = 0; // of the target's rows
  std::int64_t num_columns = 0;

  [[nodiscard]] double num_elements() const { return num_rows * static_cast<double>(num_columns); }
};

/// The number of rows in a run: as many whole rows as fit, or a part of one row.
double rows_per_run(bool is_contiguous, std::int64_t num_columns) {
  if (!is_contiguous || num_columns == 0) return 1;
  return static_cast<double>(std::max<std::int64_t>(1, longest_run / num_columns));
}

/// Copies of one contiguous piece per row.
double runs_per_row(std::int64_t num_columns) {
  return std::ceil(static_cast<double>(num_columns) / static_cast<double>(longest_run));
}

class ExpectedRelayout {
 public:
  /// `count`: of a sample; none: all rows are moved.
  ExpectedRelayout(GridShape const& shape, Placement const& from, Placement const& to, RowOrders orders,
                   CountRows const& count)
      : shape_(shape),
        from_(from),
        to_(to),
        orders_(orders),
        count_(count) {}

  /// Nothing if `target` reads those columns from another replica.
  [[nodiscard]] ExpectedMove between(Coordinates const& source, Coordinates const& target) const {
    auto const copy = rank_within(shape_, source, from_.layout.third());
    if (detail::copy_for(shape_, from_, to_, target, source) != copy) return {};
    auto const given = block_of(shape_, source, from_);
    auto const wanted = block_of(shape_, target, to_);
    ExpectedMove move;
    move.num_columns = detail::intersection(given.columns, wanted.columns).size();
    if (move.num_columns == 0) return {};
    auto const num_wanted = num_rows({0, from_.extents.rows}, wanted.rows);
    if (num_wanted == 0) return {};
    move.num_rows = num_rows(given.rows, wanted.rows);
    move.share = move.num_rows / num_wanted;
    return move;
  }

  /// If the orders are independent, rows that are read one after the other do not lie side by side.
  [[nodiscard]] double packed_runs(ExpectedMove const& move, bool reads_whole_rows) const {
    auto const follows = reads_whole_rows && orders_ == RowOrders::equal;
    return std::ceil(move.num_rows / rows_per_run(follows, move.num_columns)) *
           runs_per_row(move.num_columns);
  }

  /// Two neighbors among the target's rows come from the same source with probability `share`. If they do not, a
  /// run ends between them; and no run is longer than the longest.
  [[nodiscard]] double unpacked_runs(ExpectedMove const& move, bool writes_whole_rows) const {
    auto const most = rows_per_run(writes_whole_rows, move.num_columns);
    auto const pieces = runs_per_row(move.num_columns);
    if (orders_ == RowOrders::equal || move.share == 1) return std::ceil(move.num_rows / most) * pieces;
    return move.num_rows * (1 - move.share) / (1 - std::pow(move.share, most)) * pieces;
  }

 private:
  [[nodiscard]] double num_rows(Range given, Range wanted) const {
    if (count_) return static_cast<double>(count_(given, wanted));
    if (orders_ == RowOrders::equal) return static_cast<double>(detail::intersection(given, wanted).size());
    return static_cast<double>(wanted.size()) * static_cast<double>(given.size()) /
           static_cast<double>(from_.extents.rows);
  }

  GridShape const& shape_;
  Placement const& from_;
  Placement const& to_;
  RowOrders orders_;
  CountRows const& count_;
};

std::int64_t rounded(double number) {
  return static_cast<std::int64_t>(std::llround(number));
}

RelayoutSizes sizes_of(GridShape const& shape, Coordinates const& coordinates, Placement const& from,
                       Placement const& to, RowOrders orders, CountRows const& count) {
  ExpectedRelayout const relayout(shape, from, to, orders, count);
  auto const source_width = block_of(shape, coordinates, from).columns.size();
  auto const target_width = block_of(shape, coordinates, to).columns.size();
  auto kept = 0.0, packed = 0.0, unpacked = 0.0, stayed = 0.0, sent = 0.0, received = 0.0;
  for (int rank = 0; rank < shape.size(group_axes); ++rank) {
    auto const other = member_of(shape, coordinates, group_axes, rank);
    auto const in = relayout.between(other, coordinates);
    if (other == coordinates) {
      auto const is_whole = in.num_columns == source_width && in.num_columns == target_width;
      kept += relayout.packed_runs(in, is_whole);
      stayed += in.num_elements();
      continue;
    }
    auto const out = relayout.between(coordinates, other);
    packed += relayout.packed_runs(out, out.num_columns == source_width);
    unpacked += relayout.unpacked_runs(in, in.num_columns == target_width);
    sent += out.num_elements();
    received += in.num_elements();
  }
  return {rounded(kept), rounded(packed),   rounded(unpacked),         rounded(stayed),
          rounded(sent), rounded(received), shape.size(group_axes) > 1};
}

} // namespace

void plan_relayout(StepPlan& step, RelayoutSizes const& sizes, Wire format) {
  constexpr std::int64_t bytes_per_run = 3 * sizeof(std::int64_t); // source, target, length
  auto const add_copy = [&](std::string_view name, std::int64_t num_runs, std::int64_t num_elements) {
    auto const bytes = step.wire_bytes(num_elements, format);
    step.add_pass({name, bytes + num_runs * bytes_per_run, bytes});
  };
  add_copy("relayout/pack", sizes.num_packed_runs, sizes.num_sent);
  add_copy("relayout/keep", sizes.num_kept_runs, sizes.num_kept);
  if (sizes.communicates)
    step.add_call(runtime::Operation::all_to_all, group_axes, step.wire_bytes(sizes.num_sent, format));
  add_copy("relayout/unpack", sizes.num_unpacked_runs, sizes.num_received);
}

void plan_relayout_arrays(StepPlan& step, RelayoutSizes const& sizes) {
  for (auto const num_runs : {sizes.num_kept_runs, sizes.num_packed_runs, sizes.num_unpacked_runs})
    for (int list = 0; list < 3; ++list) // sources, targets, lengths
      step.add_array("orthant::pmm::relayout", num_runs * std::int64_t{sizeof(std::int64_t)});
  step.add_array("orthant::pmm::relayout/send", step.scalar_bytes(sizes.num_sent));
  step.add_array("orthant::pmm::relayout/receive", step.scalar_bytes(sizes.num_received));
}

RelayoutSizes expected_sizes(GridShape const& shape, Coordinates const& coordinates, Placement const& from,
                             Placement const& to, RowOrders orders) {
  return sizes_of(shape, coordinates, from, to, orders, {});
}

RelayoutSizes sampled_sizes(GridShape const& shape, Coordinates const& coordinates, Placement const& from,
                            Placement const& to, CountRows const& count) {
  auto sizes = sizes_of(shape, coordinates, from, to, RowOrders::independent, count);
  // As such a Relayout (relayout.hpp).
  if (from.layout.row_order == to.layout.row_order && detail::moves_nothing(shape, from.layout, to.layout))
    sizes.communicates = false;
  return sizes;
}

} // namespace orthant::pmm
