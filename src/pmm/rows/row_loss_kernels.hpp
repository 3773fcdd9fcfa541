#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Kernels of row_loss.cpp, each of which passes once over a block of logits without communication. Kernels enqueue on exec;
// functions that return a value also fence. The softmax kernels are for devices (list_teams.hpp) but run anywhere; hosts use
// row_kernels_host.hpp. softmax_in_one_pass() on 2,450,000 x 47 floats moves 0.92 GB if all rows carry the loss: 0.22 ms at
// 4.3 TB/s. A row that does not carry the loss costs only the writing of its zeros.

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/packs.hpp"
#include "pmm/rows/softmax_rows.hpp"
#include "runtime/arrays/views.hpp"

#include <limits>

namespace orthant::pmm::detail {

/// Sums over rows, in double: the loss, and the numbers of correct and of counted rows, of each group.
struct GroupSums {
  double loss[max_row_groups];
  double correct[max_row_groups];
  double counted[max_row_groups];

  KOKKOS_FUNCTION GroupSums() {
    for (int s = 0; s < max_row_groups; ++s)
      loss[s] = correct[s] = counted[s] = 0;
  }
  KOKKOS_FUNCTION GroupSums& operator+=(GroupSums const& other) {
    for (int s = 0; s < max_row_groups; ++s) {
      loss[s] += other.loss[s];
      correct[s] += other.correct[s];
      counted[s] += other.counted[s];
    }
    return *this;
  }
};

/// Sums over the targets of one column of a regression, per group of rows (entry_loss_kernels.hpp).
struct NumberSums {
  enum Part { count, deviations, squared_deviations, squares, absolutes, losses, num_parts };
  double of[max_row_groups][num_parts];

  KOKKOS_FUNCTION NumberSums() {
    for (auto& group : of)
      for (auto& part : group)
        part = 0;
  }
  KOKKOS_FUNCTION NumberSums& operator+=(NumberSums const& other) {
    for (int g = 0; g < max_row_groups; ++g)
      for (int part = 0; part < num_parts; ++part)
        of[g][part] += other.of[g][part];
    return *this;
  }
};

} // namespace orthant::pmm::detail

template<>
struct Kokkos::reduction_identity<orthant::pmm::detail::GroupSums> {
  KOKKOS_FUNCTION static orthant::pmm::detail::GroupSums sum() { return {}; }
};

template<>
struct Kokkos::reduction_identity<orthant::pmm::detail::NumberSums> {
  KOKKOS_FUNCTION static orthant::pmm::detail::NumberSums sum() { return {}; }
};

namespace orthant::pmm::detail {

using RowPolicy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

KOKKOS_INLINE_FUNCTION std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

inline std::int64_t num_rows_of(RowTargets const& targets) {
  return static_cast<std::int64_t>(targets.groups.extent(0));
}

template<class Sums = GroupSums, class Body>
Sums sum_over_rows(DefaultExec const& exec, char const* label, std::int64_t num_rows, Body const& body) {
  Sums sums;
  Kokkos::parallel_reduce(label, RowPolicy(exec, 0, num_rows), body, Kokkos::Sum<Sums>(sums));
  return sums;
}

/// Returns the number of rows whose group or class is out of range; classes are checked if num_classes > 0.
inline std::int64_t count_bad_rows(DefaultExec const& exec, RowTargets const& targets, int num_groups,
                                   std::int64_t num_classes) {
  auto const groups = targets.groups;
  auto const classes = targets.classes;
  std::int64_t num_bad = 0;
  Kokkos::parallel_reduce(
      "orthant::pmm::count_bad_rows", RowPolicy(exec, 0, num_rows_of(targets)),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t & sum) {
        auto const is_group = no_row_group <= groups(at(i)) && groups(at(i)) < num_groups;
        auto const is_class = num_classes == 0 || (-1 <= classes(at(i)) && classes(at(i)) < num_classes);
        sum += is_group && is_class ? 0 : 1;
      },
      num_bad);
  return num_bad;
}

/// counted[s] := the number, or sum of weights, of the rows of group s; only of rows with a label if `must_have_class`.
inline GroupSums count_rows(DefaultExec const& exec, RowTargets const& targets, bool must_have_class) {
  auto const groups = targets.groups;
  auto const classes = targets.classes;
  auto const weights = targets.weights;
  return sum_over_rows(
      exec, "orthant::pmm::count_rows", num_rows_of(targets), KOKKOS_LAMBDA(std::int64_t i, GroupSums & sum) {
        if (groups(at(i)) >= 0 && (!must_have_class || classes(at(i)) >= 0))
          sum.counted[groups(at(i))] += weights.extent(0) == 0 ? 1.0 : weights(at(i));
      });
}

template<class T>
struct RowMaxima {
  SoftmaxRows<T> rows;
  T* row_max;
  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t row) const {
    auto const largest = rows.maximum(team, row);
    Kokkos::single(Kokkos::PerThread(team), [&] { row_max[row] = largest; });
  }
};

