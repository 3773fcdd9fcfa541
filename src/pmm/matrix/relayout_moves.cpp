// SPDX-License-Identifier: Apache-2.0
#include "pmm/matrix/relayout_moves.hpp"

#include "runtime/comm/together.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orthant::pmm::detail {
namespace {

using Counts = std::vector<std::int64_t>;

/// Coordinates of a member of this rank's group.
Coordinates member(ProcessGrid const& grid, int group_rank) {
  return member_of(grid.shape(), grid.coordinates(), group_axes, group_rank);
}

/// Moves from the rank at `source` to the rank at `target`, in an order that is the same on both.
std::vector<Move> moves_between(GridShape const& shape, Placement const& from, Coordinates const& source,
                                Placement const& to, Coordinates const& target) {
  std::vector<Move> moves;
  if (from.layout.storage == Storage::replicated &&
      rank_within(shape, source, from.layout.third()) != copy_for(shape, from, to, target, source))
    return moves;
  auto const given = rectangles_of(block_of(shape, source, from), from.layout.storage);
  auto const wanted = rectangles_of(block_of(shape, target, to), to.layout.storage);
  for (auto const& piece : wanted)
    for (auto const& part : given) {
      auto const rows = intersection(piece.rows, part.rows);
      auto const columns = intersection(piece.columns, part.columns);
      if (rows.size() > 0 && columns.size() > 0)
        moves.push_back({rows.begin, rows.begin, rows.size(), columns});
    }
  return moves;
}

/// True if both layouts have the same blocks. Axes of one rank make no difference.
bool has_equal_blocks(GridShape const& shape, Layout const& a, Layout const& b) {
  auto const cutting = [&](AxisSet axes) {
    for (auto const axis : spatial_axes)
      if (shape.size(axis) == 1) axes = axes.without(axis);
    return axes;
  };
  auto const is_equal = [&](AxisSet one, AxisSet other) { return cutting(one) == cutting(other); };
  return is_equal(a.rows, b.rows) && is_equal(a.columns, b.columns) && a.row_granule == b.row_granule &&
         a.column_granule == b.column_granule;
}

/// Moves of the rows that this rank requests from each other rank, in the order of its own rows.
MovesByRank asked_moves(ProcessGrid const& grid, Placement const& from, Placement const& to,
                        Counts const& source_rows) {
  auto const& shape = grid.shape();
  auto const block = block_of(grid, to);
  auto const [row_axes, column_axes] = std::pair(from.layout.rows, from.layout.columns);
  ORTHANT_REQUIRE(std::ssize(source_rows) == block.stored_rows.size(), source_rows.size(),
                  " source rows for ", block.stored_rows.size(), " rows of ", to.to_string());
  MovesByRank moves(static_cast<std::size_t>(grid.shape().size(group_axes)));
  auto const third = from.layout.third();
  for (std::size_t i = 0; i < source_rows.size(); ++i) {
    auto const row = source_rows[i];
    ORTHANT_REQUIRE(0 <= row && row < from.extents.rows, "row ", row, " of ", from.to_string());
    auto const in_row =
        member_of(shape, grid.coordinates(), row_axes,
                  part_holding(shape, row_axes, from.extents.rows, row, from.layout.row_granule));
    for (int part = 0; part < shape.size(column_axes); ++part) {
      auto owner = member_of(shape, member_of(shape, in_row, column_axes, part), third, 0);
      auto whole = from; // placement without sharding, for the whole block of the owner
      whole.layout.storage = Storage::replicated;
      auto const owned = block_of(shape, owner, whole);
      auto const columns = intersection(owned.columns, block.columns);
      if (columns.size() == 0) continue;
      auto const copy = from.layout.storage == Storage::replicated
                            ? copy_for(shape, from, to, grid.coordinates(), owner)
                            : part_holding(shape, third, owned.rows.size(), row - owned.rows.begin);
      owner = member_of(shape, owner, third, copy);
      moves[static_cast<std::size_t>(group_rank_of(shape, owner))].push_back(
          {row, block.stored_rows.begin + static_cast<std::int64_t>(i), 1, columns});
    }
  }
  return moves;
}

/// Exchanges the requests: returns the moves of the rows that each other rank requests from this rank.
MovesByRank exchanged(ProcessGrid const& grid, Placement const& from, Placement const& to,
                      MovesByRank const& asked) {
  auto const& group = grid.group();
  Counts asked_counts;
  Counts asked_rows;
  for (auto const& moves : asked) {
    asked_counts.push_back(std::ssize(moves));
    for (auto const& move : moves)
      asked_rows.push_back(move.source_row);
  }
  Counts given_counts(asked_counts.size());
  runtime::all_to_all(runtime::host, group, asked_counts, given_counts);
  Counts given_rows(
      static_cast<std::size_t>(std::accumulate(given_counts.begin(), given_counts.end(), std::int64_t{0})));
  runtime::all_to_allv(runtime::host, group, asked_rows, asked_counts, given_rows, given_counts);

  MovesByRank given(asked.size());
  auto next = given_rows.begin();
  auto const mine = block_of(grid, from);
  for (int rank = 0; rank < group.size(); ++rank) {
    auto const columns = intersection(mine.columns, block_of(grid.shape(), member(grid, rank), to).columns);
    auto& moves = given[static_cast<std::size_t>(rank)];
    auto const count = given_counts[static_cast<std::size_t>(rank)];
    moves.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      moves.push_back({*next++, 0, 1, columns});
  }
  return given;
}

} // namespace

