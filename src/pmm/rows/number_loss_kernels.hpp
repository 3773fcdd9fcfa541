#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Kernels of row_loss.cpp for regression: losses of numbers, their gradients, and sums for R2 and MAE. They enqueue on exec; functions
// that return a value also fence.

#include "pmm/rows/entry_loss_kernels.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace orthant::pmm::detail {

/// False for nan, which means that there is no target.
KOKKOS_INLINE_FUNCTION bool has_target(double target) {
  return target == target;
}

/// The loss of a residual, and its derivative.
template<class T>
KOKKOS_INLINE_FUNCTION T number_loss_of(NumberLoss loss, T residual, T& derivative) {
  auto const size = math::fabs(residual);
  auto const sign = residual > T{0} ? T{1} : residual < T{0} ? T{-1} : T{0};
  if (loss == NumberLoss::squared) {
    derivative = T{2} * residual;
    return residual * residual;
  }
  if (loss == NumberLoss::huber && size <= T{1}) {
    derivative = residual;
    return residual * residual / T{2};
  }
  derivative = sign;
  return loss == NumberLoss::absolute ? size : size - T{0.5};
}

/// counted[s] := the number of targets of group s in this rank's columns.
inline GroupSums count_numbers(DefaultExec const& exec, RowTargets const& targets) {
  auto const groups = targets.groups;
  auto const numbers = targets.numbers;
  auto const weights = targets.weights;
  auto const num_columns = static_cast<std::int64_t>(numbers.extent(1));
  return sum_over_rows(
      exec, "orthant::pmm::count_numbers", num_rows_of(targets),
      KOKKOS_LAMBDA(std::int64_t i, GroupSums & sum) {
        if (groups(at(i)) < 0) return;
        std::int64_t count = 0;
        for (std::int64_t j = 0; j < num_columns; ++j)
          count += has_target(numbers(at(i), at(j))) ? 1 : 0;
        sum.counted[groups(at(i))] +=
            static_cast<double>(count) * (weights.extent(0) == 0 ? 1.0 : weights(at(i)));
      });
}

/// Loss and gradient of entries.
template<class T>
struct NumberGradients {
  using Sum = double;
  Matrix<T> logits;
  Vector<std::int8_t> groups;
  Matrix<double> numbers;
  NumberLoss loss;
  T scale;
  Matrix<T> gradient;
  double const* weights; // [rows] or null

  KOKKOS_FUNCTION void entry(std::int64_t i, std::int64_t j, double& sum) const {
    auto const target = numbers(at(i), at(j));
    if (groups(at(i)) != loss_row_group || !has_target(target)) {
      gradient(at(i), at(j)) = T{0};
      return;
    }
    auto const weight = weights == nullptr ? 1.0 : weights[i];
    T derivative;
    auto const term = number_loss_of(loss, logits(at(i), at(j)) - static_cast<T>(target), derivative);
    sum += static_cast<double>(term) * weight;
    gradient(at(i), at(j)) = derivative * scale * static_cast<T>(weight);
  }
};

/// loss := the sum over targets in rows of group 0; gradient (may alias the logits) := scale times its derivative there, else 0.
template<class T>
void number_loss_and_gradient(DefaultExec const& exec, Matrix<T> const& logits, RowTargets const& targets,
                              NumberLoss kind, T scale, Matrix<T> const& gradient,
                              runtime::Number<double> const& loss) {
  sum_over_entries(
      exec, "orthant::pmm::number_loss_and_gradient",
      NumberGradients<T>{logits, targets.groups, targets.numbers, kind, scale, gradient, weights_of(targets)},
      loss);
}

