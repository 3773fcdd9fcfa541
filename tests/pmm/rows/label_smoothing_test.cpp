// SPDX-License-Identifier: Apache-2.0
//
// Label smoothing beside the definition of PyTorch's CrossEntropyLoss in serial loops, and its gradient beside finite
// differences; on every grid.
#include "pmm/row_loss_targets.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

constexpr auto smoothing = 0.3;

/// Mean over the labelled rows of group 0 of -sum_j q_j log softmax(z)_j, q_j = (1 - e) [j = y] + e / C.
double serial_loss(Dense const& logits, WholeTargets const& targets) {
  auto sum = 0.0;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    if (targets.group(i) != 0 || targets.label(i) < 0) continue;
    ++count;
    auto exponentials = 0.0;
    for (std::int64_t j = 0; j < logits.columns; ++j)
      exponentials += std::exp(logits(i, j));
    for (std::int64_t j = 0; j < logits.columns; ++j) {
      auto const q =
          (j == targets.label(i) ? 1 - smoothing : 0.0) + smoothing / static_cast<double>(logits.columns);
      sum -= q * (logits(i, j) - std::log(exponentials));
    }
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

class LabelSmoothing : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
  DefaultExec exec_;
};

TEST_P(LabelSmoothing, IsOfLossAndGradientAndNotOfScores) {
  for (auto const& shape : {Extents{29, 7}, Extents{6, 47}, Extents{3, 1}, Extents{0, 4}}) {
    auto const logits =
        make_dense(shape.rows, shape.columns, [](auto i, auto j) { return 4 * small_real(60, i, j); });
    WholeTargets const targets(shape.rows, shape.columns);
    auto const loss = serial_loss(logits, targets);
    // Central differences: an error of about 1e-10, as in row_loss_test.cpp.
    auto const gradient = make_dense(shape.rows, shape.columns, [&](auto i, auto j) {
      auto moved = logits;
      moved(i, j) = logits(i, j) + 1e-5;
      auto const above = serial_loss(moved, targets);
      moved(i, j) = logits(i, j) - 1e-5;
      return (above - serial_loss(moved, targets)) / 2e-5;
    });
    for (auto const& [rows, columns] : axis_set_pairs())
      for (auto const storage : {Storage::replicated, Storage::row_sharded}) {
        Placement const placement{{rows, columns, storage}, shape};
        SCOPED_TRACE(placement.to_string());
        RowLoss<double> plain(grid_, placement, LossKind::softmax, max_row_groups);
        plain.set_targets(targets.part(block_of(grid_, placement)));
        auto smooth = plain;
        smooth.set_label_smoothing(smoothing);
        auto const z = distributed<double>(grid_, placement, logits);
        auto const dz = stained<double>(grid_, placement);
        clear_ledgers(grid_);

        auto const result = smooth.loss_and_gradient(exec_, z, dz);

        auto step = step_of<double>(grid_);
        plan_loss(step, placement, LossKind::softmax);
        EXPECT_EQ(counted_calls(grid_), planned_calls(step)) << "no other calls than without";
        EXPECT_NEAR(result, loss, 1e-13);
        EXPECT_LT(largest_error(dz, gradient), 1e-9);
        auto const scores = smooth.evaluate(exec_, z);
        auto const expected = plain.evaluate(exec_, z);
        for (std::size_t group = 0; group < scores.size(); ++group)
          EXPECT_EQ(scores[group].loss, expected[group].loss);
      }
  }
}

TEST_P(LabelSmoothing, IsRefusedWhereItMeansNothing) {
  Placement const placement{{Axis::x, Axis::y}, {5, 3}};
  RowLoss<double> softmax(grid_, placement, LossKind::softmax);
  EXPECT_THROW(softmax.set_label_smoothing(1), runtime::Error);
  EXPECT_THROW(softmax.set_label_smoothing(-0.1), runtime::Error);
  EXPECT_THROW(softmax.set_label_smoothing(std::nan("")), runtime::Error);
  RowLoss<double> binary(grid_, placement, LossKind::binary);
  EXPECT_THROW(binary.set_label_smoothing(0.1), runtime::Error);
}

INSTANTIATE_TEST_SUITE_P(Grids, LabelSmoothing, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
