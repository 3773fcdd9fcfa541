// SPDX-License-Identifier: Apache-2.0
//
// Rows to owners of groups and back beside serial loops over all ranks' choices, on every grid.
#include "pmm/experts/dispatch.hpp"

#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

enum class Wish { spread, some_empty, all_to_one, nobody };

/// What all ranks want, as formulas of the place along the owners, row and choice.
struct Wishes {
  Wish kind = Wish::spread;
  std::int64_t num_groups = 1;
  std::int64_t num_choices = 2;

  [[nodiscard]] std::int64_t num_rows(int owner) const { return owner == 1 ? 2 : 7 + owner; }
  [[nodiscard]] std::int32_t group(int owner, std::int64_t row, std::int64_t k) const {
    auto const drawn = mixed(7 + static_cast<std::uint64_t>(k), row, owner);
    auto const group = static_cast<std::int64_t>(drawn % static_cast<std::uint64_t>(num_groups));
    if (kind == Wish::nobody || drawn % 5 == 4) return -1;
    if (kind == Wish::all_to_one) return static_cast<std::int32_t>(num_groups - 1);
    return static_cast<std::int32_t>(kind == Wish::some_empty ? group / 2 * 2 : group);
  }
  [[nodiscard]] std::vector<std::int32_t> of(int owner) const {
    std::vector<std::int32_t> groups;
    for (std::int64_t i = 0; i < num_rows(owner); ++i)
      for (std::int64_t k = 0; k < num_choices; ++k)
        groups.push_back(group(owner, i, k));
    return groups;
  }
};

struct Arrival {
  int owner;
  std::int64_t row, k;
};
/// By the definition: groups in order, in a group the ranks in order, then rows, then choices.
std::vector<Arrival> arrivals_of(Wishes const& wishes, Range groups, int num_owners) {
  std::vector<Arrival> all;
  for (auto group = groups.begin; group < groups.end; ++group)
    for (int owner = 0; owner < num_owners; ++owner)
      for (std::int64_t i = 0; i < wishes.num_rows(owner); ++i)
        for (std::int64_t k = 0; k < wishes.num_choices; ++k)
          if (wishes.group(owner, i, k) == group) all.push_back({owner, i, k});
  return all;
}

double weight_of(Arrival const& at) {
  return small_real(31, at.row, 2 * at.owner + at.k);
}

/// Axes of owners, copies, and of what neither concerns: each has rows of its own.
class DispatchOnGrid : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  static constexpr std::int64_t columns = 5;

  DispatchOnGrid()
      : grid_(world_, {.data = 1, .x = GetParam()[1], .y = 1, .z = GetParam()[2], .expert = GetParam()[0]}) {}

  [[nodiscard]] std::vector<Wishes> all_wishes() const {
    std::vector<Wishes> all;
    for (auto const kind : {Wish::spread, Wish::some_empty, Wish::all_to_one, Wish::nobody})
      for (auto const per_owner : {1, 3})
        for (std::int64_t num_choices : {1, 2})
          all.push_back({kind, std::int64_t{per_owner} * grid_.size(Axis::expert), num_choices});
    return all;
  }
  [[nodiscard]] double x(int owner, std::int64_t i, std::int64_t j) const {
    return small_real(3 + static_cast<std::uint64_t>(grid_.coordinate(Axis::z)), 100 * owner + i, j);
  }
  /// The addend of a rank along copies to a row of Y.
  [[nodiscard]] double addend(int copy, Arrival const& at, std::int64_t j) const {
    return small_real(50 + static_cast<std::uint64_t>(copy + 8 * grid_.coordinate(Axis::z)),
                      (at.owner * 100 + at.row) * 2 + at.k, j);
  }
  [[nodiscard]] double sum_of_addends(Arrival const& at, std::int64_t j) const {
    auto sum = 0.0;
    for (int copy = 0; copy < grid_.size(Axis::x); ++copy)
      sum += addend(copy, at, j);
    return sum;
  }
  template<class Value>
  [[nodiscard]] static runtime::Matrix<double> matrix(std::int64_t rows, Value const& value) {
    runtime::Matrix<double> result("orthant::testing::matrix", static_cast<std::size_t>(rows), columns);
    auto const host = Kokkos::create_mirror_view(result);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        host(static_cast<std::size_t>(i), static_cast<std::size_t>(j)) = value(i, j);
    Kokkos::deep_copy(result, host);
    return result;
  }
  template<class Value>
  static double error(runtime::Matrix<double> const& found, Value const& value) {
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), found);
    auto largest = 0.0;
    for (std::size_t i = 0; i < host.extent(0); ++i)
      for (std::size_t j = 0; j < host.extent(1); ++j)
        largest = std::max(largest, std::abs(host(i, j) - value(static_cast<std::int64_t>(i),
                                                                static_cast<std::int64_t>(j))));
    return largest;
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  ProcessGrid grid_;
  DefaultExec exec_;
  DispatchAxes axes_;
};

