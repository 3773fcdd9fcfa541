// SPDX-License-Identifier: Apache-2.0
//
// Flows on shared links, against rates by hand.
#include "pmm/simulate/fair_flows.hpp"

#include <gtest/gtest.h>
#include <utility>
#include <vector>

namespace orthant::testing {
namespace {

using pmm::FairFlows;
using Ends = std::vector<std::pair<int, double>>; // owners and times

Ends ends_of(FairFlows& flows) {
  Ends ends;
  for (auto time = flows.next_end(); time < 1e300; time = flows.next_end())
    do
      ends.emplace_back(flows.end(), time);
    while (flows.has_other_end());
  return ends;
}

TEST(FairFlows, ShareALinkEquallyAndTakeWhatOthersLeave) {
  // Links 0 and 1 carry 10 bytes per second. Both flows have 5 until the first ends at 4 s; the other has 20 bytes left.
  FairFlows flows({10, 10});
  flows.begin(0, {0, 1}, 100, 20, 7);
  flows.begin(0, {0, 1}, 100, 40, 8);
  EXPECT_EQ(ends_of(flows), (Ends{{7, 4}, {8, 6}}));
  EXPECT_GT(flows.next_end(), 1e300);
}

TEST(FairFlows, AreMaxMinFair) {
  // Link 0: flows 1, 2, 3 of at most 10: 10/3 each. Link 1 of 20: flow 3 leaves 50/3, of which flow 4 has at most 5.
  // Links 2 .. 5 are each flow's own. Bytes are such that the first second shows the rates.
  FairFlows flows({10, 20, 1e9, 1e9, 1e9, 1e9});
  flows.begin(0, {0, 2}, 1e9, 10.0 / 3, 1);
  flows.begin(0, {0, 3}, 1e9, 10.0 / 3, 2);
  flows.begin(0, {0, 1}, 1e9, 10.0 / 3, 3);
  flows.begin(0, {1, 4}, 5, 5, 4);
  flows.begin(0, {1, 5}, 1e9, 20 - 10.0 / 3 - 5 + 20 * 2, 5); // what is left, and then the link alone
  auto const ends = ends_of(flows);
  ASSERT_EQ(ends.size(), 5U);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(ends[i].second, 1, 1e-12) << ends[i].first;
  EXPECT_EQ(ends[4].first, 5);
  EXPECT_NEAR(ends[4].second, 3, 1e-12);
}

TEST(FairFlows, MayBeginLater) {
  // Alone until 2 s, then half of the link until 6 s, then alone again.
  FairFlows flows({10, 10, 10});
  flows.begin(0, {0, 1}, 100, 50, 1);
  flows.begin(2, {0, 2}, 100, 20, 2);
  EXPECT_EQ(ends_of(flows), (Ends{{2, 6}, {1, 7}}));
}

TEST(FairFlows, OfNoBytesEndAtOnce) {
  FairFlows flows({10, 10});
  flows.begin(3, {0, 1}, 100, 0, 1);
  EXPECT_EQ(ends_of(flows), (Ends{{1, 3}}));
}

} // namespace
} // namespace orthant::testing
