// SPDX-License-Identifier: Apache-2.0
#include "pmm/relayout.hpp"

#include "runtime/together.hpp"

#include <algorithm>
#include <numeric>

namespace orthant::pmm {
namespace {

using detail::Move;
using detail::MovesByRank;
using detail::Runs;
using Counts = std::vector<std::int64_t>;

struct Rectangle {
  Range rows;
  Range columns;
};

Range intersection(Range a, Range b) {
  auto const begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// What a piece covers, in the order of its memory: at most three rectangles, of which a flat shard's first
/// and last are parts of a row.
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

/// The part of a balanced cut that holds `index`.
std::int64_t part_of(std::int64_t count, std::int64_t num_parts, std::int64_t index) {
  auto const small = count / num_parts;
  auto const num_larger = count % num_parts;
  auto const in_larger = num_larger * (small + 1);
  return index < in_larger ? index / (small + 1) : num_larger + (index - in_larger) / small;
}

/// Which of the equal copies of a replicated block the rank at `reader` takes, as a coordinate along the
/// third axis: its own if it has one, else one that spreads the readers over the copies.
int copy_for(GridShape const& shape, Placement const& from, Placement const& to, Coordinates const& reader,
             Coordinates const& owner) {
  auto const third = from.layout.third();
  if (reader.along(from.layout.rows) == owner.along(from.layout.rows) &&
      reader.along(from.layout.columns) == owner.along(from.layout.columns))
    return reader.along(third);
  auto const other = to.layout.third();
  return (reader.along(other) + shape.size(other) * reader.along(third)) % shape.size(third);
}

/// Coordinates of a rank of this rank's group.
Coordinates member(ProcessGrid const& grid, int group_rank) {
  auto coordinates = coordinates_of(grid.shape(), group_rank);
  coordinates.data = grid.coordinate(Axis::data);
  return coordinates;
}
int group_rank_of(GridShape const& shape, Coordinates coordinates) {
  coordinates.data = 0;
  return rank_of(shape, coordinates);
}

/// What the rank at `source` gives to the one at `target`, in an order that both derive.
std::vector<Move> moves_between(GridShape const& shape, Placement const& from, Coordinates const& source,
                                Placement const& to, Coordinates const& target) {
  std::vector<Move> moves;
  if (from.layout.storage == Storage::replicated &&
      source.along(from.layout.third()) != copy_for(shape, from, to, target, source))
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

/// Whether the blocks of both placements are cut alike: axes of one rank cut nothing.
bool has_equal_blocks(GridShape const& shape, Layout const& a, Layout const& b) {
  auto const is_equal = [&](Axis one, Axis other) {
    return one == other || (shape.size(one) == 1 && shape.size(other) == 1);
  };
  return is_equal(a.rows, b.rows) && is_equal(a.columns, b.columns);
}

/// Whether every rank has already what it will store.
bool moves_nothing(GridShape const& shape, Layout const& from, Layout const& to) {
  if (!has_equal_blocks(shape, from, to)) return false;
  return from.storage == Storage::replicated || from.storage == to.storage || shape.size(from.third()) == 1;
}

struct HostRuns {
  static constexpr std::int64_t longest = 4096; // elements: long enough to stream, short enough to share out

  Counts sources;
  Counts targets;
  Counts lengths;

  void add(std::int64_t source, std::int64_t target, std::int64_t length) {
    auto const continues = !lengths.empty() && sources.back() + lengths.back() == source &&
                           targets.back() + lengths.back() == target && lengths.back() + length <= longest;
    if (continues) {
      lengths.back() += length;
      return;
    }
    for (std::int64_t done = 0; done < length; done += longest) {
      sources.push_back(source + done);
      targets.push_back(target + done);
      lengths.push_back(std::min(longest, length - done));
    }
  }
};

Vector<std::int64_t> to_device(Counts const& values) {
  Vector<std::int64_t> view(
      Kokkos::view_alloc(std::string("orthant::pmm::relayout"), Kokkos::WithoutInitializing), values.size());
  Kokkos::deep_copy(view, Kokkos::View<std::int64_t const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
                              values.data(), values.size()));
  return view;
}

Runs to_device(HostRuns const& runs) {
  return {to_device(runs.sources), to_device(runs.targets), to_device(runs.lengths)};
}

/// Place of a global element in the memory of a piece.
std::int64_t place_of(Block const& block, std::int64_t row, std::int64_t column) {
  return (row - block.rows.begin) * block.columns.size() + column - block.columns.begin - block.first;
}

template<class T>
struct CopyRuns {
  using TeamPolicy = Kokkos::TeamPolicy<DefaultExec>;

  Runs runs;
  Vector<T> source;
  Vector<T> target;

  KOKKOS_FUNCTION void operator()(typename TeamPolicy::member_type const& team) const {
    auto const run = static_cast<std::size_t>(team.league_rank());
    T const* const from = source.data() + runs.sources(run);
    T* const to = target.data() + runs.targets(run);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, runs.lengths(run)),
                         [&](std::int64_t i) { to[i] = from[i]; });
  }
};

template<class T>
void copy(DefaultExec const& exec, Runs const& runs, Vector<T> const& source, Vector<T> const& target) {
  auto const num_runs = static_cast<int>(runs.lengths.extent(0));
  if (num_runs == 0) return;
  Kokkos::parallel_for("orthant::pmm::relayout",
                       typename CopyRuns<T>::TeamPolicy(exec, num_runs, Kokkos::AUTO, 32),
                       CopyRuns<T>{runs, source, target});
}

void require_same_matrix(Placement const& from, Placement const& to, bool has_row_map) {
  auto const is_same = from.extents == to.extents && from.layout.column_order == to.layout.column_order &&
                       (has_row_map || from.layout.row_order == to.layout.row_order);
  ORTHANT_REQUIRE(is_same, "relayout changes axes and storage", has_row_map ? " and the order of rows" : "",
                  ", nothing else; from ", from.to_string(), " to ", to.to_string());
}

/// Rows that this rank asks of each other one, for its own rows in ascending order.
MovesByRank requested_moves(ProcessGrid const& grid, Placement const& from, Placement const& to,
                            Counts const& source_rows) {
  auto const& shape = grid.shape();
  auto const block = block_of(grid, to);
  auto const [row_axis, column_axis] = std::pair(from.layout.rows, from.layout.columns);
  ORTHANT_REQUIRE(std::ssize(source_rows) == block.stored_rows.size(), source_rows.size(),
                  " source rows for ", block.stored_rows.size(), " rows of ", to.to_string());
  MovesByRank moves(static_cast<std::size_t>(grid.group().size()));
  auto owner = grid.coordinates();
  for (std::size_t i = 0; i < source_rows.size(); ++i) {
    auto const row = source_rows[i];
    ORTHANT_REQUIRE(0 <= row && row < from.extents.rows, "row ", row, " of ", from.to_string());
    owner.along(row_axis) = static_cast<int>(part_of(from.extents.rows, shape.size(row_axis), row));
    for (int part = 0; part < shape.size(column_axis); ++part) {
      owner.along(column_axis) = part;
      owner.along(from.layout.third()) = 0;
      auto const owned = block_of(shape, owner, {{from.layout.rows, from.layout.columns}, from.extents});
      auto const columns = intersection(owned.columns, block.columns);
      if (columns.size() == 0) continue;
      owner.along(from.layout.third()) =
          from.layout.storage == Storage::replicated
              ? copy_for(shape, from, to, grid.coordinates(), owner)
              : static_cast<int>(
                    part_of(owned.rows.size(), shape.size(from.layout.third()), row - owned.rows.begin));
      moves[static_cast<std::size_t>(group_rank_of(shape, owner))].push_back(
          {row, block.stored_rows.begin + static_cast<std::int64_t>(i), 1, columns});
    }
  }
  return moves;
}

/// Tells every rank which rows are asked of it.
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
    for (std::int64_t i = 0; i < given_counts[static_cast<std::size_t>(rank)]; ++i)
      given[static_cast<std::size_t>(rank)].push_back({*next++, 0, 1, columns});
  }
  return given;
}

