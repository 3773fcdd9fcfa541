// SPDX-License-Identifier: Apache-2.0
//
// Label smoothing, class weights, z-loss, binary and focal losses compared with PyTorch, with their definitions in serial loops,
// and with derivatives of these; on every grid.
#include "pmm/row_loss_targets.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <gtest/gtest.h>
#include <ranges>

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
  EXPECT_THROW(softmax.set_focal_gamma(2), runtime::Error);
  EXPECT_THROW(softmax.set_z_loss(-1), runtime::Error);
  EXPECT_THROW(RowLoss<double>(grid_, placement, LossKind::binary).set_z_loss(1), runtime::Error);
}

struct LossParts {
  LossKind kind;
  bool has_weights;
  double smoothing;
  double gamma;
};

double weight_of_class(std::int64_t j) {
  return 0.5 + 0.25 * static_cast<double>(j % 4);
}

/// -log p of a label y in [0, 1] of one entry, times (1 - p')^gamma, p' = s y + (1 - s) (1 - y).
double entry_loss(double z, double y, double gamma) {
  auto const s = 1 / (1 + std::exp(-z));
  return -(y * std::log(s) + (1 - y) * std::log(1 - s)) * std::pow(1 - (s * y + (1 - s) * (1 - y)), gamma);
}

/// The sum over the counted rows, divided by them, and by the classes if it is one of entries.
double loss_of_parts(Dense const& logits, WholeTargets const& targets, LossParts const& parts) {
  auto const num_classes = static_cast<double>(logits.columns);
  auto const weight = [&](std::int64_t j) { return parts.has_weights ? weight_of_class(j) : 1; };
  auto sum = 0.0, count = 0.0;
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    if (targets.group(i) != 0 || (parts.kind != LossKind::binary && targets.label(i) < 0)) continue;
    ++count;
    auto exponentials = 0.0;
    for (std::int64_t j = 0; j < logits.columns; ++j)
      exponentials += std::exp(logits(i, j));
    for (std::int64_t j = 0; j < logits.columns; ++j) {
      auto const is_label = j == targets.label(i);
      if (parts.kind == LossKind::softmax) {
        auto const q = (is_label ? 1 - parts.smoothing : 0) + parts.smoothing / num_classes;
        sum -= weight(j) * q * (logits(i, j) - std::log(exponentials));
      } else {
        auto const label = parts.kind == LossKind::one_hot ? (is_label ? 1 : 0) : targets.indicator(i, j);
        auto const y = (1 - parts.smoothing) * label + parts.smoothing / 2;
        if (label >= 0) sum += weight(j) * entry_loss(logits(i, j), y, parts.gamma) / num_classes;
      }
    }
  }
  return count == 0 ? 0 : sum / count;
}

RowLoss<double> loss_from(LossParts const& parts, ProcessGrid const& grid, Placement const& placement,
                          WholeTargets const& targets, std::vector<double> const& weights) {
  RowLoss<double> loss(grid, placement, parts.kind, max_row_groups);
  loss.set_targets(targets.part(block_of(grid, placement)));
  if (parts.has_weights) loss.set_class_weights(device_copy(weights));
  loss.set_label_smoothing(parts.smoothing);
  if (parts.gamma > 0) loss.set_focal_gamma(parts.gamma);
  return loss;
}

/// Three rows with classes 0, 1 and 0, and indicators 101, 011 and 000.
WholeTargets three_rows() {
  WholeTargets targets(3, 3);
  targets.groups = {0, 0, 0};
  targets.classes = {0, 1, 0};
  targets.indicator = make_dense(3, 3, [](auto i, auto j) {
    constexpr std::array<std::array<int, 3>, 3> rows{{{1, 0, 1}, {0, 1, 1}, {0, 0, 0}}};
    return rows.at(static_cast<std::size_t>(i)).at(static_cast<std::size_t>(j));
  });
  return targets;
}

struct TorchLoss {
  LossParts parts;
  double loss;
  std::array<double, 9> gradient;
};

