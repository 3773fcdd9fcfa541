#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Counts per class and group of rows: how many rows have this label (there), this prediction (predicted), and both. The counts are
// integers, so they are the same on every grid. The scores of a group follow from them, as in scikit-learn with zero_division = 0:
//
//   F1_j = 2 both_j / (there_j + predicted_j), or 0 if the denominator is 0
//   macro-F1 = mean of F1_j      single label: over the classes that are a label or predicted
//                                multi-label: over the classes with known entries
//   micro-F1 = 2 sum_j both_j / sum_j (there_j + predicted_j)      single label: the share of correct rows

#include "pmm/rows/row_loss.hpp"

#include <cstdint>
#include <span>

namespace orthant::pmm::detail {

enum ClassCount { class_there, class_predicted, class_both, class_known, num_class_counts };

/// Allocates [groups x classes x num_class_counts] counts of 0.
inline Vector<std::int64_t> make_class_counts(int num_groups, std::int64_t num_classes) {
  return Vector<std::int64_t>("orthant::pmm::class_counts",
                              static_cast<std::size_t>(num_groups * num_classes * num_class_counts));
}

/// The counts of one group and class.
KOKKOS_INLINE_FUNCTION std::int64_t* counts_of(Vector<std::int64_t> const& counts, std::int64_t num_classes,
                                               std::int8_t group, std::int64_t label) {
  return counts.data() + (group * num_classes + label) * num_class_counts;
}

/// Adds the rows of this rank to `counts` (single label). arg_max must be reduced over all classes. Uses one atomic addition
/// of an integer per count, so the result is deterministic.
template<class T>
void count_classes(DefaultExec const& exec, RowTargets const& targets,
                   Vector<runtime::ValueIndex<T>> const& arg_max, std::int64_t num_classes,
                   Vector<std::int64_t> const& counts) {
  auto const groups = targets.groups;
  auto const classes = targets.classes;
  Kokkos::parallel_for(
      "orthant::pmm::count_classes",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, static_cast<std::int64_t>(groups.extent(0))),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto const row = static_cast<std::size_t>(i);
        auto const group = groups(row);
        auto const label = classes(row);
        auto const predicted = arg_max(row).index;
        if (group < 0 || label < 0 || predicted >= num_classes) return;
        auto* const of_label = counts_of(counts, num_classes, group, label);
        Kokkos::atomic_add(of_label + class_there, std::int64_t{1});
        Kokkos::atomic_add(of_label + class_known, std::int64_t{1});
        if (predicted == label) Kokkos::atomic_add(of_label + class_both, std::int64_t{1});
        Kokkos::atomic_add(counts_of(counts, num_classes, group, predicted) + class_predicted,
                           std::int64_t{1});
      });
}

/// Adds the known entries of this rank's classes to `counts` (multi-label). The first class of this rank is `first_class`.
template<class T>
void count_entries(DefaultExec const& exec, Matrix<T> const& logits, RowTargets const& targets,
                   std::int64_t first_class, std::int64_t num_classes, Vector<std::int64_t> const& counts) {
  auto const groups = targets.groups;
  auto const indicator = targets.indicator;
  auto const num_columns = logits.extent(1);
  Kokkos::parallel_for(
      "orthant::pmm::count_entries",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, static_cast<std::int64_t>(groups.extent(0))),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto const row = static_cast<std::size_t>(i);
        if (groups(row) < 0) return;
        for (std::size_t j = 0; j < num_columns; ++j) {
          auto const label = indicator(row, j);
          if (label < 0) continue;
          auto* const of_class =
              counts_of(counts, num_classes, groups(row), first_class + static_cast<std::int64_t>(j));
          auto const is_predicted = logits(row, j) > T{0};
          Kokkos::atomic_add(of_class + class_known, std::int64_t{1});
          if (label == 1) Kokkos::atomic_add(of_class + class_there, std::int64_t{1});
          if (is_predicted) Kokkos::atomic_add(of_class + class_predicted, std::int64_t{1});
          if (is_predicted && label == 1) Kokkos::atomic_add(of_class + class_both, std::int64_t{1});
        }
      });
}

/// Computes the F1 scores, num_most_frequent and num_most_predicted of a group from its counts over all ranks,
/// [classes x num_class_counts].
void add_class_scores(std::span<double const> counts, LossKind kind, GroupScore& score);

} // namespace orthant::pmm::detail