/// Indices of `positions`, ascending by position.
std::vector<std::size_t> sorted_by_position(std::span<std::int64_t const> positions) {
  std::vector<std::size_t> order(positions.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return positions[i]; });
  return order;
}

/// Every position is in part `part` of the balanced cut.
void require_in_part(std::span<std::int64_t const> positions, Range part, Placement const& placement) {
  for (auto const position : positions)
    ORTHANT_REQUIRE(part.contains(position), "a sampled row at ", position,
                    " of the larger matrix, in the part ", part.begin, "..", part.end, "; ",
                    placement.to_string());
}

/// The ranks that hold a part of a row, and their columns.
template<class Visit>
void for_each_column_part(GridShape const& shape, Placement const& placement, Coordinates at,
                          Visit const& visit) {
  auto const axis = placement.layout.columns;
  for (int part = 0; part < shape.size(axis); ++part) {
    at.along(axis) = part;
    visit(at, runtime::balanced_range(placement.extents.columns, shape.size(axis), part));
  }
}

/// Rows of this rank that others take, by their positions in the order of `to`.
MovesByRank sampled_sends(ProcessGrid const& grid, Placement const& from, Placement const& to,
                          SampledRows const& rows) {
  auto const& shape = grid.shape();
  auto const me = grid.coordinates();
  auto const block = block_of(grid, from);
  auto const row_axis = to.layout.rows;
  auto const third = to.layout.third();
  MovesByRank moves(static_cast<std::size_t>(grid.group().size()));
  auto target = me;
  for (auto const i : sorted_by_position(rows.from_in_target)) {
    target.along(row_axis) =
        static_cast<int>(part_of(rows.num_positions, shape.size(row_axis), rows.from_in_target[i]));
    auto const row = block.rows.begin + static_cast<std::int64_t>(i);
    for (int copy = 0; copy < shape.size(third); ++copy) {
      target.along(third) = copy;
      for_each_column_part(shape, to, target, [&](Coordinates const& reader, Range wanted) {
        auto const columns = intersection(block.columns, wanted);
        if (columns.size() > 0 && copy_for(shape, from, to, reader, me) == me.along(from.layout.third()))
          moves[static_cast<std::size_t>(group_rank_of(shape, reader))].push_back({row, 0, 1, columns});
      });
    }
  }
  return moves;
}

