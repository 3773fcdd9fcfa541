// SPDX-License-Identifier: Apache-2.0
//
// Losses, their gradients and scores of groups of rows against serial loops and finite differences; bias and
// norms; on every grid.
#include "row_loss_targets.hpp"

#include "pmm/rows/bias.hpp"
#include "pmm/rows/column_sums.hpp"
#include "pmm/rows/norms.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

/// Labelled rows, correct ones and the mean loss of one group, serially.
GroupScore serial_softmax(Dense const& logits, WholeTargets const& targets, int group) {
  GroupScore metrics;
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    if (targets.group(i) != group || targets.label(i) < 0) continue;
    metrics.loss += softmax_loss(logits, i, targets.label(i));
    metrics.num_correct += arg_max(logits, i) == targets.label(i) ? 1 : 0;
    ++metrics.num_counted;
  }
  if (metrics.num_counted > 0) metrics.loss /= static_cast<double>(metrics.num_counted);
  return metrics;
}

GroupScore serial_binary(Dense const& logits, WholeTargets const& targets, int group) {
  GroupScore metrics;
  for (std::int64_t i = 0; i < logits.rows; ++i)
    for (std::int64_t j = 0; j < logits.columns; ++j) {
      auto const y = targets.indicator(i, j);
      if (targets.group(i) != group || y < 0) continue;
      metrics.loss += binary_loss(logits(i, j), y);
      metrics.num_correct += (logits(i, j) > 0) == (y > 0) ? 1 : 0;
      ++metrics.num_counted;
    }
  if (metrics.num_counted > 0) metrics.loss /= static_cast<double>(metrics.num_counted);
  return metrics;
}

/// The loss of group 0 as RowLoss means it: over rows, and over all classes where several are right.
double serial_loss(Dense const& logits, WholeTargets const& targets, LossKind kind) {
  if (kind == LossKind::softmax) return serial_softmax(logits, targets, 0).loss;
  auto const metrics = serial_binary(logits, targets, 0);
  auto const num_rows = std::count(targets.groups.begin(), targets.groups.end(), 0);
  return num_rows == 0 ? 0
                       : metrics.loss * static_cast<double>(metrics.num_counted) /
                             static_cast<double>(num_rows * logits.columns);
}

class RowLossTest : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
  DefaultExec exec_;

  /// Calls `body(placement)` for all axis pairs and storages that logits can have.
  template<class Body>
  void for_each_placement(Extents const& extents, Body const& body) {
    for (auto const& [rows, columns] : axis_set_pairs())
      for (auto const storage : {Storage::replicated, Storage::row_sharded})
        body(Placement{{rows, columns, storage}, extents});
  }
};

constexpr Extents extents{29, 7};

/// Fewer and more classes than the lanes of a warp hold.
std::vector<std::pair<Extents, LossKind>> shapes_and_kinds() {
  std::vector<std::pair<Extents, LossKind>> result;
  for (auto const& shape : {extents, Extents{6, 47}, Extents{3, 130}, Extents{0, 4}})
    for (auto const kind : {LossKind::softmax, LossKind::binary})
      result.emplace_back(shape, kind);
  return result;
}

TEST_P(RowLossTest, LossAndGradientEqualSerialOnes) {
  for (auto const& [shape, kind] : shapes_and_kinds()) {
    auto const [num_rows, num_columns] = shape;
    auto const logits =
        make_dense(num_rows, num_columns, [](auto i, auto j) { return 4 * small_real(60, i, j); });
    WholeTargets const targets(num_rows, num_columns);
    auto const loss = serial_loss(logits, targets, kind);
    // Central differences of the serial loss: error h^2/6 |f'''| + 2^-53/h, about 1e-10 at h = 1e-5.
    auto const gradient = make_dense(num_rows, num_columns, [&](auto i, auto j) {
      auto moved = logits;
      moved(i, j) = logits(i, j) + 1e-5;
      auto const above = serial_loss(moved, targets, kind);
      moved(i, j) = logits(i, j) - 1e-5;
      return (above - serial_loss(moved, targets, kind)) / 2e-5;
    });
    for_each_placement(shape, [&](Placement const& placement) {
      RowLoss<double> row_loss(grid_, placement, kind, max_row_groups);
      row_loss.set_targets(targets.part(block_of(grid_, placement)));
      auto const z = distributed<double>(grid_, placement, logits);
      auto const dz = stained<double>(grid_, placement);
      clear_ledgers(grid_);

      auto const result = row_loss.loss_and_gradient(exec_, z, dz);

      auto step = step_of<double>(grid_);
      plan_loss(step, placement, kind);
      EXPECT_EQ(counted_calls(grid_), planned_calls(step)) << placement.to_string();
      EXPECT_NEAR(result, loss, 1e-13) << placement.to_string();
      EXPECT_LT(largest_error(dz, gradient), 1e-9) << placement.to_string();
      EXPECT_EQ(largest_error(z, logits), 0) << "logits are kept";
      EXPECT_EQ(row_loss.loss_and_gradient(exec_, z, z), result) << "in place";
      EXPECT_LT(largest_error(z, gradient), 1e-9) << "in place";
    });
  }
}

