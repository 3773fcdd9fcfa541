#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Kernels of row_loss.cpp for losses that are sums over entries: binary cross-entropy and focal loss. They enqueue on exec.

#include "pmm/rows/row_loss_kernels.hpp"

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

} // namespace orthant::pmm::detail