/// Rows of this rank in `to` and whom it takes them from, by their positions in the order of `to`.
MovesByRank sampled_receives(ProcessGrid const& grid, Placement const& from, Placement const& to,
                             SampledRows const& rows) {
  auto const& shape = grid.shape();
  auto const block = block_of(grid, to);
  auto const row_axis = from.layout.rows;
  auto const third = from.layout.third();
  MovesByRank moves(static_cast<std::size_t>(grid.group().size()));
  auto source = grid.coordinates();
  for (auto const i : sorted_by_position(rows.to_in_target)) {
    source.along(row_axis) =
        static_cast<int>(part_of(rows.num_positions, shape.size(row_axis), rows.to_in_source[i]));
    auto const row = block.rows.begin + static_cast<std::int64_t>(i);
    for_each_column_part(shape, from, source, [&](Coordinates owner, Range given) {
      auto const columns = intersection(block.columns, given);
      if (columns.size() == 0) return;
      owner.along(third) = copy_for(shape, from, to, grid.coordinates(), owner);
      moves[static_cast<std::size_t>(group_rank_of(shape, owner))].push_back({0, row, 1, columns});
    });
  }
  return moves;
}

void require_sampled(ProcessGrid const& grid, Placement const& from, Placement const& to,
                     SampledRows const& rows) {
  auto const is_sampled = [](Placement const& placement) {
    return placement.own_rows && !placement.own_columns && placement.layout.storage == Storage::replicated;
  };
  ORTHANT_REQUIRE(is_sampled(from) && is_sampled(to),
                  "sampled rows are replicated, with own rows and balanced columns; from ", from.to_string(),
                  " to ", to.to_string());
  auto const num_source_rows = from.own_rows->range.size();
  auto const num_target_rows = to.own_rows->range.size();
  ORTHANT_REQUIRE(std::ssize(rows.from_in_target) == num_source_rows &&
                      std::ssize(rows.to_in_target) == num_target_rows &&
                      std::ssize(rows.to_in_source) == num_target_rows,
                  "positions of ", rows.from_in_target.size(), ", ", rows.to_in_target.size(), " and ",
                  rows.to_in_source.size(), " rows, from ", from.to_string(), " to ", to.to_string());
  auto const part_along = [&](Axis axis) {
    return runtime::balanced_range(rows.num_positions, grid.size(axis), grid.coordinate(axis));
  };
  require_in_part(rows.from_in_target, {0, rows.num_positions}, from);
  require_in_part(rows.to_in_source, {0, rows.num_positions}, to);
  require_in_part(rows.to_in_target, part_along(to.layout.rows), to);
}

} // namespace

template<class T>
Relayout<T>::Relayout(ProcessGrid const& grid, Placement const& from, Placement const& to)
    : grid_(&grid),
      from_(from),
      to_(to),
      is_local_(moves_nothing(grid.shape(), from.layout, to.layout)) {
  require_same_matrix(from, to, false);
  ORTHANT_REQUIRE(!from.own_rows && !to.own_rows && !from.own_columns && !to.own_columns,
                  "where sampled rows lie is not known from their placements; from ", from.to_string(),
                  " to ", to.to_string());
  MovesByRank sends(static_cast<std::size_t>(grid.group().size()));
  MovesByRank receives(sends.size());
  for (int rank = 0; rank < grid.group().size(); ++rank) {
    auto const other = member(grid, rank);
    if (is_local_ && other != grid.coordinates()) continue;
    sends[static_cast<std::size_t>(rank)] = moves_between(grid.shape(), from, grid.coordinates(), to, other);
    receives[static_cast<std::size_t>(rank)] =
        moves_between(grid.shape(), from, other, to, grid.coordinates());
  }
  plan(sends, receives);
}