TEST_P(RowLossTest, ABatchIsCountedWithItsLoss) {
  for (auto const& [shape, kind] : shapes_and_kinds()) {
    auto const logits =
        make_dense(shape.rows, shape.columns, [](auto i, auto j) { return 4 * small_real(60, i, j); });
    WholeTargets const whole(shape.rows, shape.columns);
    for_each_placement(shape, [&](Placement const& placement) {
      auto const targets = whole.part(block_of(grid_, placement));
      auto const groups = host_copy(targets.groups);
      auto const classes = host_copy(targets.classes);
      auto const z = distributed<double>(grid_, placement, logits);
      auto const dz = stained<double>(grid_, placement);
      RowLoss<double> row_loss(grid_, placement, kind, max_row_groups);
      row_loss.set_targets(targets);
      auto const num_rows = row_loss.num_rows(0);
      auto const loss = row_loss.loss_and_gradient(exec_, z, dz);
      clear_ledgers(grid_);

      row_loss.set_batch_targets(targets, {{groups.data(), groups.size()}, {classes.data(), classes.size()}});

      EXPECT_EQ(counted_calls(grid_), CallTotals{}) << "nothing is communicated";
      EXPECT_THROW(static_cast<void>(row_loss.num_rows(0)), runtime::Error);
      Vector<double> const loss_and_count("orthant::testing::loss_and_count", 2);
      row_loss.loss_and_gradient(exec_, z, dz, num_rows, loss_and_count);
      EXPECT_NEAR(host_copy(loss_and_count)(0), loss, 1e-13) << placement.to_string();
      EXPECT_EQ(host_copy(loss_and_count)(1), num_rows) << placement.to_string();
    });
  }
}

// Rows that count 2 double the loss and the count; rows that count 0 are as good as not there.
TEST_P(RowLossTest, RowsOfABatchHaveWeights) {
  for (auto const& [shape, kind] : shapes_and_kinds()) {
    auto const logits =
        make_dense(shape.rows, shape.columns, [](auto i, auto j) { return 4 * small_real(60, i, j); });
    WholeTargets const whole(shape.rows, shape.columns);
    auto even_rows = whole;
    for (std::size_t i = 1; i < even_rows.groups.size(); i += 2)
      even_rows.groups[i] = no_row_group;
    for_each_placement(shape, [&](Placement const& placement) {
      auto const rows = block_of(grid_, placement).stored_rows;
      auto const z = distributed<double>(grid_, placement, logits);
      auto const dz = stained<double>(grid_, placement);
      auto const expected_dz = stained<double>(grid_, placement);
      RowLoss<double> row_loss(grid_, placement, kind, max_row_groups);
      row_loss.set_targets(even_rows.part(block_of(grid_, placement)));
      auto const num_rows = row_loss.num_rows(0);
      auto const loss = row_loss.loss_and_gradient(exec_, z, expected_dz);
      std::vector<double> weights;
      for (auto row = rows.begin; row < rows.end; ++row)
        weights.push_back(row % 2 == 0 ? 2 : 0);
      auto targets = whole.part(block_of(grid_, placement));
      targets.weights = device_copy(weights);
      auto const groups = host_copy(targets.groups);
      auto const classes = host_copy(targets.classes);

      row_loss.set_batch_targets(targets,
                                 {{groups.data(), groups.size()}, {classes.data(), classes.size()}, weights});
      Vector<double> const loss_and_count("orthant::testing::loss_and_count", 2);
      row_loss.loss_and_gradient(exec_, z, dz, 2 * num_rows, loss_and_count);

      EXPECT_NEAR(host_copy(loss_and_count)(0), loss, 1e-13) << placement.to_string();
      EXPECT_EQ(host_copy(loss_and_count)(1), 2 * num_rows) << placement.to_string();
      for (std::size_t i = 0; i < static_cast<std::size_t>(dz.block().num_stored); ++i)
        EXPECT_NEAR(host_copy(dz.storage())(i), host_copy(expected_dz.storage())(i), 1e-15);
    });
  }
}

