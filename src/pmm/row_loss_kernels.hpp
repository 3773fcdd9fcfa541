#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Kernels of row_loss.cpp: one pass over a block of logits each, a work item a row. Nothing communicates.
// They enqueue on exec; those that return a number fence.

#include "pmm/row_loss.hpp"
#include "runtime/number.hpp"

#include <limits>

namespace orthant::pmm::detail {

/// Sums over rows, in double: loss, correct and counted of each split.
struct SplitSums {
  double loss[num_splits];
  double correct[num_splits];
  double counted[num_splits];

  KOKKOS_FUNCTION SplitSums() {
    for (int s = 0; s < num_splits; ++s)
      loss[s] = correct[s] = counted[s] = 0;
  }
  KOKKOS_FUNCTION SplitSums& operator+=(SplitSums const& other) {
    for (int s = 0; s < num_splits; ++s) {
      loss[s] += other.loss[s];
      correct[s] += other.correct[s];
      counted[s] += other.counted[s];
    }
    return *this;
  }
};

} // namespace orthant::pmm::detail

template<>
struct Kokkos::reduction_identity<orthant::pmm::detail::SplitSums> {
  KOKKOS_FUNCTION static orthant::pmm::detail::SplitSums sum() { return {}; }
};

namespace orthant::pmm::detail {

using RowPolicy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;
namespace math = runtime::compat;

KOKKOS_INLINE_FUNCTION std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

inline std::int64_t num_rows_of(RowTargets const& targets) {
  return static_cast<std::int64_t>(targets.splits.extent(0));
}

template<class Body>
SplitSums sum_over_rows(DefaultExec const& exec, char const* label, std::int64_t num_rows, Body const& body) {
  SplitSums sums;
  Kokkos::parallel_reduce(label, RowPolicy(exec, 0, num_rows), body, Kokkos::Sum<SplitSums>(sums));
  return sums;
}

/// Rows whose split or class is out of range; classes are looked at where num_classes > 0.
inline std::int64_t count_bad_rows(DefaultExec const& exec, RowTargets const& targets,
                                   std::int64_t num_classes) {
  auto const splits = targets.splits;
  auto const classes = targets.classes;
  std::int64_t num_bad = 0;
  Kokkos::parallel_reduce(
      "orthant::pmm::count_bad_rows", RowPolicy(exec, 0, num_rows_of(targets)),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t & sum) {
        auto const is_split = no_split <= splits(at(i)) && splits(at(i)) < num_splits;
        auto const is_class = num_classes == 0 || (-1 <= classes(at(i)) && classes(at(i)) < num_classes);
        sum += is_split && is_class ? 0 : 1;
      },
      num_bad);
  return num_bad;
}

/// counted[s] := rows of split s, with a label where `must_have_class`.
inline SplitSums count_rows(DefaultExec const& exec, RowTargets const& targets, bool must_have_class) {
  auto const splits = targets.splits;
  auto const classes = targets.classes;
  return sum_over_rows(
      exec, "orthant::pmm::count_rows", num_rows_of(targets), KOKKOS_LAMBDA(std::int64_t i, SplitSums & sum) {
        if (splits(at(i)) >= 0 && (!must_have_class || classes(at(i)) >= 0)) sum.counted[splits(at(i))] += 1;
      });
}

/// row_max(i) := the largest of the row, -infinity of none. A NaN is no maximum.
template<class T>
void find_row_maxima(DefaultExec const& exec, Matrix<T> const& logits, Vector<T> const& row_max) {
  auto const num_columns = logits.extent(1);
  Kokkos::parallel_for(
      "orthant::pmm::find_row_maxima", RowPolicy(exec, 0, static_cast<std::int64_t>(row_max.extent(0))),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto largest = -std::numeric_limits<T>::infinity();
        for (std::size_t j = 0; j < num_columns; ++j)
          if (logits(at(i), j) > largest) largest = logits(at(i), j);
        row_max(at(i)) = largest;
      });
}