template<class T>
Relayout<T>::Relayout(ProcessGrid const& grid, Placement const& from, Placement const& to,
                      std::vector<std::int64_t> const& source_rows)
    : grid_(&grid),
      from_(from),
      to_(to),
      is_local_(grid.group().size() == 1) {
  require_same_matrix(from, to, true);
  ORTHANT_REQUIRE(from.layout.storage != Storage::flat_sharded && to.layout.storage != Storage::flat_sharded,
                  "rows of flat shards are not reordered; from ", from.to_string(), " to ", to.to_string());
  auto const receives =
      runtime::together(grid.group(), [&] { return requested_moves(grid, from, to, source_rows); });
  plan(exchanged(grid, from, to, receives), receives);
}

template<class T>
Relayout<T>::Relayout(ProcessGrid const& grid, Placement const& from, Placement const& to,
                      SampledRows const& rows)
    : grid_(&grid),
      from_(from),
      to_(to),
      is_local_(grid.group().size() == 1 || (from.layout.row_order == to.layout.row_order &&
                                             moves_nothing(grid.shape(), from.layout, to.layout))) {
  require_same_matrix(from, to, true);
  require_sampled(grid, from, to, rows);
  auto const sends = sampled_sends(grid, from, to, rows);
  auto receives = sampled_receives(grid, from, to, rows);
  // What stays here is in both lists, in the same order.
  auto const me = static_cast<std::size_t>(grid.group().rank());
  ORTHANT_REQUIRE(sends[me].size() == receives[me].size(), sends[me].size(),
                  " rows leave this rank for itself, ", receives[me].size(),
                  " arrive: the positions do not fit");
  for (std::size_t i = 0; i < sends[me].size(); ++i)
    receives[me][i].source_row = sends[me][i].source_row;
  plan(sends, receives);
}

template<class T>
void Relayout<T>::plan(MovesByRank const& sends, MovesByRank const& receives) {
  auto const source = block_of(*grid_, from_);
  auto const target = block_of(*grid_, to_);
  auto const me = static_cast<std::size_t>(grid_->group().rank());
  HostRuns kept;
  HostRuns packed;
  HostRuns unpacked;
  std::int64_t num_sent = 0;
  std::int64_t num_received = 0;
  for (std::size_t rank = 0; rank < sends.size(); ++rank) {
    send_counts_.push_back(0);
    receive_counts_.push_back(0);
    if (rank == me) {
      for (auto const& move : receives[rank])
        for (std::int64_t i = 0; i < move.num_rows; ++i)
          kept.add(place_of(source, move.source_row + i, move.columns.begin),
                   place_of(target, move.target_row + i, move.columns.begin), move.columns.size());
      continue;
    }
    auto const send_begin = num_sent;
    for (auto const& move : sends[rank])
      for (std::int64_t i = 0; i < move.num_rows; ++i, num_sent += move.columns.size())
        packed.add(place_of(source, move.source_row + i, move.columns.begin), num_sent, move.columns.size());
    send_counts_.back() = num_sent - send_begin;
    auto const receive_begin = num_received;
    for (auto const& move : receives[rank])
      for (std::int64_t i = 0; i < move.num_rows; ++i, num_received += move.columns.size())
        unpacked.add(num_received, place_of(target, move.target_row + i, move.columns.begin),
                     move.columns.size());
    receive_counts_.back() = num_received - receive_begin;
  }
  kept_ = to_device(kept);
  packed_ = to_device(packed);
  unpacked_ = to_device(unpacked);
  send_ = Vector<T>("orthant::pmm::relayout/send", static_cast<std::size_t>(num_sent));
  receive_ = Vector<T>("orthant::pmm::relayout/receive", static_cast<std::size_t>(num_received));
}

template<class T>
void Relayout<T>::run(DefaultExec const& exec, DistMatrix<T> const& from, DistMatrix<T> const& to) const {
  ORTHANT_REQUIRE(from.placement() == from_ && to.placement() == to_, "relayout from ",
                  from.placement().to_string(), " to ", to.placement().to_string(), "; planned was from ",
                  from_.to_string(), " to ", to_.to_string());
  copy(exec, packed_, from.storage(), send_);
  copy(exec, kept_, from.storage(), to.storage());
  if (is_local_) return;
  runtime::all_to_allv(exec, grid_->group(), send_, send_counts_, receive_, receive_counts_);
  copy(exec, unpacked_, receive_, to.storage());
}

template<class T>
std::vector<PlannedCall> Relayout<T>::calls() const {
  std::vector<PlannedCall> calls;
  if (!is_local_)
    plan_call<T>(calls, grid_->group(), runtime::Operation::all_to_all,
                 std::accumulate(send_counts_.begin(), send_counts_.end(), std::int64_t{0}));
  return calls;
}

template class Relayout<float>;
template class Relayout<double>;

} // namespace orthant::pmm
