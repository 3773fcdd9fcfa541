// SPDX-License-Identifier: Apache-2.0
//
// Grids and layouts: rank order, communicators, what --grid accepts; blocks that cover a matrix once.
#include "pmm/grid/process_grid.hpp"

#include "pmm/grid/layout.hpp"
#include "runtime/comm/collectives.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using ::testing::HasSubstr;

std::string user_error_of(std::string_view text, int num_ranks) {
  try {
    static_cast<void>(parse_grid(text, num_ranks));
  } catch (runtime::UserError const& error) {
    return error.what();
  }
  return "";
}

TEST(GridShape, ParsesWhatItPrints) {
  for (int num_ranks = 1; num_ranks <= 24; ++num_ranks)
    for (auto const& [data, x, y, z] : grids_4d(num_ranks)) {
      GridShape const shape{data, x, y, z};
      EXPECT_EQ(parse_grid(shape.to_string(), num_ranks), shape);
      EXPECT_EQ(read_grid(shape.to_string()), shape);
    }
}

TEST(GridShape, RefusesWhatIsNoGridAndSaysWhatWouldBe) {
  for (auto const* text :
       {"", "2", "2x2x2", "1x2x2x2x1", "1x2x2x", "x1x2x2", "1x2x0x2", "1x-2x-2x2", "1x2x2y2", "1 x2x2x2",
        "1x2x2x2 ", "ax2x2x2", "1x2x2x99999999999999999999", "1,2,2,2"})
    EXPECT_THAT(user_error_of(text, 8),
                HasSubstr("is not a grid; write data x X x Y x Z, such as --grid 1x2x2x2"))
        << text;
  for (auto const* text : {"", "auto", "2x2x2", "1x2x0x2", "1x2x2x2 ", "65536x65536x65536x65536"})
    EXPECT_EQ(read_grid(text), std::nullopt) << text;
  EXPECT_THAT(user_error_of("1x2x2x2", 4),
              HasSubstr("is for 8 ranks, but the job has 4; for example --grid 1x2x2x1"));
  EXPECT_THAT(user_error_of("65536x65536x65536x65536", 4), HasSubstr("far more ranks"));
}

TEST(GridShape, AutoIsAsCubicAsTheFactorsAllow) {
  EXPECT_EQ(parse_grid("auto", 1), (GridShape{1, 1, 1, 1}));
  EXPECT_EQ(parse_grid("auto", 8), (GridShape{1, 2, 2, 2}));
  EXPECT_EQ(parse_grid("auto", 6), (GridShape{1, 3, 2, 1}));
  EXPECT_EQ(parse_grid("auto", 7), (GridShape{1, 7, 1, 1}));
  EXPECT_EQ(parse_grid("auto", 12), (GridShape{1, 3, 2, 2}));
  EXPECT_EQ(parse_grid("auto", 64), (GridShape{1, 4, 4, 4}));
}

TEST(GridShape, AllShapesAreAllFactorisations) {
  for (int num_ranks = 1; num_ranks <= 36; ++num_ranks) {
    std::vector<std::string> expected;
    for (auto const& [x, y, z] : grids_3d(num_ranks))
      expected.push_back(GridShape{1, x, y, z}.to_string());
    std::vector<std::string> found;
    for (auto const& shape : all_shapes(num_ranks))
      found.push_back(shape.to_string());
    EXPECT_EQ(found, expected);
  }
  EXPECT_TRUE(all_shapes(6, 4).empty());
  EXPECT_EQ(all_shapes(6, 3).size(), 3U);
}

TEST(Coordinates, YIsFastestThenXThenZThenData) {
  GridShape const shape{5, 2, 3, 4};
  int rank = 0;
  for (int data = 0; data < 5; ++data)
    for (int z = 0; z < 4; ++z)
      for (int x = 0; x < 2; ++x)
        for (int y = 0; y < 3; ++y, ++rank) {
          Coordinates const expected{data, x, y, z};
          EXPECT_EQ(coordinates_of(shape, rank), expected);
          EXPECT_EQ(rank_of(shape, expected), rank);
        }
}

