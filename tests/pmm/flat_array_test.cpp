// SPDX-License-Identifier: Apache-2.0
//
// Arrays that every rank has whole and of which it updates a piece: cuts, gathers and sums on every grid, with
// small integers, so sums are exact in any order; the calls and arrays beside the lists of them; and matrices and
// vectors whose shards are parts of such an array.
#include "pmm/matrix/flat_array.hpp"

#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/product.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"
#include "support/live_arrays.hpp"

#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

constexpr auto lengths = {0, 1, 5, 24, 101, 1000};

class FlatArrays : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  /// Members of this rank's group are numbered as in its communicator.
  [[nodiscard]] Coordinates member(int rank) const {
    return member_of(grid_.shape(), grid_.coordinates(), group_axes, rank);
  }
  [[nodiscard]] FlatCut cut_of(std::int64_t length) const {
    return {grid_.shape(), grid_.coordinates(), length};
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  ProcessGrid grid_{world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}};
};

void set(runtime::Vector<double> const& numbers, std::vector<double> const& values) {
  ASSERT_EQ(numbers.extent(0), values.size());
  Kokkos::deep_copy(numbers, device_copy(values));
}

std::vector<double> numbers_of(runtime::Vector<double> const& array) {
  auto const host = host_copy(array);
  return {host.data(), host.data() + host.extent(0)};
}

TEST_P(FlatArrays, ArePiecesOfEqualLengthThatNestYThenXThenZ) {
  auto const& shape = grid_.shape();
  for (std::int64_t const length : lengths) {
    auto const num_ranks = shape.size(group_axes);
    std::int64_t size = 0;
    for (int z = 0; z < shape.z; ++z)
      for (int x = 0; x < shape.x; ++x)
        for (int y = 0; y < shape.y; ++y) {
          Coordinates at;
          at.x = x;
          at.y = y;
          at.z = z;
          FlatCut const cut(shape, at, length);
          size = (cut.num_padded) / num_ranks;
          EXPECT_EQ(cut.piece.begin, size * ((y * shape.x + x) * shape.z + z));
          EXPECT_EQ(cut.piece.size(), size);
          EXPECT_EQ(cut.num_padded, size * num_ranks);
          EXPECT_GE(cut.num_padded, length);
          EXPECT_LT(cut.num_padded, length + num_ranks);
        }
    EXPECT_EQ(size == 0, length == 0);
  }
}

TEST_P(FlatArrays, HaveEveryPartOnOneRank) {
  constexpr std::int64_t length = 101;
  for (auto const& [begin, count] :
       {std::pair<std::int64_t, std::int64_t>(0, length), {0, 1}, {37, 20}, {100, 1}, {50, 0}}) {
    std::vector<int> num_owners(static_cast<std::size_t>(count), 0);
    for (int rank = 0; rank < grid_.size(group_axes); ++rank) {
      FlatCut const cut(grid_.shape(), member(rank), length);
      auto const own = cut.own_part(begin, count);
      EXPECT_GE(own.begin, 0);
      EXPECT_LE(own.begin, own.end);
      EXPECT_LE(own.end, count);
      for (auto i = own.begin; i < own.end; ++i) {
        EXPECT_TRUE(cut.piece.contains(begin + i));
        ++num_owners[static_cast<std::size_t>(i)];
      }
    }
    EXPECT_EQ(num_owners, std::vector<int>(static_cast<std::size_t>(count), 1));
  }
}

TEST_P(FlatArrays, AreGatheredToAllRanks) {
  for (std::int64_t const length : lengths) {
    SCOPED_TRACE(length);
    FlatValues<double> const values(grid_, length, "values");
    auto const cut = cut_of(length);
    std::vector<double> mine;
    for (auto i = cut.piece.begin; i < cut.piece.end; ++i)
      mine.push_back(static_cast<double>(3 * i + grid_.coordinate(Axis::data)));
    set(values.piece(), mine);
    clear_ledgers(grid_);
    auto list = step_of<double>(grid_);
    plan_flat_gather(list, length);

    values.gather({});

    std::vector<double> expected;
    for (std::int64_t i = 0; i < cut.num_padded; ++i)
      expected.push_back(static_cast<double>(3 * i + grid_.coordinate(Axis::data)));
    EXPECT_EQ(numbers_of(values.whole()), expected);
    EXPECT_EQ(numbers_of(values.piece()), mine);
    EXPECT_EQ(counted_calls(grid_), planned_calls(list));
  }
}

TEST_P(FlatArrays, AreSummedOverAllRanks) {
  for (std::int64_t const length : lengths) {
    SCOPED_TRACE(length);
    FlatSums<double> const sums(grid_, length, "sums");
    auto const cut = cut_of(length);
    auto const addend = [&](int rank, std::int64_t i) {
      return static_cast<double>((7 * i + 5 * rank) % 11 - 5 + grid_.coordinate(Axis::data));
    };
    std::vector<double> addends;
    for (std::int64_t i = 0; i < cut.num_padded; ++i)
      addends.push_back(addend(grid_.coordinate(group_axes), i));
    auto list = step_of<double>(grid_);
    plan_flat_sum(list, length);
    for (int repeat = 0; repeat < 2; ++repeat) {
      set(sums.whole(), addends);
      clear_ledgers(grid_);

      sums.sum({});

      std::vector<double> expected;
      for (auto i = cut.piece.begin; i < cut.piece.end; ++i) {
        auto sum = 0.0;
        for (int rank = 0; rank < grid_.size(group_axes); ++rank)
          sum += addend(rank, i);
        expected.push_back(sum);
      }
      EXPECT_EQ(numbers_of(sums.piece()), expected);
      EXPECT_EQ(counted_calls(grid_), planned_calls(list));
      // A group of one has the sum where its addends are.
      if (grid_.size(group_axes) > 1) {
        EXPECT_EQ(numbers_of(sums.whole()), addends);
      }
    }
  }
}