TEST_P(RowLossTest, ScoresOfAllGroupsEqualSerialOnes) {
  // Integers: many ties, across ranks too.
  for (auto const& [shape, kind] : shapes_and_kinds())
    for (int num_groups = shape == extents ? 1 : max_row_groups; num_groups <= max_row_groups; ++num_groups) {
      auto const [num_rows, num_columns] = shape;
      auto const logits =
          make_dense(num_rows, num_columns, [](auto i, auto j) { return small_integer(61, i, j); });
      WholeTargets const targets(num_rows, num_columns, num_groups);
      for_each_placement(shape, [&](Placement const& placement) {
        SCOPED_TRACE(::testing::Message() << num_groups << " groups, " << placement.to_string());
        RowLoss<double> row_loss(grid_, placement, kind, num_groups);
        row_loss.set_targets(targets.part(block_of(grid_, placement)));
        clear_ledgers(grid_);

        auto const scores = row_loss.evaluate(exec_, distributed<double>(grid_, placement, logits));

        auto step = step_of<double>(grid_);
        plan_scores(step, placement, kind, num_groups);
        EXPECT_EQ(counted_calls(grid_), planned_calls(step));
        ASSERT_EQ(scores.size(), static_cast<std::size_t>(num_groups));
        for (int group = 0; group < num_groups; ++group) {
          auto const expected = kind == LossKind::softmax ? serial_softmax(logits, targets, group)
                                                          : serial_binary(logits, targets, group);
          auto const& result = scores[static_cast<std::size_t>(group)];
          EXPECT_EQ(result.num_counted, expected.num_counted);
          EXPECT_EQ(result.num_correct, expected.num_correct);
          EXPECT_NEAR(result.loss, expected.loss, 1e-13);
          if (kind == LossKind::softmax) {
            EXPECT_EQ(row_loss.num_rows(group), expected.num_counted);
          }
        }
      });
    }
}

TEST_P(RowLossTest, HugeLogitsNeitherOverflowNorLoseTheLoss) {
  auto const logits = make_dense(5, 3, [](auto i, auto j) { return j == i % 3 ? 3e4 : -3e4; });
  Placement const placement{{Axis::y, Axis::z}, {5, 3}};
  auto const block = block_of(grid_, placement);
  auto const num_rows = static_cast<std::size_t>(block.stored_rows.size());
  RowTargets targets;
  targets.groups = device_copy(std::vector<std::int8_t>(num_rows, 0));
  targets.classes = device_copy(std::vector<std::int32_t>(num_rows, 0));
  RowLoss<float> row_loss(grid_, placement, LossKind::softmax);
  row_loss.set_targets(targets);
  auto const z = distributed<float>(grid_, placement, logits);

  auto const loss = row_loss.loss_and_gradient(exec_, z, z);

  // Rows 0 and 3 are right (loss 0); the three others miss by 6e4.
  EXPECT_FLOAT_EQ(static_cast<float>(loss), 3 * 6e4F / 5);
  EXPECT_LT(largest_error(z, make_dense(5, 3,
                                        [](auto i, auto j) {
                                          return ((j == i % 3 ? 1.0 : 0.0) - (j == 0 ? 1.0 : 0.0)) / 5;
                                        })),
            1e-7);
}