std::vector<Rectangle> rectangles_of(Block const& block, Storage storage) {
  auto const width = block.columns.size();
  if (block.num_stored == 0) return {};
  if (storage != Storage::flat_sharded) return {{block.stored_rows, block.columns}};
  auto const end = block.first + block.num_stored;
  std::vector<Rectangle> rectangles;
  for (auto place = block.first; place < end;) {
    auto const row = place / width;
    auto const column = place % width;
    auto const num_rows = column == 0 ? std::max<std::int64_t>((end - place) / width, 1) : 1;
    auto const num_columns = std::min(width - column, end - place);
    rectangles.push_back({{block.rows.begin + row, block.rows.begin + row + num_rows},
                          {block.columns.begin + column, block.columns.begin + column + num_columns}});
    place += num_rows * num_columns;
  }
  return rectangles;
}

int copy_for(GridShape const& shape, Placement const& from, Placement const& to, Coordinates const& reader,
             Coordinates const& owner) {
  auto const third = from.layout.third();
  auto const split = from.layout.rows.with(from.layout.columns);
  auto const own_copy = rank_within(shape, reader, third);
  if (rank_within(shape, reader, split) == rank_within(shape, owner, split)) return own_copy;
  auto const other = to.layout.third();
  return (rank_within(shape, reader, other) + shape.size(other) * own_copy) % shape.size(third);
}

int group_rank_of(GridShape const& shape, Coordinates const& coordinates) {
  return rank_within(shape, coordinates, group_axes);
}

bool moves_nothing(GridShape const& shape, Layout const& from, Layout const& to) {
  if (!has_equal_blocks(shape, from, to)) return false;
  return from.storage == Storage::replicated || from.storage == to.storage || shape.size(from.third()) == 1;
}

Moves intersecting_moves(ProcessGrid const& grid, Placement const& from, Placement const& to) {
  auto const is_local = moves_nothing(grid.shape(), from.layout, to.layout);
  Moves moves{MovesByRank(static_cast<std::size_t>(grid.shape().size(group_axes))), {}};
  moves.receives = moves.sends;
  for (int rank = 0; rank < grid.shape().size(group_axes); ++rank) {
    auto const other = member(grid, rank);
    if (is_local && other != grid.coordinates()) continue;
    auto const r = static_cast<std::size_t>(rank);
    moves.sends[r] = moves_between(grid.shape(), from, grid.coordinates(), to, other);
    moves.receives[r] = moves_between(grid.shape(), from, other, to, grid.coordinates());
  }
  return moves;
}