/// Computes the NumberSums of column j, with deviations from `means`, one per group.
template<class T>
NumberSums score_numbers(DefaultExec const& exec, Matrix<T> const& logits, RowTargets const& targets,
                         std::int64_t j, Kokkos::Array<double, max_row_groups> const& means,
                         NumberLoss loss) {
  auto const groups = targets.groups;
  auto const numbers = targets.numbers;
  return sum_over_rows<NumberSums>(
      exec, "orthant::pmm::score_numbers", num_rows_of(targets),
      KOKKOS_LAMBDA(std::int64_t i, NumberSums & sum) {
        auto const group = groups(at(i));
        auto const target = numbers(at(i), at(j));
        if (group < 0 || !has_target(target)) return;
        auto* const parts = sum.of[group];
        auto const residual = static_cast<double>(logits(at(i), at(j))) - target;
        auto const deviation = target - means[static_cast<std::size_t>(group)];
        double derivative;
        parts[NumberSums::count] += 1;
        parts[NumberSums::deviations] += deviation;
        parts[NumberSums::squared_deviations] += deviation * deviation;
        parts[NumberSums::squares] += residual * residual;
        parts[NumberSums::absolutes] += math::fabs(residual);
        parts[NumberSums::losses] += number_loss_of(loss, residual, derivative);
      });
}

/// Computes the score of a group from its sums over all ranks: the parts of NumberSums, column by column.
inline GroupScore score_of_numbers(std::span<double const> sums) {
  constexpr auto epsilon = std::numeric_limits<double>::epsilon();
  GroupScore score;
  score.is_of_numbers = true;
  double num_targets = 0, num_columns = 0;
  for (; !sums.empty(); sums = sums.subspan(NumberSums::num_parts)) {
    auto const count = sums[NumberSums::count];
    if (count == 0) continue;
    // sum (y - m)^2 - (sum (y - m))^2 / n does not depend on the rounding of the mean m. If all y are equal, it is 0 except for rounding.
    auto const deviation = sums[NumberSums::deviations];
    auto const variation = sums[NumberSums::squared_deviations] - deviation * deviation / count;
    auto const is_constant = variation <= 2 * count * epsilon * sums[NumberSums::squared_deviations];
    auto const squares = sums[NumberSums::squares];
    score.r2 += is_constant ? (squares == 0 ? 1.0 : 0.0) : 1 - squares / variation;
    score.mae += sums[NumberSums::absolutes];
    score.loss += sums[NumberSums::losses];
    num_targets += count;
    num_columns += 1;
  }
  if (num_columns == 0) return score;
  score.num_counted = static_cast<std::int64_t>(num_targets);
  score.r2 /= num_columns;
  score.mae /= num_targets;
  score.loss /= num_targets;
  return score;
}

/// Scores of every group. The logits of this rank begin at column `first` of `width`. reduce(sums) adds sums over all ranks.
/// Reads the columns twice: first to compute the means of the targets, then for sums of deviations from these means.
template<class T, class Reduce>
std::vector<GroupScore> scores_of_numbers(DefaultExec const& exec, Matrix<T> const& logits,
                                          RowTargets const& targets, NumberLoss loss, int num_groups,
                                          std::int64_t width, std::int64_t first, Reduce const& reduce) {
  auto const num_columns = static_cast<std::int64_t>(logits.extent(1));
  auto const place = [&](int group, std::int64_t j) {
    return static_cast<std::size_t>((group * width + j) * NumberSums::num_parts);
  };
  std::vector<double> sums(place(num_groups, 0));
  for (int round = 0; round < 2; ++round) {
    std::vector<double> next(sums.size());
    for (auto j = first; j < first + num_columns; ++j) {
      Kokkos::Array<double, max_row_groups> means{};
      for (int g = 0; g < num_groups; ++g)
        if (auto const* const of = &sums[place(g, j)]; of[NumberSums::count] > 0)
          means[static_cast<std::size_t>(g)] = of[NumberSums::deviations] / of[NumberSums::count];
      auto const found = score_numbers(exec, logits, targets, j - first, means, loss);
      for (int g = 0; g < num_groups; ++g)
        std::ranges::copy(found.of[g], &next[place(g, j)]);
    }
    reduce(std::span(next));
    sums = std::move(next);
  }
  std::vector<GroupScore> scores;
  for (int g = 0; g < num_groups; ++g)
    scores.push_back(score_of_numbers(std::span(sums).subspan(place(g, 0), place(1, 0))));
  return scores;
}

} // namespace orthant::pmm::detail
