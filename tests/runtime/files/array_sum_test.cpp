// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/hdf5_file.hpp"

#include <gtest/gtest.h>

namespace orthant::runtime {
namespace {

TEST(ArraySum, OfPiecesIsThatOfTheWhole) {
  std::vector<float> const numbers{1, 2, 3, 4, 5, 6};
  std::span<float const> const all(numbers);
  auto const whole = sum_of_box<float>({2, 3}, {0, 0}, {2, 3}, all);
  std::vector<float> const left{1, 4};
  std::vector<float> const right{2, 3, 5, 6};

  EXPECT_EQ(sum_of_box<float>({2, 3}, {0, 0}, {2, 1}, left) +
                sum_of_box<float>({2, 3}, {0, 1}, {2, 2}, right),
            whole);
  EXPECT_NE(sum_of_box<float>({3, 2}, {0, 0}, {3, 2}, all), whole + 1);
  std::vector<float> const exchanged{2, 1, 3, 4, 5, 6};
  EXPECT_NE(sum_of_box<float>({2, 3}, {0, 0}, {2, 3}, exchanged), whole);
}

TEST(ArraySum, OfTheRanksIsTakenModuloTwoToThe64) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const size = static_cast<std::uint64_t>(world.size());
  std::vector<std::uint64_t> sums{~std::uint64_t{0}, static_cast<std::uint64_t>(world.rank())};

  add_up(world, sums);

  EXPECT_EQ(sums, (std::vector<std::uint64_t>{~(size - 1), size * (size - 1) / 2}));
}

} // namespace
} // namespace orthant::runtime
