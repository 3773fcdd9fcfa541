// SPDX-License-Identifier: Apache-2.0
//
// From every placement to every other, on every grid, and between row orders.
#include "pmm/matrix/relayout.hpp"

#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

class RelayoutTest : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
  DefaultExec exec_;
};

std::vector<Placement> all_placements(Extents const& extents) {
  std::vector<Placement> all;
  for (auto const& [rows, columns] : axis_set_pairs())
    for (auto const storage : all_storages)
      all.push_back({{rows, columns, storage}, extents});
  for (auto const& [rows, columns] : axis_pairs()) { // rows in pairs, if there are pairs; whole columns
    all.push_back({{rows, columns}, extents});
    all.back().layout.row_granule = extents.rows % 2 == 0 ? 2 : 1;
    all.back().layout.column_granule = extents.columns;
  }
  return all;
}

Dense numbered(Extents const& extents) {
  return make_dense(extents.rows, extents.columns,
                    [&](auto i, auto j) { return static_cast<double>(i * extents.columns + j + 1); });
}

TEST_P(RelayoutTest, EveryPlacementBecomesEveryOther) {
  std::size_t pair = 0;
  for (auto const& extents : {Extents{13, 7}, Extents{2, 29}}) {
    auto const whole = numbered(extents);
    for (auto const& from : all_placements(extents)) {
      auto const source = distributed<double>(grid_, from, whole);
      for (auto const& to : all_placements(extents)) {
        if (++pair % 59 != 0) continue; // of 15,138, of which 59 divides neither 87 nor its square
        Relayout<double> const relayout(grid_, from, to);
        auto const target = stained<double>(grid_, to);
        clear_ledgers(grid_);

        relayout.run(exec_, source, target);

        EXPECT_EQ(largest_error(target, whole), 0) << from.to_string() << " to " << to.to_string();
        EXPECT_EQ(counted_calls(grid_), planned_calls(relayout.calls()))
            << from.to_string() << " to " << to.to_string();
      }
    }
  }
}

TEST_P(RelayoutTest, TheSamePlacementAndASlicedReplicaMoveNothing) {
  Extents const extents{11, 6};
  auto const whole = numbered(extents);
  for (auto const& from : all_placements(extents)) {
    EXPECT_TRUE(Relayout<float>(grid_, from, from).calls().empty()) << from.to_string();
    auto sliced = from;
    sliced.layout.storage = Storage::row_sharded;
    if (from.layout.storage != Storage::replicated) continue;
    Relayout<float> const relayout(grid_, from, sliced);
    auto const target = stained<float>(grid_, sliced);

    relayout.run(exec_, distributed<float>(grid_, from, whole), target);

    EXPECT_TRUE(relayout.calls().empty()) << from.to_string();
    EXPECT_EQ(largest_error(target, whole), 0);
  }
}

TEST(Relayout, ACubicGridNeedsOnePermutation) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  auto const shape = near_cubic(world.size());
  if (shape.x != shape.z) GTEST_SKIP() << world.size() << " is no cube";
  ProcessGrid const grid(world, shape);
  Extents const matrix{8, 8};
  // A GNN layer's input F[x,y] and output Q[z,x].
  Relayout<double> const relayout(grid, {{Axis::x, Axis::y}, matrix}, {{Axis::z, Axis::x}, matrix});

  auto bytes = std::int64_t{0};
  for (auto const& call : relayout.calls())
    bytes += call.bytes;

  EXPECT_LE(bytes, 8 * (8 / shape.x) * (8 / shape.y)) << "more than one block leaves this rank";
}