TEST_P(DispatchOnGrid, RowsArriveInOrderAndComeBackSummed) {
  auto const me = grid_.coordinate(Axis::expert);
  for (auto const& wishes : all_wishes()) {
    SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(wishes.kind) << ", groups "
                                      << wishes.num_groups << ", choices " << wishes.num_choices);
    Dispatch<double> dispatch(grid_, axes_, wishes.num_groups, std::make_shared<DispatchBuffers<double>>());
    auto const groups = wishes.of(me);
    dispatch.set_groups(groups, wishes.num_choices);
    auto const expected = arrivals_of(wishes, dispatch.lists().own_groups(), grid_.size(Axis::expert));
    auto const num_rows = wishes.num_rows(me);
    auto const& sizes = dispatch.sizes();
    ASSERT_EQ(sizes.num_arrived, std::ssize(expected));
    std::vector<double> weights;
    for (std::int64_t choice = 0; choice < num_rows * wishes.num_choices; ++choice)
      weights.push_back(weight_of({me, choice / wishes.num_choices, choice % wishes.num_choices}));
    auto const w = device_copy(weights);

    for (bool const has_weights : {false, true}) {
      auto const rows = matrix(num_rows, [&](auto i, auto j) { return x(me, i, j); });
      auto const arrived = matrix(sizes.num_arrived, [](auto, auto) { return 12345.0; });
      dispatch.send(exec_, rows, has_weights ? w : runtime::Vector<double>(), arrived);
      Kokkos::fence();
      EXPECT_EQ(error(arrived,
                      [&](auto r, auto j) {
                        auto const& at = expected[static_cast<std::size_t>(r)];
                        return (has_weights ? weight_of(at) : 1.0) * x(at.owner, at.row, j);
                      }),
                0);

      auto const addends = matrix(sizes.num_arrived, [&](auto r, auto j) {
        return addend(grid_.coordinate(Axis::x), expected[static_cast<std::size_t>(r)], j);
      });
      auto const returned = matrix(sizes.num_sent, [](auto, auto) { return 12345.0; });
      auto const sums = matrix(num_rows, [](auto, auto) { return 12345.0; });
      dispatch.give_back(exec_, addends, returned);
      dispatch.combine(exec_, returned, has_weights ? w : runtime::Vector<double>(), sums);
      Kokkos::fence();
      EXPECT_LE(error(sums,
                      [&](auto i, auto j) {
                        auto sum = 0.0;
                        for (std::int64_t k = 0; k < wishes.num_choices; ++k)
                          if (Arrival const at{me, i, k}; wishes.group(me, i, k) >= 0)
                            sum += (has_weights ? weight_of(at) : 1.0) * sum_of_addends(at, j);
                        return sum;
                      }),
                1e-14);

      runtime::Vector<double> const products("orthant::testing::products", weights.size());
      dispatch.dot(exec_, returned, rows, products);
      Kokkos::fence();
      auto const host = host_copy(products);
      std::vector<double> found(host.data(), host.data() + host.extent(0));
      runtime::all_reduce(runtime::host, grid_.over(Axis::x), found);
      for (std::int64_t i = 0; i < num_rows; ++i)
        for (std::int64_t k = 0; k < wishes.num_choices; ++k) {
          auto product = 0.0;
          for (std::int64_t j = 0; j < columns && wishes.group(me, i, k) >= 0; ++j)
            product += sum_of_addends({me, i, k}, j) * x(me, i, j);
          EXPECT_NEAR(found[static_cast<std::size_t>(i * wishes.num_choices + k)], product, 1e-14);
        }
    }
  }
}

// <send x, y> = <x, combine(return y)>, summed over owners: y of all ranks along copies are addends.
TEST_P(DispatchOnGrid, ComingBackIsTheAdjointOfSending) {
  auto const me = grid_.coordinate(Axis::expert);
  for (auto const& wishes : all_wishes()) {
    Dispatch<double> dispatch(grid_, axes_, wishes.num_groups, std::make_shared<DispatchBuffers<double>>());
    dispatch.set_groups(wishes.of(me), wishes.num_choices);
    auto const& sizes = dispatch.sizes();
    auto const num_rows = wishes.num_rows(me);
    auto const copy = static_cast<std::uint64_t>(grid_.coordinate(Axis::x));
    auto const rows = matrix(num_rows, [&](auto i, auto j) { return x(me, i, j); });
    auto const y = matrix(sizes.num_arrived, [&](auto r, auto j) { return small_real(90 + copy, r, j); });
    auto const arrived = matrix(sizes.num_arrived, [](auto, auto) { return 0.0; });
    auto const returned = matrix(sizes.num_sent, [](auto, auto) { return 0.0; });
    auto const sums = matrix(num_rows, [](auto, auto) { return 0.0; });
    dispatch.send(exec_, rows, {}, arrived);
    dispatch.give_back(exec_, y, returned);
    dispatch.combine(exec_, returned, {}, sums);
    Kokkos::fence();
    auto const inner = [](auto const& a, auto const& b) {
      auto const [left, right] = std::pair(Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), a),
                                           Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), b));
      auto sum = 0.0;
      for (std::size_t i = 0; i < left.size(); ++i)
        sum += left.data()[i] * right.data()[i];
      return sum;
    };
    // x is the same on all ranks along copies: one of them counts.
    std::array numbers{inner(arrived, y), copy == 0 ? inner(rows, sums) : 0.0};
    runtime::all_reduce(runtime::host, world_, std::span(numbers));
    EXPECT_NEAR(numbers[0], numbers[1], 1e-12 * (1 + std::abs(numbers[0])));
  }
}