TEST_P(RowLossTest, NaNReachesTheLossOnEveryRank) {
  auto logits = make_dense(9, 4, [](auto i, auto j) { return small_real(62, i, j); });
  logits(4, 2) = std::nan("");
  Placement const placement{{Axis::x, Axis::z}, {9, 4}};
  auto const num_rows = static_cast<std::size_t>(block_of(grid_, placement).stored_rows.size());
  RowTargets targets;
  targets.groups = device_copy(std::vector<std::int8_t>(num_rows, 0));
  targets.classes = device_copy(std::vector<std::int32_t>(num_rows, 1));
  RowLoss<double> row_loss(grid_, placement, LossKind::softmax);
  row_loss.set_targets(targets);
  auto const z = distributed<double>(grid_, placement, logits);

  auto const here = std::isnan(row_loss.loss_and_gradient(exec_, z, z)) ? 1 : 0;

  EXPECT_EQ(here, 1);
}

TEST_P(RowLossTest, AnEmptyGroupGivesZero) {
  Placement const placement{{Axis::x, Axis::y}, {4, 3}};
  auto const num_rows = static_cast<std::size_t>(block_of(grid_, placement).stored_rows.size());
  RowTargets targets;
  targets.groups = device_copy(std::vector<std::int8_t>(num_rows, no_row_group));
  targets.classes = device_copy(std::vector<std::int32_t>(num_rows, 1));
  RowLoss<double> row_loss(grid_, placement, LossKind::softmax);
  row_loss.set_targets(targets);
  auto const z = distributed<double>(grid_, placement, make_dense(4, 3, [](auto, auto) { return 1.0; }));

  EXPECT_EQ(row_loss.num_rows(0), 0);
  EXPECT_EQ(row_loss.loss_and_gradient(exec_, z, z), 0);
  EXPECT_EQ(largest_error(z, Dense(4, 3)), 0);
  auto const score = row_loss.evaluate(exec_, z).at(0);
  EXPECT_EQ(score.num_counted + score.num_correct, 0);
  EXPECT_EQ(score.loss, 0);
}

TEST_P(RowLossTest, ADenominatorOfSeveralGroupsScalesLossAndGradient) {
  auto const logits = make_dense(29, 7, [](auto i, auto j) { return small_real(63, i, j); });
  WholeTargets const targets(29, 7, 1);
  Placement const placement{{Axis::z, Axis::y}, extents};
  RowLoss<double> row_loss(grid_, placement, LossKind::softmax);
  row_loss.set_targets(targets.part(block_of(grid_, placement)));
  auto const z = distributed<double>(grid_, placement, logits);
  auto const dz = stained<double>(grid_, placement);
  auto const quarter = stained<double>(grid_, placement);

  auto const loss = row_loss.loss_and_gradient(exec_, z, dz);
  auto const scaled = row_loss.loss_and_gradient(exec_, z, quarter, 4 * row_loss.num_rows(0));

  EXPECT_NEAR(4 * scaled, loss, 1e-14);
  auto const expected = gathered(dz);
  EXPECT_LT(largest_error(quarter, make_dense(29, 7, [&](auto i, auto j) { return expected(i, j) / 4; })),
            1e-16);
}

TEST_P(RowLossTest, BadTargetsAreRefusedOnAllRanks) {
  Placement const placement{{Axis::x, Axis::y}, {6, 3}};
  auto const rows = block_of(grid_, placement).stored_rows;
  std::vector<std::int8_t> const groups(static_cast<std::size_t>(rows.size()), 0);
  std::vector<std::int32_t> classes(static_cast<std::size_t>(rows.size()), 2);
  if (rows.contains(5)) classes.back() = 3; // beyond the classes, known on some ranks only
  RowTargets targets{device_copy(groups), device_copy(classes), {}};
  RowLoss<double> row_loss(grid_, placement, LossKind::softmax);
  EXPECT_THROW(row_loss.set_targets(targets), runtime::Error);
  auto const z = stained<double>(grid_, placement);
  EXPECT_THROW(static_cast<void>(row_loss.evaluate(exec_, z)), runtime::Error) << "no targets";
  EXPECT_THROW(RowLoss<double>(grid_, {{Axis::x, Axis::y, Storage::flat_sharded}, {6, 3}}, LossKind::softmax),
               runtime::Error);
}