/// The same with its class, the smallest of equals; a class beyond all where there is none.
template<class T>
void find_row_arg_maxima(DefaultExec const& exec, Matrix<T> const& logits, std::int64_t first_class,
                         Vector<runtime::ValueIndex<T>> const& arg_max) {
  auto const num_columns = logits.extent(1);
  Kokkos::parallel_for(
      "orthant::pmm::find_row_arg_maxima", RowPolicy(exec, 0, static_cast<std::int64_t>(arg_max.extent(0))),
      KOKKOS_LAMBDA(std::int64_t i) {
        runtime::ValueIndex<T> best{-std::numeric_limits<T>::infinity(),
                                    std::numeric_limits<std::int64_t>::max()};
        for (std::size_t j = 0; j < num_columns; ++j)
          if (logits(at(i), j) > best.value)
            best = {logits(at(i), j), first_class + static_cast<std::int64_t>(j)};
        arg_max(at(i)) = best;
      });
}

/// packed(i) := {sum_j exp(z_ij - m_i), z_iy - m_i} over this rank's classes. A NaN reaches the sum.
template<class T>
void sum_exponentials(DefaultExec const& exec, Matrix<T> const& logits, Vector<T> const& row_max,
                      RowTargets const& targets, std::int64_t first_class, Matrix<T> const& packed) {
  auto const num_columns = logits.extent(1);
  auto const classes = targets.classes;
  Kokkos::parallel_for(
      "orthant::pmm::sum_exponentials", RowPolicy(exec, 0, num_rows_of(targets)),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto const shift = row_max(at(i));
        auto sum = T{0};
        for (std::size_t j = 0; j < num_columns; ++j)
          sum += math::exp(logits(at(i), j) - shift);
        auto const target = static_cast<std::int64_t>(classes(at(i))) - first_class;
        auto const is_here = target >= 0 && target < static_cast<std::int64_t>(num_columns);
        packed(at(i), 0) = sum;
        packed(at(i), 1) = is_here ? logits(at(i), at(target)) - shift : T{0};
      });
}

/// loss := the sum of loss_i over the rows of split 0.
template<class T>
void softmax_loss(DefaultExec const& exec, RowTargets const& targets, Matrix<T> const& packed,
                  runtime::Number<double> const& loss) {
  auto const splits = targets.splits;
  auto const classes = targets.classes;
  Kokkos::parallel_reduce(
      "orthant::pmm::softmax_loss", RowPolicy(exec, 0, num_rows_of(targets)),
      KOKKOS_LAMBDA(std::int64_t i, double& sum) {
        if (splits(at(i)) == 0 && classes(at(i)) >= 0)
          sum += static_cast<double>(math::log(packed(at(i), 0)) - packed(at(i), 1));
      },
      loss);
}

/// gradient := scale (exp(z - m) / s - [j = y]) in rows of split 0, else 0. May alias the logits.
template<class T>
void softmax_gradient(DefaultExec const& exec, Matrix<T> const& logits, Vector<T> const& row_max,
                      Matrix<T> const& packed, RowTargets const& targets, std::int64_t first_class, T scale,
                      Matrix<T> const& gradient) {
  auto const num_columns = logits.extent(1);
  auto const splits = targets.splits;
  auto const classes = targets.classes;
  Kokkos::parallel_for(
      "orthant::pmm::softmax_gradient", RowPolicy(exec, 0, num_rows_of(targets)),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto const is_trained = splits(at(i)) == 0 && classes(at(i)) >= 0;
        auto const target = static_cast<std::int64_t>(classes(at(i))) - first_class;
        auto const shift = row_max(at(i));
        auto const inverse_sum = T{1} / packed(at(i), 0);
        for (std::size_t j = 0; j < num_columns; ++j) {
          auto const probability = math::exp(logits(at(i), j) - shift) * inverse_sum;
          auto const is_target = static_cast<std::int64_t>(j) == target;
          gradient(at(i), j) = is_trained ? (probability - (is_target ? T{1} : T{0})) * scale : T{0};
        }
      });
}

