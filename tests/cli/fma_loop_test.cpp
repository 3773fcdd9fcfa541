// SPDX-License-Identifier: Apache-2.0
//
// The loops that measure arithmetic do the operations that they are credited with.
#include "cli/machine/fma_loop.hpp"

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

} // namespace
} // namespace orthant::testing