/// Beside the sizes that random rows really have. A rank takes a row from one of at most as many ranks as there
/// are, each with a variance of less than a quarter; five deviations.
TEST_P(RelayoutTest, SizesThatAreExpectedAreThoseOfRandomRows) {
  Extents const extents{4001, 46};
  std::vector<std::int64_t> source_of(4001);
  std::iota(source_of.begin(), source_of.end(), 0);
  auto const in_order = source_of;
  std::sort(source_of.begin(), source_of.end(), [](auto i, auto j) { return mixed(5, i) < mixed(5, j); });
  auto const num_ranks = static_cast<double>(grid_.group().size());
  std::size_t pair = 0;
  for (auto const& from : all_placements(extents))
    for (auto const& to : all_placements(extents)) {
      if (from.layout.storage != Storage::replicated || to.layout.storage != Storage::replicated) continue;
      if (++pair % 5 != 0) continue;
      SCOPED_TRACE(from.to_string() + " to " + to.to_string());
      auto const rows = block_of(grid_, to).rows;
      auto const sizes_of = [&](std::vector<std::int64_t> const& sources) {
        return Relayout<float>(grid_, from, to, {sources.begin() + rows.begin, sources.begin() + rows.end})
            .sizes();
      };
      auto const expect = [&](RelayoutSizes const& found, RowOrders orders, double num_rows) {
        auto const expected = expected_sizes(grid_.shape(), grid_.coordinates(), from, to, orders);
        auto const near = [](std::int64_t a, std::int64_t b, double tolerance) {
          EXPECT_NEAR(static_cast<double>(a), static_cast<double>(b), tolerance);
        };
        near(found.num_sent, expected.num_sent, num_rows * static_cast<double>(extents.columns));
        near(found.num_received, expected.num_received, num_rows * static_cast<double>(extents.columns));
        near(found.num_kept, expected.num_kept, num_rows * static_cast<double>(extents.columns));
        near(found.num_kept_runs, expected.num_kept_runs, num_rows + 1);
        near(found.num_packed_runs, expected.num_packed_runs, num_rows + num_ranks);
        near(found.num_unpacked_runs, expected.num_unpacked_runs, num_rows + num_ranks);
        EXPECT_EQ(found.communicates, expected.communicates);
      };
      expect(sizes_of(source_of), RowOrders::independent,
             2.5 * std::sqrt(num_ranks * static_cast<double>(rows.size())));
      expect(sizes_of(in_order), RowOrders::equal, 0);
    }
}

TEST_P(RelayoutTest, RowsChangeTheirOrderAndComeBack) {
  Extents const extents{23, 5};
  auto const whole = numbered(extents);
  std::vector<std::int64_t> source_of(23); // row i of the new order is row source_of[i] of the old one
  std::iota(source_of.begin(), source_of.end(), 0);
  std::sort(source_of.begin(), source_of.end(), [](auto i, auto j) { return mixed(5, i) < mixed(5, j); });
  std::vector<std::int64_t> target_of(23);
  for (std::size_t i = 0; i < source_of.size(); ++i)
    target_of[static_cast<std::size_t>(source_of[i])] = static_cast<std::int64_t>(i);
  auto const reordered =
      make_dense(23, 5, [&](auto i, auto j) { return whole(source_of[static_cast<std::size_t>(i)], j); });
  auto const part = [](std::vector<std::int64_t> const& map, runtime::Range rows) {
    return std::vector<std::int64_t>(map.begin() + rows.begin, map.begin() + rows.end);
  };

  std::size_t pair = 0;
  for (auto from : all_placements(extents))
    for (auto to : all_placements(extents)) {
      if (from.layout.storage == Storage::flat_sharded || to.layout.storage == Storage::flat_sharded)
        continue;
      if (++pair % 5 != 0) continue;
      from.layout.row_order = p2;
      to.layout.row_order = p1;
      auto const source = distributed<double>(grid_, from, whole);
      auto const target = stained<double>(grid_, to);
      auto const back = stained<double>(grid_, from);
      Relayout<double> const there(grid_, from, to, part(source_of, target.block().stored_rows));
      Relayout<double> const home(grid_, to, from, part(target_of, source.block().stored_rows));
      clear_ledgers(grid_);

      there.run(exec_, source, target);
      EXPECT_EQ(counted_calls(grid_), planned_calls(there.calls()));
      home.run(exec_, target, back);

      EXPECT_EQ(largest_error(target, reordered), 0) << from.to_string() << " to " << to.to_string();
      EXPECT_EQ(largest_error(back, whole), 0) << from.to_string() << " to " << to.to_string();
    }
}

TEST_P(RelayoutTest, MistakesAreRefusedOnAllRanks) {
  Placement const from{{Axis::x, Axis::y, Storage::replicated, p1}, {6, 4}};
  auto to = from;
  to.layout.row_order = p2;
  EXPECT_THROW(Relayout<double>(grid_, from, to), runtime::Error); // needs a row map
  auto larger = from;
  larger.extents.rows = 7;
  EXPECT_THROW(Relayout<double>(grid_, from, larger), runtime::Error);

  auto const rows = block_of(grid_, to).stored_rows;
  std::vector<std::int64_t> map(static_cast<std::size_t>(rows.size()));
  std::iota(map.begin(), map.end(), rows.begin);
  EXPECT_NO_THROW(Relayout<double>(grid_, from, to, map));
  if (rows.contains(5)) map.back() = 6; // known on some ranks only
  EXPECT_THROW(Relayout<double>(grid_, from, to, map), runtime::Error);
}

INSTANTIATE_TEST_SUITE_P(Grids, RelayoutTest, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