TEST_P(FlatArrays, SendEveryNumberOnceInEachDirectionInAFewCalls) {
  auto const num_ranks = std::int64_t{grid_.size(group_axes)};
  auto const length = 10 * num_ranks;
  for (auto const& plan : {plan_flat_gather, plan_flat_sum}) {
    auto list = step_of<double>(grid_);
    plan(list, length);
    std::int64_t sent = 0;
    for (auto const& call : calls_of(list))
      sent += call.sent_bytes;
    EXPECT_EQ(sent, 8 * (length - length / num_ranks));
    EXPECT_LE(calls_of(list).size(), 3U);
  }
}

TEST_P(FlatArrays, HaveTheArraysThatAreListed) {
  if (!runs_on_host) GTEST_SKIP() << "a device's allocator rounds otherwise";
  for (std::int64_t const length : lengths) {
    auto list = step_of<double>(grid_);
    plan_flat_values(list, length, "orthant::values");
    plan_flat_sums(list, length, "orthant::sums");
    LiveArrays const live;
    FlatValues<double> const values(grid_, length, "orthant::values");
    FlatSums<double> const sums(grid_, length, "orthant::sums");
    EXPECT_EQ(live.by_label(), live.planned(list, {Lifetime::training}));
  }
}

/// A matrix and a vector whose shards are parts of an array.
TEST_P(FlatArrays, HoldShardsOfMatricesAndVectors) {
  constexpr Extents extents{7, 5};
  constexpr std::int64_t place = 3;
  constexpr std::int64_t place_of_vector = 38;
  constexpr std::int64_t num_in_vector = 9;
  auto const cut = cut_of(47);
  Placement placement{{{}, {}, Storage::flat_sharded}, extents};
  placement.own_piece = cut.own_part(place, extents.rows * extents.columns);
  auto const own = cut.own_part(place_of_vector, num_in_vector);
  DistMatrix<double> const matrix(grid_, placement, "matrix");
  DistVector<double> const vector(
      grid_, num_in_vector, runtime::Vector<double>("vector", static_cast<std::size_t>(own.size())), own);

  fill(
      DefaultExec(), matrix,
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) { return static_cast<double>(100 * i + j); });

  auto const expected = make_dense(7, 5, [](auto i, auto j) { return static_cast<double>(100 * i + j); });
  EXPECT_EQ(gathered(matrix).numbers, expected.numbers);
  EXPECT_EQ(vector.range(), own);
  EXPECT_TRUE(vector.is_first_replica());
  EXPECT_EQ(runtime::all_reduced(grid_.group(), vector.range().size()), num_in_vector);
  auto const& piece = *placement.own_piece;
  EXPECT_EQ(placement.to_string(),
            fmt::format("7 x 5 [none,none] flat-sharded over group, orders natural/natural, "
                        "own piece {}..{}",
                        piece.begin, piece.end));
  EXPECT_THROW(static_cast<void>(piece_counts(grid_.shape(), grid_.coordinates(), placement)),
               runtime::Error);
  EXPECT_THROW(DistVector<double>(grid_, num_in_vector, runtime::Vector<double>("other", 3)), runtime::Error);
}

TEST_P(FlatArrays, SumTheGradientOfAWeightThatAllRanksReadWhole) {
  // B[-,-] := A[g,-]^T C[g,-], g all ranks: an addend on every rank, and no call until the sum.
  constexpr std::int64_t num_rows = 23;
  Placement const left{{group_axes, {}}, {num_rows, 4}};
  Placement const right{{group_axes, {}}, {num_rows, 3}};
  Placement const weight{{{}, {}, Storage::partial}, {4, 3}};
  auto const whole_a = make_dense(num_rows, 4, [](auto i, auto j) { return small_integer(1, i, j); });
  auto const whole_c = make_dense(num_rows, 3, [](auto i, auto j) { return small_integer(2, i, j); });
  auto const a = distributed<double>(grid_, left, whole_a);
  auto const c = distributed<double>(grid_, right, whole_c);
  FlatSums<double> const sums(grid_, 12, "sums");
  DistMatrix<double> const addend(grid_, weight, sums.whole());
  Product<double> product(grid_, Form::right_grad, left, right, weight);
  clear_ledgers(grid_);

  product.run({}, a, c, addend);

  EXPECT_TRUE(counted_calls(grid_).empty());
  sums.sum({});
  auto const cut = cut_of(12);
  auto const found = numbers_of(sums.piece());
  for (auto i = cut.piece.begin; i < std::min<std::int64_t>(cut.piece.end, 12); ++i) {
    auto expected = 0.0;
    for (std::int64_t k = 0; k < num_rows; ++k)
      expected += whole_a(k, i / 3) * whole_c(k, i % 3);
    EXPECT_EQ(found[static_cast<std::size_t>(i - cut.piece.begin)], expected);
  }
  // What is not summed yet is no operand.
  EXPECT_EQ(weight.to_string(), "4 x 3 [none,none] partial over group, orders natural/natural");
  EXPECT_THROW(Product<double>(grid_, Form::product, left, weight, right), runtime::Error);
}

INSTANTIATE_TEST_SUITE_P(Grids, FlatArrays, ::testing::ValuesIn(grids_4d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
