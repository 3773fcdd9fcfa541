#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Kernels of row_loss.cpp for regression: losses of numbers, their gradients, and sums for R2 and MAE. They enqueue on exec; functions
// that return a value also fence.

#include "pmm/rows/entry_loss_kernels.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace orthant::pmm::detail {

/// False for nan, which means that there is no target.
KOKKOS_INLINE_FUNCTION bool is_number(double target) {
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
  auto const num_columns = static_cast<std::int64_t>(numbers.extent(1));
  return sum_over_rows(
      exec, "orthant::pmm::count_numbers", num_rows_of(targets),
      KOKKOS_LAMBDA(std::int64_t i, GroupSums & sum) {
        if (groups(at(i)) < 0) return;
        for (std::int64_t j = 0; j < num_columns; ++j)
          sum.counted[groups(at(i))] += is_number(numbers(at(i), at(j))) ? 1 : 0;
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
    if (groups(at(i)) != loss_row_group || !is_number(target)) {
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
  auto const num_columns = static_cast<std::int64_t>(logits.extent(1));
  Kokkos::parallel_reduce(
      "orthant::pmm::number_loss_and_gradient",
      RowPolicy(exec, 0, num_entry_items(num_rows_of(targets), num_columns)),
      OverEntries<NumberGradients<T>>{{logits, targets.groups, targets.numbers, kind, scale, gradient,
                                       targets.weights.extent(0) == 0 ? nullptr : targets.weights.data()},
                                      Divisor(num_columns)},
      loss);
}

/// Mean of the targets of a column, by group.
struct Means {
  double of[max_row_groups] = {};
};

/// Returns for each group g the number of targets of column j in its rows (of[g][0]) and their sum (of[g][1]).
inline NumberSums sum_numbers(DefaultExec const& exec, RowTargets const& targets, std::int64_t j) {
  auto const groups = targets.groups;
  auto const numbers = targets.numbers;
  NumberSums sums;
  Kokkos::parallel_reduce(
      "orthant::pmm::sum_numbers", RowPolicy(exec, 0, num_rows_of(targets)),
      KOKKOS_LAMBDA(std::int64_t i, NumberSums & sum) {
        auto const group = groups(at(i));
        auto const target = numbers(at(i), at(j));
        if (group < 0 || !is_number(target)) return;
        sum.of[group][0] += 1;
        sum.of[group][1] += target;
      },
      Kokkos::Sum<NumberSums>(sums));
  return sums;
}

/// Computes the sums of NumberSums for column j.
template<class T>
NumberSums score_numbers(DefaultExec const& exec, Matrix<T> const& logits, RowTargets const& targets,
                         std::int64_t j, Means const& means, NumberLoss loss) {
  auto const groups = targets.groups;
  auto const numbers = targets.numbers;
  NumberSums sums;
  Kokkos::parallel_reduce(
      "orthant::pmm::score_numbers", RowPolicy(exec, 0, num_rows_of(targets)),
      KOKKOS_LAMBDA(std::int64_t i, NumberSums & sum) {
        auto const group = groups(at(i));
        auto const target = numbers(at(i), at(j));
        if (group < 0 || !is_number(target)) return;
        auto* const parts = sum.of[group];
        auto const residual = static_cast<double>(logits(at(i), at(j))) - target;
        auto const deviation = target - means.of[group];
        double derivative;
        parts[NumberSums::deviations] += deviation * deviation;
        parts[NumberSums::squares] += residual * residual;
        parts[NumberSums::absolutes] += math::fabs(residual);
        parts[NumberSums::losses] += number_loss_of(loss, residual, derivative);
      },
      Kokkos::Sum<NumberSums>(sums));
  return sums;
}

/// Computes the score of a group from sums over all ranks: `counts` of sum_numbers(), two per column, and `parts` of NumberSums.
inline GroupScore score_of_numbers(std::span<double const> counts, std::span<double const> parts) {
  GroupScore score;
  score.is_of_numbers = true;
  double num_targets = 0, num_columns = 0;
  for (std::size_t j = 0; 2 * j < counts.size(); ++j) {
    if (counts[2 * j] == 0) continue;
    auto const of = parts.subspan(j * NumberSums::num_parts, NumberSums::num_parts);
    auto const is_constant = of[NumberSums::deviations] == 0;
    score.r2 += is_constant ? (of[NumberSums::squares] == 0 ? 1.0 : 0.0)
                            : 1 - of[NumberSums::squares] / of[NumberSums::deviations];
    score.mae += of[NumberSums::absolutes];
    score.loss += of[NumberSums::losses];
    num_targets += counts[2 * j];
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
template<class T, class Reduce>
std::vector<GroupScore> scores_of_numbers(DefaultExec const& exec, Matrix<T> const& logits,
                                          RowTargets const& targets, NumberLoss loss, int num_groups,
                                          std::int64_t width, std::int64_t first, Reduce const& reduce) {
  constexpr std::int64_t num_counts = 2, num_parts = NumberSums::num_parts;
  auto const num_columns = static_cast<std::int64_t>(logits.extent(1));
  auto const place = [&](int group, std::int64_t j, std::int64_t each) {
    return static_cast<std::size_t>((group * width + first + j) * each);
  };
  std::vector<double> counts(static_cast<std::size_t>(num_groups * width * num_counts));
  for (std::int64_t j = 0; j < num_columns; ++j) {
    auto const found = sum_numbers(exec, targets, j);
    for (int g = 0; g < num_groups; ++g)
      std::copy_n(found.of[g], num_counts, &counts[place(g, j, num_counts)]);
  }
  reduce(std::span(counts));
  std::vector<double> parts(static_cast<std::size_t>(num_groups * width * num_parts));
  for (std::int64_t j = 0; j < num_columns; ++j) {
    Means means;
    for (int g = 0; g < num_groups; ++g) {
      auto const* const of = &counts[place(g, j, num_counts)];
      means.of[g] = of[0] > 0 ? of[1] / of[0] : 0.0;
    }
    auto const found = score_numbers(exec, logits, targets, j, means, loss);
    for (int g = 0; g < num_groups; ++g)
      std::copy_n(found.of[g], num_parts, &parts[place(g, j, num_parts)]);
  }
  reduce(std::span(parts));
  std::vector<GroupScore> scores;
  auto const of_group = [&](std::vector<double> const& sums, int group, std::int64_t each) {
    return std::span<double const>(sums).subspan(static_cast<std::size_t>(group * width * each),
                                                 static_cast<std::size_t>(width * each));
  };
  for (int g = 0; g < num_groups; ++g)
    scores.push_back(score_of_numbers(of_group(counts, g, num_counts), of_group(parts, g, num_parts)));
  return scores;
}

} // namespace orthant::pmm::detail