TEST_P(RowLossTest, RowsOfAGroupThatTheLossDoesNotHaveAreRefused) {
  Placement const placement{{Axis::x, Axis::y}, {16, 3}}; // rows on every rank
  auto const num_rows = static_cast<std::size_t>(block_of(grid_, placement).stored_rows.size());
  std::vector<std::int32_t> const classes(num_rows, 2);
  for (int num_groups = 1; num_groups <= max_row_groups; ++num_groups)
    for (auto const group : {-2, -1, num_groups - 1, num_groups}) {
      std::vector<std::int8_t> const groups(num_rows, static_cast<std::int8_t>(group));
      RowTargets const targets{device_copy(groups), device_copy(classes), {}};
      RowLoss<double> loss(grid_, placement, LossKind::softmax, num_groups);
      if (group == -1 || group == num_groups - 1) {
        EXPECT_NO_THROW(loss.set_targets(targets)) << group << " of " << num_groups;
        EXPECT_NO_THROW(loss.set_batch_targets(targets, {groups, classes}));
      } else {
        EXPECT_THROW(loss.set_targets(targets), runtime::Error) << group << " of " << num_groups;
        EXPECT_THROW(loss.set_batch_targets(targets, {groups, classes}), runtime::Error);
      }
    }
  for (int const num_groups : {0, max_row_groups + 1})
    EXPECT_THROW(RowLoss<double>(grid_, placement, LossKind::softmax, num_groups), runtime::Error);
}

TEST_P(RowLossTest, BiasIsAddedAndItsGradientSummed) {
  auto const z = make_dense(17, 11, [](auto i, auto j) { return small_integer(64, i, j); });
  for_each_placement({17, 11}, [&](Placement const& placement) {
    DistVector<double> bias(grid_, placement.layout.columns, 11, "bias");
    auto const range = bias.range();
    std::vector<double> values;
    for (auto j = range.begin; j < range.end; ++j)
      values.push_back(static_cast<double>(10 * j));
    Kokkos::deep_copy(bias.local(), device_copy(values));
    auto const matrix = distributed<double>(grid_, placement, z);
    DistVector<double> gradient(grid_, placement.layout.columns, 11, "gradient");
    Workspace<double> work;
    reserve_column_sums(work, matrix.block().stored_rows.size(), matrix.block().columns.size());
    clear_ledgers(grid_);

    sum_rows(exec_, matrix, gradient, work);
    auto step = step_of<double>(grid_);
    plan_reduce_sums(step, placement);
    EXPECT_EQ(counted_calls(grid_), planned_calls(step));
    add_bias(exec_, matrix, bias);

    EXPECT_EQ(largest_error(
                  matrix,
                  make_dense(17, 11, [&](auto i, auto j) { return z(i, j) + static_cast<double>(10 * j); })),
              0);
    auto const sums = host_copy(gradient.local());
    for (auto j = range.begin; j < range.end; ++j) {
      auto expected = 0.0;
      for (std::int64_t i = 0; i < 17; ++i)
        expected += z(i, j);
      EXPECT_EQ(sums(static_cast<std::size_t>(j - range.begin)), expected) << placement.to_string();
    }
    DistVector<double> const other(grid_, placement.layout.rows, 11, "other");
    if (other.axes() == bias.axes()) return; // rows and columns are whole
    EXPECT_THROW(add_bias(exec_, matrix, other), runtime::Error);
  });
}

TEST_P(RowLossTest, NormsCountReplicasOnceAndNoPadding) {
  auto const whole = make_dense(13, 9, [](auto i, auto j) { return small_integer(65, i, j); });
  auto squares = 0.0;
  for (auto const number : whole.numbers)
    squares += number * number;
  for (auto const& [rows, columns] : axis_set_pairs())
    for (auto const storage : all_storages) {
      auto const matrix = distributed<float>(grid_, {{rows, columns, storage}, {13, 9}}, whole);
      DistVector<float> const vector(grid_, columns, 9, "vector");
      Kokkos::deep_copy(vector.local(), 2.0F);
      Vector<double> const device_sums("sums", 2);
      Kokkos::deep_copy(device_sums, -1.0);

      local_squared_norm(exec_, matrix, device_sums, 0);
      local_squared_norm(exec_, vector, device_sums, 1);
      sum_over_group(exec_, grid_, device_sums);

      auto const sums = host_copy(device_sums);
      EXPECT_EQ(sums(0), squares) << matrix.placement().to_string();
      EXPECT_EQ(sums(1), 36);
    }
}

INSTANTIATE_TEST_SUITE_P(Grids, RowLossTest, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