class ProcessGridTest : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  ProcessGrid grid_{world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}};
};

TEST_P(ProcessGridTest, EachAxisHoldsTheRanksThatDifferThereOnly) {
  for (auto const axis : {Axis::x, Axis::y, Axis::z, Axis::data}) {
    auto const& comm = grid_.over(axis);
    EXPECT_EQ(comm.size(), grid_.size(axis));
    EXPECT_EQ(comm.rank(), grid_.coordinate(axis));
    EXPECT_EQ(comm.axis(), name_of(axis));
    std::vector<std::int64_t> const mine{world_.rank()};
    std::vector<std::int64_t> ranks(static_cast<std::size_t>(comm.size()));

    runtime::all_gather(runtime::host, comm, mine, ranks);

    auto expected = grid_.coordinates();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      expected.along(axis) = static_cast<int>(i);
      EXPECT_EQ(ranks[i], rank_of(grid_.shape(), expected));
    }
  }
  EXPECT_EQ(grid_.group().size(), world_.size() / grid_.size(Axis::data));
  EXPECT_EQ(grid_.group().rank(), world_.rank() % grid_.group().size());
}

TEST_P(ProcessGridTest, AGroupOverAnySetOfAxesHoldsItsRanksInNestedOrder) {
  for (auto const& axes : {AxisSet{Axis::y, Axis::x}, AxisSet{Axis::z, Axis::data},
                           AxisSet{Axis::y, Axis::data}, AxisSet{Axis::x, Axis::y, Axis::z, Axis::data}}) {
    auto const& comm = grid_.over(axes);
    std::vector<std::int64_t> const mine{world_.rank()};
    std::vector<std::int64_t> ranks(static_cast<std::size_t>(comm.size()));

    runtime::all_gather(runtime::host, comm, mine, ranks);

    EXPECT_EQ(comm.size(), grid_.shape().size(axes)) << name_of(axes);
    EXPECT_EQ(comm.rank(), rank_within(grid_.shape(), grid_.coordinates(), axes)) << name_of(axes);
    EXPECT_TRUE(std::ranges::is_sorted(ranks)) << name_of(axes);
    for (auto const rank : ranks)
      for (auto const axis : nested_axes) {
        auto const there = coordinates_of(grid_.shape(), static_cast<int>(rank)).along(axis);
        if (!axes.contains(axis)) {
          EXPECT_EQ(there, grid_.coordinate(axis)) << name_of(axes);
        }
      }
  }
}

TEST_P(ProcessGridTest, CommunicatorsAreMadeWhenTheyAreFirstAskedForAndOnce) {
  ProcessGrid const grid(world_, grid_.shape());
  EXPECT_TRUE(grid.communicators().empty());

  auto const* const first = &grid.over(Axis::z);
  static_cast<void>(grid.group());

  EXPECT_EQ(&grid.over({Axis::z}), first);
  EXPECT_EQ(&grid.over({Axis::z, Axis::y, Axis::x}), &grid.group());
  EXPECT_EQ(grid.communicators().size(), 2U);
}

TEST_P(ProcessGridTest, RunsAreOfNeighborsAlongAnAxis) {
  for (auto const axis : spatial_axes)
    for (int length = 1; length <= grid_.size(axis); ++length) {
      if (grid_.size(axis) % length != 0) continue;
      auto const& comm = grid_.over_run(axis, length);
      std::vector<std::int64_t> const mine{world_.rank()};
      std::vector<std::int64_t> ranks(static_cast<std::size_t>(comm.size()));
      runtime::all_gather(runtime::host, comm, mine, ranks);

      ASSERT_EQ(comm.size(), length) << name_of(axis);
      EXPECT_EQ(comm.axis(), name_of_run(grid_.shape(), axis, length));
      EXPECT_EQ(comm.rank(), grid_.coordinate(axis) % length) << name_of(axis);
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        auto expected = grid_.coordinates();
        expected.along(axis) = grid_.coordinate(axis) / length * length + static_cast<int>(i);
        EXPECT_EQ(coordinates_of(grid_.shape(), static_cast<int>(ranks[i])), expected) << name_of(axis);
      }
    }
}

