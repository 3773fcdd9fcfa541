// SPDX-License-Identifier: Apache-2.0
//
// Bytes of an epoch, worked out by hand. That they are what the ledgers count: gcn_step_test.cpp.
#include "models/plan/predicted_bytes.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

/// 10 vertices, 6 features, 4 hidden numbers, 2 classes.
models::NetworkShape small_shape() {
  models::NetworkShape shape;
  shape.num_vertices = 10;
  shape.widths = {6, 4, 2};
  shape.has_input_dropout = true;
  return shape;
}

models::NetworkSettings small_settings() {
  models::NetworkSettings settings;
  settings.hidden_widths = {4};
  settings.dropout = 0.5;
  return settings;
}

using Bytes = std::array<std::int64_t, 3>;

TEST(EpochBytes, AggregatingFirstSendsTheBytesWorkedOutByHand) {
  auto const plan = models::plan_network(small_shape(), models::ProductOrder::aggregate_first);
  auto const settings = small_settings();

  // 2 x 2 x 1 ranks. Layer 0 has (a, b, c) = (x, y, z): H is 10 x 6/2 = 30 numbers along x, Q is 10 x 4/2 =
  // 20 along y; W is cut along z, which has one rank; its bias is summed along z. Layer 1 has (a, b, c) = (z,
  // x, y): W is 4/2 x 2 = 4 along y, gathered twice and its gradient scattered; H goes along z; Q is 10/2 x 2
  // = 10 along x; dF is 10 x 4/2 = 20 along y; the bias of 2 along y. Loss: rows lie along y: one double;
  // classes along z. A rank: x 30 + 10 = 40 numbers; y 20 + 3 4 + 20 + 2 = 54 numbers and a double.
  EXPECT_EQ(predicted_bytes<double>({1, 2, 2, 1}, plan, settings), (Bytes{4 * 320, 4 * 440, 0}));
  EXPECT_EQ(predicted_bytes<float>({1, 2, 2, 1}, plan, settings), (Bytes{4 * 160, 4 * 224, 0}));
  // 1 x 1 x 2 ranks. Layer 0: W, 6 x 4 = 24 along z, is gathered and its gradient scattered; its bias of 4.
  // Layer 1: H is 10 x 4 = 40 along z, and so is dH. Loss: a maximum, a sum and a logit of 10 rows along
  // z: 30. A rank: 24 + 24 + 4 + 40 + 40 + 30 = 162 numbers.
  EXPECT_EQ(predicted_bytes<double>({1, 1, 1, 2}, plan, settings), (Bytes{0, 0, 2 * 1296}));
  EXPECT_EQ(predicted_bytes<double>({1, 1, 1, 1}, plan, settings), (Bytes{0, 0, 0}));
}

TEST(EpochBytes, ANormSendsANumberPerRowTwiceAndOnePerColumn) {
  auto const plan = models::plan_network(small_shape(), models::ProductOrder::aggregate_first);
  auto without = small_settings();
  auto with = without;
  with.norm = models::Norm::rms;

  // Layer 0's output is 10/z x 4/x. 2 x 1 x 1 ranks: 2 10 numbers along x. 1 x 1 x 2: 4 along z.
  auto const added = [&](pmm::GridShape const& shape) {
    auto bytes = predicted_bytes<double>(shape, plan, with);
    auto const base = predicted_bytes<double>(shape, plan, without);
    for (std::size_t axis = 0; axis < bytes.size(); ++axis)
      bytes[axis] -= base[axis];
    return bytes;
  };
  EXPECT_EQ(added({1, 2, 1, 1}), (Bytes{2 * 160, 0, 0}));
  EXPECT_EQ(added({1, 1, 1, 2}), (Bytes{0, 0, 2 * 32}));
}

} // namespace
} // namespace orthant::testing