/// Loss, correct and counted of each split from complete rows.
template<class T>
SplitSums score_softmax(DefaultExec const& exec, RowTargets const& targets, Matrix<T> const& packed,
                        Vector<runtime::ValueIndex<T>> const& arg_max) {
  auto const splits = targets.splits;
  auto const classes = targets.classes;
  return sum_over_rows(
      exec, "orthant::pmm::score_softmax", num_rows_of(targets),
      KOKKOS_LAMBDA(std::int64_t i, SplitSums & sum) {
        auto const split = splits(at(i));
        if (split < 0 || classes(at(i)) < 0) return;
        sum.loss[split] += static_cast<double>(math::log(packed(at(i), 0)) - packed(at(i), 1));
        sum.correct[split] += arg_max(at(i)).index == classes(at(i)) ? 1 : 0;
        sum.counted[split] += 1;
      });
}

/// max(x, 0) - x y + log(1 + exp(-|x|)), which cannot overflow.
template<class T>
KOKKOS_INLINE_FUNCTION T binary_loss_of(T x, T y) {
  return (x > T{0} ? x : T{0}) - x * y + math::log(T{1} + math::exp(-math::fabs(x)));
}

/// loss := the sum over known labels in rows of split 0; gradient := scale (sigmoid(z) - y) there, else 0.
/// May alias the logits.
template<class T>
void binary_loss_and_gradient(DefaultExec const& exec, Matrix<T> const& logits, RowTargets const& targets,
                              T scale, Matrix<T> const& gradient, runtime::Number<double> const& loss) {
  auto const num_columns = logits.extent(1);
  auto const splits = targets.splits;
  auto const indicator = targets.indicator;
  Kokkos::parallel_reduce(
      "orthant::pmm::binary_loss_and_gradient", RowPolicy(exec, 0, num_rows_of(targets)),
      KOKKOS_LAMBDA(std::int64_t i, double& sum) {
        for (std::size_t j = 0; j < num_columns; ++j) {
          auto const x = logits(at(i), j);
          auto const label = indicator(at(i), j);
          if (splits(at(i)) != 0 || label < 0) {
            gradient(at(i), j) = T{0};
            continue;
          }
          auto const y = static_cast<T>(label);
          sum += static_cast<double>(binary_loss_of(x, y));
          auto const decay = math::exp(-math::fabs(x));
          auto const sigmoid = x > T{0} ? T{1} / (T{1} + decay) : decay / (T{1} + decay);
          gradient(at(i), j) = (sigmoid - y) * scale;
        }
      },
      loss);
}

/// The mean from the sum; 0 of nothing.
struct ScaleLoss {
  runtime::Number<double> loss;
  double scale;
  KOKKOS_FUNCTION void operator()(std::int64_t) const { loss() = scale == 0 ? 0.0 : loss() * scale; }
};

/// Loss, correct and counted entries of each split, of this rank's classes.
template<class T>
SplitSums score_binary(DefaultExec const& exec, Matrix<T> const& logits, RowTargets const& targets) {
  auto const num_columns = logits.extent(1);
  auto const splits = targets.splits;
  auto const indicator = targets.indicator;
  return sum_over_rows(
      exec, "orthant::pmm::score_binary", num_rows_of(targets),
      KOKKOS_LAMBDA(std::int64_t i, SplitSums & sum) {
        auto const split = splits(at(i));
        for (std::size_t j = 0; split >= 0 && j < num_columns; ++j) {
          auto const x = logits(at(i), j);
          auto const label = indicator(at(i), j);
          if (label < 0) continue;
          sum.loss[split] += static_cast<double>(binary_loss_of(x, static_cast<T>(label)));
          sum.correct[split] += (x > T{0}) == (label == 1) ? 1 : 0;
          sum.counted[split] += 1;
        }
      });
}

} // namespace orthant::pmm::detail
