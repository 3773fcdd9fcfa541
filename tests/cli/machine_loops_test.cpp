// SPDX-License-Identifier: Apache-2.0
//
// The loops that measure the machine do the work that they are credited with.
#include "cli/machine/machine_loops.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

template<class T>
class FmaLoops : public ::testing::Test {};
using Numbers = ::testing::Types<float, double>;
TYPED_TEST_SUITE(FmaLoops, Numbers);

/// What one chain's lanes come to; each chain starts from its number.
template<class T>
T chain_after(std::int64_t steps, int chain) {
  auto x = static_cast<T>(chain);
  for (std::int64_t step = 0; step < steps; ++step)
    x = x * T{0.5} + T{16}; // exact: few bits for few steps
  return x;
}

TYPED_TEST(FmaLoops, ComputeEveryLaneOfEveryChain) {
  constexpr auto num_chains = 12;
  for (auto const& loop : cli::supported_fma_loops<TypeParam>())
    for (std::int64_t const steps : {0, 1, 2, 5}) {
      auto expected = TypeParam{0};
      for (int chain = 0; chain < num_chains; ++chain)
        expected += chain_after<TypeParam>(steps, chain);

      auto const sum = loop.run(steps, TypeParam{0.5}, TypeParam{16});

      auto const num_lanes = loop.flops_per_step / (2 * num_chains);
      EXPECT_EQ(sum, static_cast<TypeParam>(num_lanes) * expected)
          << num_lanes << " lanes, " << steps << " steps";
    }
}

TYPED_TEST(FmaLoops, AreWiderTheNewerTheInstructionSet) {
  auto const loops = cli::supported_fma_loops<TypeParam>();

  ASSERT_FALSE(loops.empty());
  for (std::size_t i = 1; i < loops.size(); ++i)
    EXPECT_EQ(loops[i].flops_per_step, 2 * loops[i - 1].flops_per_step);
}

TEST(GatherLoops, AddEveryNumberOfTheNamedRows) {
  constexpr std::int64_t num_rows = 11;
  constexpr std::int64_t most_ahead = 5;
  for (std::int64_t const lines : {1, 2, 4, 8}) {
    auto const row_floats = lines * cli::floats_per_line;
    std::vector<float> rows(static_cast<std::size_t>(num_rows * row_floats));
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = static_cast<float>(i % 13); // exact sums
    std::vector<std::int32_t> const order{3, 0, 10, 3, 7, 1, 1, 9, 2, 2, 2, 2, 2};
    auto const count = static_cast<std::int64_t>(order.size()) - most_ahead;
    auto expected = 0.0F;
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t j = 0; j < row_floats; ++j)
        expected += rows[static_cast<std::size_t>(order[static_cast<std::size_t>(i)] * row_floats + j)];

    for (auto const& loop : cli::supported_gather_loops())
      for (std::int64_t const ahead : {std::int64_t{0}, std::int64_t{1}, most_ahead})
        EXPECT_EQ(loop.run(rows.data(), lines, order.data(), count, ahead), expected)
            << lines << " lines, " << ahead << " ahead";
  }
}

} // namespace
} // namespace orthant::testing