TEST(AxisSet, NamesItsAxesInNestedOrder) {
  EXPECT_EQ(name_of(AxisSet{Axis::x}), "x");
  EXPECT_EQ(name_of(AxisSet{Axis::data, Axis::z}), "z+data");
  EXPECT_EQ(name_of(AxisSet{Axis::x, Axis::y}), "y+x");
  EXPECT_EQ(name_of(group_axes), "group");
}

// 2 x 2 x 3 x 4, rank (data 1, x 1, y 2, z 3) = 2 + 3 (1 + 2 (3 + 4)) = 47.
TEST(AxisSet, CountsRanksAndPlacesWithinAGroup) {
  GridShape const shape{2, 2, 3, 4};
  auto const at = coordinates_of(shape, 47);
  EXPECT_EQ(at, (Coordinates{1, 1, 2, 3}));
  EXPECT_EQ(shape.size(AxisSet{Axis::z, Axis::data}), 8);
  EXPECT_EQ(rank_within(shape, at, {Axis::z, Axis::data}), 3 + 4 * 1);
  EXPECT_EQ(rank_within(shape, at, {Axis::x, Axis::y}), 2 + 3 * 1);
  EXPECT_EQ(rank_within(shape, at, {Axis::x, Axis::y, Axis::z, Axis::data}), 47);
}

TEST_P(ProcessGridTest, PiecesCoverAMatrixOnceAndDifferByAtMostOneRow) {
  for (auto const& extents : {Extents{23, 10}, Extents{1, 3}, Extents{0, 4}, Extents{3, 0}})
    for (auto const& [rows, columns] : axis_set_pairs())
      for (auto const storage : all_storages) {
        Placement const placement{{rows, columns, storage}, extents};
        auto const third = placement.layout.third();
        std::vector<int> covered(static_cast<std::size_t>(extents.rows * extents.columns));
        std::set<std::int64_t> heights;
        std::set<std::int64_t> lengths;
        for (int rank = 0; rank < grid_.group().size(); ++rank) { // of data group 0
          auto const at = coordinates_of(grid_.shape(), rank);
          auto const block = block_of(grid_.shape(), at, placement);
          heights.insert(block.rows.size());
          EXPECT_LE(block.num_stored, block.num_padded);
          if (storage == Storage::flat_sharded)
            lengths.insert(block.num_padded * grid_.size(third) - block.size());
          if (storage == Storage::replicated && rank_within(grid_.shape(), at, third) != 0) continue;
          for (std::int64_t i = block.first; i < block.first + block.num_stored; ++i)
            ++covered[static_cast<std::size_t>((block.rows.begin + i / block.columns.size()) *
                                                   extents.columns +
                                               block.columns.begin + i % block.columns.size())];
        }
        EXPECT_THAT(covered, ::testing::Each(1)) << placement.to_string();
        EXPECT_LE(*heights.rbegin() - *heights.begin(), 1);
        if (!lengths.empty()) {
          EXPECT_LT(*lengths.rbegin(), grid_.size(third)) << "padding";
        }
      }
}

/// data 2 x (2 x 3 x 1) with 4 experts and 2 stages: rank = y + 3 (x + 2 (0 + e + 4 (d + 2 p))), by hand.
TEST(GridShape, ExpertsAndStagesNestOutsideTheGroup) {
  GridShape const shape{2, 2, 3, 1, 4, 2};
  EXPECT_EQ(shape.num_ranks(), 96);
  EXPECT_EQ(shape.to_string(), "2x2x3x1, expert 4, pipe 2");
  Coordinates const at{.data = 1, .x = 1, .y = 2, .z = 0, .expert = 3, .pipe = 1};
  auto const rank = 2 + 3 * (1 + 2 * (3 + 4 * (1 + 2 * 1)));
  EXPECT_EQ(rank_of(shape, at), rank);
  for (int r = 0; r < shape.num_ranks(); ++r)
    EXPECT_EQ(rank_of(shape, coordinates_of(shape, r)), r);
  EXPECT_EQ(coordinates_of(shape, rank), at);
  EXPECT_EQ(rank_within(shape, at, {Axis::expert, Axis::data}), 3 + 4 * 1);
  EXPECT_EQ(shape.size({Axis::expert, Axis::data}), 8);
  EXPECT_EQ(name_of({Axis::data, Axis::expert}), "expert+data");
  EXPECT_EQ(rank_within(shape, at, group_axes), 2 + 3 * 1);
  Layout const over_expert{Axis::expert, Axis::y};
  EXPECT_THROW(static_cast<void>(over_expert.third()), runtime::Error);
}