TEST_P(DispatchOnGrid, RowsThatDoNotTravelComeBackInPlace) {
  if (travels(grid_.shape(), axes_)) GTEST_SKIP() << "rows travel";
  for (auto const& wishes : all_wishes()) {
    Dispatch<double> dispatch(grid_, axes_, wishes.num_groups, std::make_shared<DispatchBuffers<double>>());
    dispatch.set_groups(wishes.of(0), wishes.num_choices);
    auto const num_rows = dispatch.sizes().num_arrived;
    auto const value = [](auto r, auto j) { return small_real(70, r, j); };
    auto const y = matrix(num_rows, value);
    auto const apart = matrix(num_rows, [](auto, auto) { return 12345.0; });

    dispatch.give_back(exec_, y, apart);
    dispatch.give_back(exec_, y, y);
    Kokkos::fence();

    EXPECT_EQ(error(apart, value), 0);
    EXPECT_EQ(error(y, value), 0);
  }
}

TEST_P(DispatchOnGrid, CommunicatesAndPassesWhatIsListed) {
  auto const me = grid_.coordinate(Axis::expert);
  for (auto const& wishes : all_wishes()) {
    Dispatch<double> dispatch(grid_, axes_, wishes.num_groups, std::make_shared<DispatchBuffers<double>>());
    clear_ledgers(grid_);
    CountedPasses const passes(grid_);
    dispatch.set_groups(wishes.of(me), wishes.num_choices);
    auto const& sizes = dispatch.sizes();
    auto const rows = matrix(wishes.num_rows(me), [](auto, auto) { return 1.0; });
    auto const arrived = matrix(sizes.num_arrived, [](auto, auto) { return 1.0; });
    auto const returned =
        travels(grid_.shape(), axes_) ? matrix(sizes.num_sent, [](auto, auto) { return 1.0; }) : arrived;
    runtime::Vector<double> const w("orthant::testing::weights",
                                    static_cast<std::size_t>(sizes.num_rows * wishes.num_choices));
    dispatch.send(exec_, rows, w, arrived);
    dispatch.send(exec_, rows, {}, arrived);
    dispatch.give_back(exec_, arrived, returned);
    dispatch.combine(exec_, returned, w, rows);
    dispatch.dot(exec_, returned, rows, w);
    Kokkos::fence();

    auto list = step_of<double>(grid_);
    plan_dispatch_lists(list, axes_, wishes.num_groups);
    plan_send(list, axes_, sizes, columns, true);
    plan_send(list, axes_, sizes, columns, false);
    plan_give_back(list, axes_, sizes, columns);
    plan_combine(list, axes_, sizes, columns, true);
    plan_dot(list, sizes, columns);
    EXPECT_EQ(counted_calls(grid_), planned_calls(list));
    EXPECT_EQ(passes.list(), passes_of(list));
  }
}

/// Every rank along copies sends its part of the rows and no other: over them, each copy of a row travels once.
TEST_P(DispatchOnGrid, CopiesOfRowsTravelOnce) {
  auto const me = grid_.coordinate(Axis::expert);
  Wishes const wishes{Wish::spread, 2 * std::int64_t{grid_.size(Axis::expert)}, 2};
  DispatchLists lists(grid_, axes_, wishes.num_groups);
  lists.set(wishes.of(me), wishes.num_choices);
  auto sent = lists.sizes().num_sent;
  sent = runtime::all_reduced(grid_.over(Axis::x), sent);
  std::int64_t expected = 0;
  for (auto const group : wishes.of(me))
    expected += group >= 0 ? 1 : 0;
  EXPECT_EQ(sent, expected);
}

INSTANTIATE_TEST_SUITE_P(AllGrids, DispatchOnGrid, ::testing::ValuesIn(grids_3d(world_size())), GridName());

TEST(DispatchLists, RefusesGroupsThatCannotBeDealt) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  ProcessGrid const one(self, {});
  EXPECT_NO_THROW(DispatchLists(one, {}, 3));
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  ProcessGrid const grid(world, {.expert = world.size()});
  if (world.size() > 1) {
    EXPECT_THROW(DispatchLists(grid, {}, world.size() + 1), runtime::Error);
  }
}

TEST(BalancedSizes, AreThoseOfEvenChoices) {
  GridShape const shape{.data = 1, .x = 2, .y = 1, .z = 1, .expert = 4};
  auto const sizes = balanced_sizes(shape, {}, {}, 8, 2);
  EXPECT_EQ(sizes, (DispatchSizes{.num_rows = 8,
                                  .num_own_rows = 4,
                                  .num_choices = 2,
                                  .num_sent = 8,
                                  .num_sent_away = 6,
                                  .num_received = 8,
                                  .num_received_away = 6,
                                  .num_arrived = 16}));
}

} // namespace
} // namespace orthant::testing