/// PyTorch 2 in fp64, for z_ij = ((7 i + 3 j) mod 11 - 5) / 4 and class weights 3/4, 3/2 and 1 (mean 1 over the rows):
/// cross_entropy(z, classes, weights, label_smoothing), binary_cross_entropy_with_logits(z, t, weights), and the mean of
/// weights * binary_cross_entropy_with_logits(z, t) * (1 - p)^gamma with p = s t + (1 - s) (1 - t).
std::vector<TorchLoss> losses_of_torch() {
  return {
      {{LossKind::softmax, true, 0, 0},
       1.25139073601581,
       {-0.217099588213271, 0.0696501722990683, 0.147449415914203, 0.146907387355745, -0.188997058527364,
        0.0420896711716189, -0.217099588213271, 0.0696501722990683, 0.147449415914203}},
      {{LossKind::softmax, true, 0.3, 0},
       1.27722221359882,
       {-0.162712866641708, 0.028936861938944, 0.133776004702764, 0.109665105076099, -0.11491397031675,
        0.00524886524065067, -0.162712866641708, 0.028936861938944, 0.133776004702764}},
      {{LossKind::one_hot, true, 0, 0},
       0.826839180988627,
       {-0.0647749884312243, 0.0629234447996909, 0.0624640556539776, 0.0518716109334879, -0.0371166898042182,
        0.0356468112027341, -0.0518716109334879, 0.0936960834809663, 0.0812287309588894}},
      {{LossKind::binary, true, 0.3, 0},
       0.837603069877516,
       {-0.0522749884312243, 0.0379234447996909, -0.0319803887904669, 0.0393716109334879, -0.0121166898042182,
        -0.0587976332417103, 0.0189617223998455, 0.0686960834809663, 0.0645620642922228}},
      {{LossKind::binary, false, 0, 2},
       0.336692555833015,
       {-0.0970914289402217, 0.0153263330389905, -0.0231173754583183, 0.0584613135416203,
        -0.00338542841470916, -0.0721982583604226, 0.0153263330389905, 0.0451381570002252,
        0.0853594136888131}},
      {{LossKind::one_hot, true, 0.3, 0.5},
       0.605911598682026,
       {-0.0515176039214947, 0.036103640303624, 0.0440003064082491, 0.0381842245563199, -0.014724328555314,
        0.0185302862615336, -0.0381842245563199, 0.0660004596123736, 0.0634533443054155}},
  };
}

TEST_P(LabelSmoothing, AndOtherLossesAreThoseOfPyTorch) {
  auto const logits =
      make_dense(3, 3, [](auto i, auto j) { return (static_cast<double>((7 * i + 3 * j) % 11) - 5) / 4; });
  auto const targets = three_rows();
  for (auto const& [parts, loss, gradient] : losses_of_torch()) {
    auto const expected =
        make_dense(3, 3, [&](auto i, auto j) { return gradient.at(static_cast<std::size_t>(3 * i + j)); });
    for (auto const& [rows, columns] : axis_set_pairs()) {
      Placement const placement{{rows, columns}, {3, 3}};
      SCOPED_TRACE(placement.to_string() + ", loss " + std::to_string(loss));
      auto of_parts = loss_from(parts, grid_, placement, targets, {0.75, 1.5, 1});
      auto const z = distributed<double>(grid_, placement, logits);
      auto const dz = stained<double>(grid_, placement);

      EXPECT_NEAR(of_parts.loss_and_gradient(exec_, z, dz), loss, 1e-13);
      EXPECT_LT(largest_error(dz, expected), 1e-13);
    }
  }
}

TEST_P(LabelSmoothing, GoesWithClassWeightsAndLossesOfEntries) {
  Extents const shape{29, 7};
  auto const logits =
      make_dense(shape.rows, shape.columns, [](auto i, auto j) { return 4 * small_real(60, i, j); });
  WholeTargets const targets(shape.rows, shape.columns);
  std::vector<double> weights;
  for (std::int64_t j = 0; j < shape.columns; ++j)
    weights.push_back(weight_of_class(j));
  for (auto const& parts : {LossParts{LossKind::softmax, true, 0, 0},
                            {LossKind::softmax, true, 0.3, 0},
                            {LossKind::binary, true, 0, 0},
                            {LossKind::binary, false, 0.3, 0},
                            {LossKind::binary, true, 0.3, 2},
                            {LossKind::one_hot, false, 0, 0},
                            {LossKind::one_hot, false, 0, 2},
                            {LossKind::one_hot, true, 0.3, 1.5}}) {
    auto const loss = loss_of_parts(logits, targets, parts);
    auto const gradient = make_dense(shape.rows, shape.columns, [&](auto i, auto j) {
      auto moved = logits;
      moved(i, j) = logits(i, j) + 1e-5;
      auto const above = loss_of_parts(moved, targets, parts);
      moved(i, j) = logits(i, j) - 1e-5;
      return (above - loss_of_parts(moved, targets, parts)) / 2e-5;
    });
    for (auto const& [rows, columns] : axis_set_pairs()) {
      Placement const placement{{rows, columns}, shape};
      SCOPED_TRACE(placement.to_string() + ", kind " + std::to_string(static_cast<int>(parts.kind)));
      auto of_parts = loss_from(parts, grid_, placement, targets, weights);
      auto const z = distributed<double>(grid_, placement, logits);
      auto const dz = stained<double>(grid_, placement);
      clear_ledgers(grid_);

      auto const result = of_parts.loss_and_gradient(exec_, z, dz);

      auto step = step_of<double>(grid_);
      plan_loss(step, placement, parts.kind);
      EXPECT_EQ(counted_calls(grid_), planned_calls(step));
      EXPECT_NEAR(result, loss, 1e-13);
      EXPECT_LT(largest_error(dz, gradient), 1e-9);
      if (parts.kind != LossKind::one_hot) continue;
      RowLoss<double> softmax(grid_, placement, LossKind::softmax, max_row_groups);
      softmax.set_targets(targets.part(block_of(grid_, placement)));
      auto const scores = of_parts.evaluate(exec_, z), expected = softmax.evaluate(exec_, z);
      for (std::size_t group = 0; group < scores.size(); ++group) {
        EXPECT_EQ(scores[group].loss, expected[group].loss);
        EXPECT_EQ(scores[group].num_correct, expected[group].num_correct);
      }
    }
  }
}