/// row_max(i) := the largest logit of row i; -infinity if the rank has no classes. NaNs are ignored.
template<class T>
void find_row_maxima(DefaultExec const& exec, Matrix<T> const& logits, Vector<T> const& row_max) {
  SoftmaxRows<T> const rows(logits, {}, 0);
  for_each_row(exec, "orthant::pmm::find_row_maxima", static_cast<std::int64_t>(row_max.extent(0)),
               num_items(rows), RowMaxima<T>{rows, row_max.data()});
}

/// A row is one work item on hosts; on a device the lanes of a thread share a row.
template<class T>
struct RowArgMaxima {
  using Found = runtime::ValueIndex<T>;

  Matrix<T> logits;
  std::int64_t first_class;
  Vector<Found> arg_max;

  KOKKOS_FUNCTION void look_at(std::int64_t row, std::int64_t column, Found& best) const {
    auto const value = logits(at(row), at(column));
    if (value > best.value) best = {value, first_class + column};
  }
  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    Found best{-std::numeric_limits<T>::infinity(), std::numeric_limits<std::int64_t>::max()};
    for (std::int64_t j = 0; j < static_cast<std::int64_t>(logits.extent(1)); ++j)
      look_at(row, j, best);
    arg_max(at(row)) = best;
  }
  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t row) const {
    Found best{};
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, static_cast<std::int64_t>(logits.extent(1))),
        [&](std::int64_t j, Found& found) { look_at(row, j, found); }, LargestWithIndex<T>(best));
    Kokkos::single(Kokkos::PerThread(team), [&] { arg_max(at(row)) = best; });
  }
};

/// arg_max(i) := the largest logit of row i and its class (ties: the smallest class). If the rank has no classes, the class
/// is the largest int64.
template<class T>
void find_row_arg_maxima(DefaultExec const& exec, Matrix<T> const& logits, std::int64_t first_class,
                         Vector<runtime::ValueIndex<T>> const& arg_max) {
  constexpr auto label = "orthant::pmm::find_row_arg_maxima";
  RowArgMaxima<T> const find{logits, first_class, arg_max};
  auto const num_rows = static_cast<std::int64_t>(arg_max.extent(0));
  if constexpr (runs_on_host)
    Kokkos::parallel_for(label, RowPolicy(exec, 0, num_rows), find);
  else
    for_each_row(exec, label, num_rows, static_cast<std::int64_t>(logits.extent(1)) / pack_size, find);
}

template<class T>
struct RowExponentials {
  SoftmaxRows<T> rows;
  T const* row_max;
  T* packed;
  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t row) const {
    rows.pack(team, row, row_max[row], rows.sum_of_exponentials(team, row, row_max[row]), packed);
  }
};

/// packed(i) := {sum_j exp(z_ij - m_i), sum_j q_ij (z_ij - m_i)} over this rank's classes. A NaN makes the sum NaN.
template<class T>
void sum_exponentials(DefaultExec const& exec, Matrix<T> const& logits, Vector<T> const& row_max,
                      RowTargets const& targets, std::int64_t first_class, TargetShares<T> const& shares,
                      Matrix<T> const& packed) {
  SoftmaxRows<T> const rows(logits, targets, first_class, shares);
  for_each_row(exec, "orthant::pmm::sum_exponentials", num_rows_of(targets), num_items(rows),
               RowExponentials<T>{rows, row_max.data(), packed.data()});
}

/// Weight of the loss of a row: the weight of the row times the weight of its class. Missing weights are 1.
template<class T>
struct LossWeights {
  T const* of_classes;
  double const* of_rows;
  LossWeights(RowTargets const& targets, Vector<T> const& class_weights)
      : of_classes(class_weights.data()),
        of_rows(targets.weights.extent(0) == 0 ? nullptr : targets.weights.data()) {}
  KOKKOS_FUNCTION double operator()(std::int64_t row, std::int32_t label) const {
    auto const of_class = of_classes == nullptr ? 1.0 : static_cast<double>(of_classes[label]);
    return of_rows == nullptr ? of_class : of_class * of_rows[row];
  }
};

/// loss := the sum of loss_i over the rows of group 0, each multiplied by its weight.
template<class T>
void softmax_loss(DefaultExec const& exec, RowTargets const& targets, Vector<T> const& row_max,
                  Matrix<T> const& packed, Vector<T> const& class_weights, TargetShares<T> const& shares,
                  runtime::Number<double> const& loss) {
  auto const groups = targets.groups;
  auto const classes = targets.classes;
  LossWeights<T> const weight_of(targets, class_weights);
  Kokkos::parallel_reduce(
      "orthant::pmm::softmax_loss", RowPolicy(exec, 0, num_rows_of(targets)),
      KOKKOS_LAMBDA(std::int64_t i, double& sum) {
        if (groups(at(i)) != loss_row_group || classes(at(i)) < 0) return;
        auto const log_sum = math::log(packed(at(i), 0)); // without the shift m_i
        auto term = static_cast<double>(log_sum * sum_of_shares(shares, classes(at(i))) - packed(at(i), 1));
        if (shares.z_loss > T{0}) {
          auto const whole = static_cast<double>(row_max(at(i)) + log_sum);
          term += static_cast<double>(z_loss_of(shares, classes(at(i)))) * whole * whole;
        }
        sum += term * weight_of(i, classes(at(i)));
      },
      loss);
}