Moves requested_moves(ProcessGrid const& grid, Placement const& from, Placement const& to,
                      std::vector<std::int64_t> const& source_rows) {
  auto receives = runtime::together(grid.group(), [&] { return asked_moves(grid, from, to, source_rows); });
  auto sends = exchanged(grid, from, to, receives);
  return {std::move(sends), std::move(receives)};
}

} // namespace orthant::pmm::detail

namespace orthant::pmm {
namespace {

/// Mean of the rows and columns that one rank sends to another.
struct ExpectedMove {
  double num_rows = 0;
  double share = 0; // share of the target's rows
  std::int64_t num_columns = 0;

  [[nodiscard]] double num_elements() const { return num_rows * static_cast<double>(num_columns); }
};

/// The number of rows in a run: as many whole rows as fit, or a part of one row.
double rows_per_run(bool is_contiguous, std::int64_t num_columns) {
  if (!is_contiguous || num_columns == 0) return 1;
  return static_cast<double>(std::max<std::int64_t>(1, longest_run / num_columns));
}

/// Number of runs for one contiguous piece per row.
double runs_per_row(std::int64_t num_columns) {
  return std::ceil(static_cast<double>(num_columns) / static_cast<double>(longest_run));
}

class ExpectedRelayout {
 public:
  /// `count`: counts the rows of a sample; if empty, all rows are moved.
  ExpectedRelayout(GridShape const& shape, Placement const& from, Placement const& to, RowOrders orders,
                   CountRows const& count)
      : shape_(shape),
        from_(from),
        to_(to),
        orders_(orders),
        count_(count) {}

  /// Mean move from `source` to `target`. Zero if `target` reads these columns from another replica.
  [[nodiscard]] ExpectedMove between(Coordinates const& source, Coordinates const& target) const {
    auto const copy = rank_within(shape_, source, from_.layout.third());
    if (detail::copy_for(shape_, from_, to_, target, source) != copy) return {};
    auto const given = block_of(shape_, source, from_);
    auto const wanted = block_of(shape_, target, to_);
    ExpectedMove move;
    move.num_columns = intersection(given.columns, wanted.columns).size();
    if (move.num_columns == 0) return {};
    auto const num_wanted = num_rows({0, from_.extents.rows}, wanted.rows);
    if (num_wanted == 0) return {};
    move.num_rows = num_rows(given.rows, wanted.rows);
    move.share = move.num_rows / num_wanted;
    return move;
  }

  /// Number of runs that are read. If the orders are independent, consecutive rows of the target are not adjacent in the source.
  [[nodiscard]] double packed_runs(ExpectedMove const& move, bool reads_whole_rows) const {
    auto const follows = reads_whole_rows && orders_ == RowOrders::equal;
    return std::ceil(move.num_rows / rows_per_run(follows, move.num_columns)) *
           runs_per_row(move.num_columns);
  }

  /// Number of runs that are written. Two adjacent rows of the target come from the same source with probability `share`; otherwise, a run
  /// ends between them. No run is longer than longest_run.
  [[nodiscard]] double unpacked_runs(ExpectedMove const& move, bool writes_whole_rows) const {
    auto const most = rows_per_run(writes_whole_rows, move.num_columns);
    auto const pieces = runs_per_row(move.num_columns);
    if (orders_ == RowOrders::equal || move.share == 1) return std::ceil(move.num_rows / most) * pieces;
    return move.num_rows * (1 - move.share) / (1 - std::pow(move.share, most)) * pieces;
  }

 private:
  [[nodiscard]] double num_rows(Range given, Range wanted) const {
    if (count_) return static_cast<double>(count_(given, wanted));
    if (orders_ == RowOrders::equal) return static_cast<double>(intersection(given, wanted).size());
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
  // The same condition as in the constructor of Relayout for sampled rows.
  if (from.layout.row_order == to.layout.row_order && detail::moves_nothing(shape, from.layout, to.layout))
    sizes.communicates = false;
  return sizes;
}

} // namespace orthant::pmm