/// Sum over the labeled rows of group 0 of Q L - sum_j q_j z_j + c w_y L^2, L = log sum_j exp(z_j).
/// `logits` are complex, so that the derivative by a logit is the imaginary part that a small imaginary step causes.
std::complex<double> z_loss_of(std::vector<std::complex<double>> const& logits, WholeTargets const& targets,
                               std::vector<double> const& weights, double e, double c) {
  auto const num_classes = weights.size();
  std::complex<double> sum = 0;
  for (std::size_t i = 0; i < logits.size() / num_classes; ++i) {
    if (targets.groups[i] != 0 || targets.classes[i] < 0) continue;
    auto const label = static_cast<std::size_t>(targets.classes[i]);
    auto const* const z = logits.data() + i * num_classes;
    std::complex<double> exponentials = 0, of_targets = 0;
    auto of_row = 0.0;
    for (std::size_t j = 0; j < num_classes; ++j) {
      auto const q = weights[j] * ((j == label ? 1 - e : 0.0) + e / static_cast<double>(num_classes));
      exponentials += std::exp(z[j]);
      of_targets += q * z[j];
      of_row += q;
    }
    auto const log_sum = std::log(exponentials);
    sum += of_row * log_sum - of_targets + c * weights[label] * log_sum * log_sum;
  }
  return sum;
}

TEST_P(LabelSmoothing, GoesWithAZLossOfTheLogits) {
  constexpr auto c = 0.05, step_size = 1e-100;
  Extents const shape{29, 7};
  auto const logits =
      make_dense(shape.rows, shape.columns, [](auto i, auto j) { return 3 + 4 * small_real(60, i, j); });
  WholeTargets const targets(shape.rows, shape.columns);
  auto const num_rows =
      static_cast<double>(std::ranges::count_if(std::views::iota(std::int64_t{0}, shape.rows), [&](auto i) {
        return targets.group(i) == 0 && targets.label(i) >= 0;
      }));
  for (auto const& parts : {LossParts{LossKind::softmax, false, 0, 0},
                            {LossKind::softmax, false, 0.3, 0},
                            {LossKind::softmax, true, 0, 0},
                            {LossKind::softmax, true, 0.3, 0}}) {
    std::vector<double> weights;
    for (std::int64_t j = 0; j < shape.columns; ++j)
      weights.push_back(parts.has_weights ? weight_of_class(j) : 1);
    auto const reference = [&](std::int64_t row, std::int64_t column) {
      std::vector<std::complex<double>> z(logits.numbers.begin(), logits.numbers.end());
      if (row >= 0) z[static_cast<std::size_t>(row * shape.columns + column)] += std::complex(0.0, step_size);
      return z_loss_of(z, targets, weights, parts.smoothing, c) / num_rows;
    };
    auto const gradient = make_dense(shape.rows, shape.columns,
                                     [&](auto i, auto j) { return reference(i, j).imag() / step_size; });
    for (auto const& [rows, columns] : axis_set_pairs())
      for (auto const storage : {Storage::replicated, Storage::row_sharded}) {
        Placement const placement{{rows, columns, storage}, shape};
        SCOPED_TRACE(placement.to_string());
        auto plain = loss_from(parts, grid_, placement, targets, weights);
        auto loss = plain;
        loss.set_z_loss(c);
        auto const z = distributed<double>(grid_, placement, logits);
        auto const dz = stained<double>(grid_, placement);
        clear_ledgers(grid_);

        auto const result = loss.loss_and_gradient(exec_, z, dz);

        auto step = step_of<double>(grid_);
        plan_loss(step, placement, LossKind::softmax);
        EXPECT_EQ(counted_calls(grid_), planned_calls(step)) << "no other calls than without";
        EXPECT_NEAR(result, reference(-1, 0).real(), 1e-12);
        EXPECT_LT(largest_error(dz, gradient), 1e-12);
        auto const scores = loss.evaluate(exec_, z), expected = plain.evaluate(exec_, z);
        for (std::size_t group = 0; group < scores.size(); ++group)
          EXPECT_EQ(scores[group].loss, expected[group].loss);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, LabelSmoothing, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