/// Multiplies each row of group 0 by its weight.
template<class T>
void weigh_gradient(DefaultExec const& exec, RowTargets const& targets, Vector<T> const& class_weights,
                    Matrix<T> const& gradient) {
  auto const groups = targets.groups;
  auto const classes = targets.classes;
  LossWeights<T> const weight_of(targets, class_weights);
  Divisor const num_columns(static_cast<std::int64_t>(gradient.extent(1)));
  Kokkos::parallel_for(
      "orthant::pmm::weigh_gradient", RowPolicy(exec, 0, num_rows_of(targets) * num_columns.value()),
      KOKKOS_LAMBDA(std::int64_t item) {
        Place const place(item, num_columns);
        if (groups(at(place.row)) == loss_row_group && classes(at(place.row)) >= 0)
          gradient(at(place.row), at(place.column)) *=
              static_cast<T>(weight_of(place.row, classes(at(place.row))));
      });
}

template<class T>
struct RowGradients {
  SoftmaxRows<T> rows;
  T const* row_max;
  T const* packed;
  T scale;
  T* gradient;
  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t row) const {
    if (rows.carries_loss(row))
      rows.write_gradient(team, row, row_max[row], packed[2 * row], scale, gradient);
    else
      rows.write_zeros(team, row, gradient);
  }
};

/// gradient := scale ((Q + 2 c L) exp(z - m) / s - q) in labeled rows of group 0, else 0. `gradient` may alias the logits.
template<class T>
void softmax_gradient(DefaultExec const& exec, Matrix<T> const& logits, Vector<T> const& row_max,
                      Matrix<T> const& packed, RowTargets const& targets, std::int64_t first_class,
                      TargetShares<T> const& shares, T scale, Matrix<T> const& gradient) {
  SoftmaxRows<T> const rows(logits, targets, first_class, shares);
  for_each_row(exec, "orthant::pmm::softmax_gradient", num_rows_of(targets), num_items(rows),
               RowGradients<T>{rows, row_max.data(), packed.data(), scale, gradient.data()});
}

template<class T>
struct WholeSoftmaxRows {
  SoftmaxRows<T> rows;
  T* row_max;
  T* packed;
  T scale;
  T* gradient; // null if not wanted
  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t row) const {
    if (gradient != nullptr && !rows.carries_loss(row)) return rows.write_zeros(team, row, gradient);
    auto const shift = rows.maximum(team, row);
    auto const sum = rows.sum_of_exponentials(team, row, shift);
    rows.pack(team, row, shift, sum, packed);
    Kokkos::single(Kokkos::PerThread(team), [&] { row_max[row] = shift; });
    if (gradient != nullptr) rows.write_gradient(team, row, shift, sum, scale, gradient);
  }
};

/// find_row_maxima(), sum_exponentials() and, if `gradient` is not empty, softmax_gradient(), for a rank that has all classes. Reads the
/// logits once. With a gradient, `row_max` and `packed` are not written for rows without loss.
template<class T>
void softmax_in_one_pass(DefaultExec const& exec, Matrix<T> const& logits, RowTargets const& targets,
                         TargetShares<T> const& shares, Vector<T> const& row_max, Matrix<T> const& packed,
                         T scale, Matrix<T> const& gradient) {
  SoftmaxRows<T> const rows(logits, targets, 0, shares);
  for_each_row(exec, "orthant::pmm::softmax", num_rows_of(targets), num_items(rows),
               WholeSoftmaxRows<T>{rows, row_max.data(), packed.data(), scale, gradient.data()});
}

/// Returns the sums of each group. `packed` and `arg_max` must be reduced over all classes.
template<class T>
GroupSums score_softmax(DefaultExec const& exec, RowTargets const& targets, Matrix<T> const& packed,
                        Vector<runtime::ValueIndex<T>> const& arg_max) {
  auto const groups = targets.groups;
  auto const classes = targets.classes;
  return sum_over_rows(
      exec, "orthant::pmm::score_softmax", num_rows_of(targets),
      KOKKOS_LAMBDA(std::int64_t i, GroupSums & sum) {
        auto const group = groups(at(i));
        if (group < 0 || classes(at(i)) < 0) return;
        sum.loss[group] += static_cast<double>(math::log(packed(at(i), 0)) - packed(at(i), 1));
        sum.correct[group] += arg_max(at(i)).index == classes(at(i)) ? 1 : 0;
        sum.counted[group] += 1;
      });
}

/// loss := scale * loss; 0 if `scale` is 0, which means no rows.
struct ScaleLoss {
  runtime::Number<double> loss;
  double scale;
  KOKKOS_FUNCTION void operator()(std::int64_t) const { loss() = scale == 0 ? 0.0 : loss() * scale; }
};

struct SetNumber {
  runtime::Number<double> to;
  double number;
  KOKKOS_FUNCTION void operator()(std::int64_t) const { to() = number; }
};

} // namespace orthant::pmm::detail
