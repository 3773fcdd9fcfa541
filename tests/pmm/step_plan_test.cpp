// SPDX-License-Identifier: Apache-2.0
//
// Sums over the arrays of a list, worked out by hand.

#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using pmm::Axis;
using pmm::Lifetime;
using pmm::StepPlan;

/// The rank at (x, y, z) = (1, 0, 1) of 2 x 2 x 2.
StepPlan empty_list() {
  return {{1, 2, 2, 2}, {0, 1, 0, 1}, sizeof(float)};
}

TEST(StepPlan, HoldsArraysTogetherThatAreOfOneOperation) {
  auto step = empty_list();
  step.add_array("kept", 100);
  step.add_array("read", 1000, Lifetime::operation);
  step.add_array("read too", 500, Lifetime::operation);
  step.add_array("made of both", 10);
  step.end_operation();
  step.add_array("let go after a step", 1, Lifetime::first_step);
  step.add_array("read later", 1200, Lifetime::operation);

  EXPECT_EQ(bytes_held(step), 111);
  EXPECT_EQ(peak_bytes(step), 1610); // all of the first operation; of the second 111 + 1200
}

TEST(StepPlan, ListsWhatARankStores) {
  auto step = empty_list();

  plan_matrix(step, {{Axis::x, Axis::y}, {5, 3}}, "replicated");
  plan_matrix(step, {{Axis::x, Axis::y, pmm::Storage::flat_sharded}, {5, 3}}, "flat");
  plan_vector(step, Axis::z, 7, "vector");
  step.add_array("nothing", 0);

  // The second part of 5 rows is 2, the first of 3 columns 2; of 4 elements a half; of 7 numbers 3.
  std::vector<pmm::PlannedArray> const expected{{"replicated", 16}, {"flat", 8}, {"vector", 12}};
  EXPECT_EQ(step.arrays(), expected);
}

TEST(StepPlan, AWorkspaceIsTheLongestOfWhatSharesIt) {
  auto step = empty_list();
  pmm::WorkspacePlan work;
  work.reserve(pmm::Slot::left, 5);
  work.reserve(pmm::Slot::left, 3);
  work.reserve(pmm::Slot::result, 2);

  work.list(step);

  ASSERT_EQ(step.arrays().size(), 2U);
  EXPECT_EQ(bytes_held(step), 4 * (5 + 2));
}

} // namespace
} // namespace orthant::testing