/// 23 x 10, rows on x of 2, columns on y of 3, cut along z of 4; every number worked out by hand.
TEST(Block, IsTheOneWorkedOutByHand) {
  GridShape const shape{1, 2, 3, 4};
  Placement const flat{{Axis::x, Axis::y, Storage::flat_sharded}, {23, 10}};
  Placement const by_rows{{Axis::x, Axis::y, Storage::row_sharded}, {23, 10}};
  Placement const whole{{Axis::x, Axis::y, Storage::replicated}, {23, 10}};
  Coordinates at;
  at.along(Axis::x) = 1; // rows 12 + 11
  at.along(Axis::y) = 1; // columns 4 + 3 + 3
  at.along(Axis::z) = 3;
  Range const rows{12, 23};
  Range const columns{4, 7};

  // 33 elements in pieces of 9, 9, 9, 6.
  EXPECT_EQ(block_of(shape, at, flat), (Block{rows, columns, rows, 27, 6, 9}));
  // 11 rows as 3, 3, 3, 2: the last two begin 9 rows, 27 elements after the block.
  EXPECT_EQ(block_of(shape, at, by_rows), (Block{rows, columns, {21, 23}, 27, 6, 6}));
  EXPECT_EQ(block_of(shape, at, whole), (Block{rows, columns, rows, 0, 33, 33}));
  at.along(Axis::y) = 0; // 44 elements in pieces of 11
  EXPECT_EQ(block_of(shape, at, flat), (Block{rows, {0, 4}, rows, 33, 11, 11}));
}

/// 2 granules of 8 columns, of which 2 are a tail: over 2 parts whole, over 4 parts 3 + 5, over 6 parts 2 + 2 + 4.
TEST(Block, GranulesWithATailAreCutBetweenMorePartsThanGranules) {
  Granule const granule(8, 2);
  auto const ends = [&](int num_parts) {
    GridShape const shape{1, num_parts, 1, 1};
    std::vector<std::int64_t> all;
    std::int64_t begin = 0;
    for (int part = 0; part < num_parts; ++part) {
      auto const range = part_of(shape, coordinates_of(shape, part), Axis::x, 16, granule);
      EXPECT_EQ(range.begin, begin);
      all.push_back(begin = range.end);
    }
    return all;
  };
  EXPECT_EQ(ends(1), (std::vector<std::int64_t>{16}));
  EXPECT_EQ(ends(2), (std::vector<std::int64_t>{8, 16}));
  EXPECT_EQ(ends(4), (std::vector<std::int64_t>{3, 8, 11, 16}));
  EXPECT_EQ(ends(6), (std::vector<std::int64_t>{2, 4, 8, 10, 12, 16}));
  EXPECT_THROW(ends(3), runtime::Error);
  EXPECT_THROW(ends(8), runtime::Error);
}

