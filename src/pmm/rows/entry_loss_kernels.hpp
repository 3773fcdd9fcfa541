#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Kernels of row_loss.cpp for losses that are sums over entries: binary cross-entropy and focal loss, and losses of regression. They enqueue
// on exec.

#include "pmm/rows/row_loss_kernels.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace orthant::pmm::detail {

/// Returns max(x, 0) - x y + log(1 + exp(-|x|)), which cannot overflow.
template<class T>
KOKKOS_INLINE_FUNCTION T binary_loss_of(T x, T y) {
  return (x > T{0} ? x : T{0}) - x * y + math::log(T{1} + math::exp(-math::fabs(x)));
}

/// How a binary loss is formed from RowTargets.
template<class T>
struct BinaryTargets {
  std::int32_t const* classes; // [rows]
  bool is_one_hot;             // y_ij = [j = class of row i]
  std::int64_t first_class;
  T const* class_weights; // [all classes] or null
  T smoothing;
  T focal_gamma;

  /// 1, 0, or -1 if unknown.
  [[nodiscard]] KOKKOS_FUNCTION int label(std::int64_t i, std::int64_t j,
                                          Matrix<std::int8_t> const& indicator) const {
    if (!is_one_hot) return indicator(at(i), at(j));
    return classes[i] < 0 ? -1 : static_cast<int>(classes[i] == first_class + j);
  }
  [[nodiscard]] KOKKOS_FUNCTION double weight(std::int64_t j) const {
    return class_weights == nullptr ? 1.0 : static_cast<double>(class_weights[first_class + j]);
  }
};

/// Multiplies a term and its derivative by (1 - p)^gamma and adds the derivative of this factor.
/// p = s y + (1 - s) (1 - y) with s = sigmoid(x), complement = 1 - s, and y from 0 to 1.
template<class T>
KOKKOS_INLINE_FUNCTION void focus(T gamma, T sigmoid, T complement, T y, T& term, T& derivative) {
  auto const distance = sigmoid * (T{1} - y) + complement * y; // 1 - p
  auto const power = math::pow(distance, gamma);
  auto const slope = sigmoid * complement * (T{1} - T{2} * y); // of the distance
  derivative = power * (derivative + (distance > T{0} ? gamma * (slope / distance) * term : T{0}));
  term *= power;
}

/// Adds `entries.entry(i, j, sum)` over all entries. A work item is a row on hosts. On a device it is an entry, so that neighboring work
/// items read neighboring elements.
template<class Entries>
struct OverEntries {
  Entries entries;
  Divisor num_columns;

  KOKKOS_FUNCTION void operator()(std::int64_t item, typename Entries::Sum& sum) const {
    if constexpr (runs_on_host) {
      for (std::int64_t j = 0; j < num_columns.value(); ++j)
        entries.entry(item, j, sum);
    } else {
      Place const place(item, num_columns);
      entries.entry(place.row, place.column, sum);
    }
  }
};

/// Number of work items of OverEntries.
inline std::int64_t num_entry_items(std::int64_t num_rows, std::int64_t num_columns) {
  return runs_on_host ? num_rows : num_rows * num_columns;
}

/// Weights of the rows, or null if all are 1.
inline double const* weights_of(RowTargets const& targets) {
  return targets.weights.extent(0) == 0 ? nullptr : targets.weights.data();
}

/// sum := the sum over all entries of the logits, of what the functor `entries` adds for each.
template<class Entries>
void sum_over_entries(DefaultExec const& exec, char const* label, Entries const& entries,
                      runtime::Number<double> const& sum) {
  auto const num_rows = static_cast<std::int64_t>(entries.logits.extent(0));
  auto const num_columns = static_cast<std::int64_t>(entries.logits.extent(1));
  Kokkos::parallel_reduce(label, RowPolicy(exec, 0, num_entry_items(num_rows, num_columns)),
                          OverEntries<Entries>{entries, Divisor(num_columns)}, sum);
}

/// Loss and gradient of entries.
template<class T>
struct BinaryGradients {
  using Sum = double;
  Matrix<T> logits;
  Vector<std::int8_t> groups;
  Matrix<std::int8_t> indicator;
  BinaryTargets<T> targets;
  T scale;
  Matrix<T> gradient;
  double const* weights; // [rows] or null

  KOKKOS_FUNCTION void entry(std::int64_t i, std::int64_t j, double& sum) const {
    auto const x = logits(at(i), at(j));
    auto const label = targets.label(i, j, indicator);
    if (groups(at(i)) != loss_row_group || label < 0) {
      gradient(at(i), at(j)) = T{0};
      return;
    }
    auto const y = static_cast<T>(label) * (T{1} - targets.smoothing) + targets.smoothing / T{2};
    auto const weight = (weights == nullptr ? 1.0 : weights[i]) * targets.weight(j);
    auto term = binary_loss_of(x, y);
    auto const decay = math::exp(-math::fabs(x));
    auto const larger = T{1} / (T{1} + decay);
    auto const smaller = decay / (T{1} + decay);
    auto const sigmoid = x > T{0} ? larger : smaller;
    auto derivative = sigmoid - y;
    if (targets.focal_gamma > T{0})
      focus(targets.focal_gamma, sigmoid, x > T{0} ? smaller : larger, y, term, derivative);
    sum += static_cast<double>(term) * weight;
    gradient(at(i), at(j)) = derivative * scale * static_cast<T>(weight);
  }
};

/// loss := the sum over known labels in rows of group 0; gradient (may alias the logits) := scale times its derivative there, else 0.
template<class T>
void binary_loss_and_gradient(DefaultExec const& exec, Matrix<T> const& logits, RowTargets const& targets,
                              BinaryTargets<T> const& how, T scale, Matrix<T> const& gradient,
                              runtime::Number<double> const& loss) {
  sum_over_entries(exec, "orthant::pmm::binary_loss_and_gradient",
                   BinaryGradients<T>{logits, targets.groups, targets.indicator, how, scale, gradient,
                                      weights_of(targets)},
                   loss);
}

/// Scores of entries.
template<class T>
struct BinaryScores {
  using Sum = GroupSums;
  Matrix<T> logits;
  Vector<std::int8_t> groups;
  Matrix<std::int8_t> indicator;

  KOKKOS_FUNCTION void entry(std::int64_t i, std::int64_t j, GroupSums& sum) const {
    auto const group = groups(at(i));
    auto const label = group < 0 ? std::int8_t{-1} : indicator(at(i), at(j));
    if (label < 0) return;
    auto const x = logits(at(i), at(j));
    sum.loss[group] += static_cast<double>(binary_loss_of(x, static_cast<T>(label)));
    sum.correct[group] += (x > T{0}) == (label == 1) ? 1 : 0;
    sum.counted[group] += 1;
  }
};

/// Returns the sums of each group over the known entries of this rank's classes.
template<class T>
GroupSums score_binary(DefaultExec const& exec, Matrix<T> const& logits, RowTargets const& targets) {
  auto const num_columns = static_cast<std::int64_t>(logits.extent(1));
  return sum_over_rows(
      exec, "orthant::pmm::score_binary", num_entry_items(num_rows_of(targets), num_columns),
      OverEntries<BinaryScores<T>>{{logits, targets.groups, targets.indicator}, Divisor(num_columns)});
}

// Kernels of row_loss.cpp for regression: losses of numbers, their gradients, and sums for R2 and MAE. They enqueue on exec; functions
// that return a value also fence.

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