/// 23 rows over z of 4, and in it over x of 2 and y of 3, worked out by hand: z cuts 6 + 6 + 6 + 5, x cuts 5
/// in 3 + 2, y cuts 2 in 1 + 1 + 0.
TEST(Block, RowsOverSeveralAxesAreCutInNestedOrder) {
  GridShape const shape{1, 2, 3, 4};
  Coordinates at;
  at.z = 3;
  at.x = 1;
  at.y = 1;
  EXPECT_EQ(part_of(shape, at, Axis::z, 23), (Range{18, 23}));
  EXPECT_EQ(part_of(shape, at, {Axis::x, Axis::z}, 23), (Range{21, 23}));
  EXPECT_EQ(part_of(shape, at, group_axes, 23), (Range{22, 23}));
  EXPECT_EQ(part_of(shape, at, {}, 23), (Range{0, 23}));
  EXPECT_EQ(part_holding(shape, group_axes, 23, 22), rank_within(shape, at, group_axes));
  EXPECT_EQ(part_holding(shape, {}, 23, 22), 0);
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    auto const range = part_of(shape, coordinates_of(shape, rank), group_axes, 23);
    for (auto i = range.begin; i < range.end; ++i)
      EXPECT_EQ(part_holding(shape, group_axes, 23, i), rank);
  }

  // 24 rows in 8 granules of 3: z cuts 2 + 2 + 2 + 2 of them, x one each.
  EXPECT_EQ(part_of(shape, at, {Axis::x, Axis::z}, 24, 3), (Range{21, 24}));
  EXPECT_EQ(part_holding(shape, {Axis::x, Axis::z}, 24, 22, 3), 1 + 2 * 3);
  EXPECT_THROW(static_cast<void>(part_of(shape, at, Axis::z, 23, 3)), runtime::Error);
  Layout const heads{Axis::z, Axis::y, Storage::replicated, natural_order, natural_order, 3, 2};
  EXPECT_EQ(block_of(shape, at, {heads, {24, 10}}), (Block{{18, 24}, {4, 8}, {18, 24}, 0, 24, 24}));

  // Whole rows of 5 columns, cut over all ranks.
  EXPECT_EQ(block_of(shape, at, {{group_axes, {}}, {23, 5}}), (Block{{22, 23}, {0, 5}, {22, 23}, 0, 5, 5}));
  // A whole matrix of 115 numbers in 24 pieces of 5: this is piece 22 = 1 + 3 (1 + 2 * 3), the last with any.
  EXPECT_EQ(block_of(shape, at, {{{}, {}, Storage::flat_sharded}, {23, 5}}),
            (Block{{0, 23}, {0, 5}, {0, 23}, 110, 5, 5}));
}

TEST_P(ProcessGridTest, FillNamesTheGlobalPlaceOfEveryElement) {
  for (auto const& [rows, columns] : axis_set_pairs())
    for (auto const storage : all_storages) {
      DistMatrix<double> const matrix(grid_, {{rows, columns, storage}, {9, 14}}, "matrix");

      fill(
          DefaultExec(), matrix,
          KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) { return static_cast<double>(100 * i + j); });

      auto const expected =
          make_dense(9, 14, [](auto i, auto j) { return static_cast<double>(100 * i + j); });
      EXPECT_EQ(largest_error(matrix, expected), 0);
      EXPECT_EQ(gathered(matrix).numbers, expected.numbers);
    }
}

TEST(ProcessGrid, AShapeOfAnotherSizeIsRefused) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  EXPECT_THROW(ProcessGrid(world, {1, world.size() + 1, 1, 1}), runtime::Error);
}

TEST(Layout, SaysItsAxesStorageAndOrders) {
  Placement const placement{{Axis::z, Axis::x, Storage::flat_sharded, p1, p2}, {7, 5}};
  EXPECT_EQ(placement.to_string(), "7 x 5 [z,x] flat-sharded over y, orders p1/p2");
  EXPECT_THROW(static_cast<void>((Layout{Axis::x, Axis::x}.third())), runtime::Error);
  EXPECT_THROW(static_cast<void>((Layout{Axis::x, Axis::data}.third())), runtime::Error);
  EXPECT_THROW(static_cast<void>((Layout{{Axis::x, Axis::y}, Axis::y}.third())), runtime::Error);
  EXPECT_EQ((Layout{{Axis::x, Axis::y, Axis::z}, {}, Storage::replicated, p1}.to_string()),
            "[group,none] replicated over none, orders p1/natural");
}

INSTANTIATE_TEST_SUITE_P(Grids, ProcessGridTest, ::testing::ValuesIn(grids_4d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
