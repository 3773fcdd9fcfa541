#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Row-major rows picked by a list, and rows that are sums of listed ones: what an exchange of needed rows
// sends, and what it makes of what it receives. And sums of whole slabs. Each is a pass, which it counts.

#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/range.hpp"

#include <vector>

namespace orthant::pmm {

/// picked[i] := rows[list[i]], rows of `width` numbers. Not overlapping. Enqueues on exec; does not fence.
template<class T>
void pick_rows(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& rows,
               Vector<runtime::LocalColumn> const& list, std::int64_t width, Vector<T> const& picked);
/// Lists it. `format`: of the numbers in memory.
void plan_pick_rows(StepPlan& step, std::int64_t num_picked, std::int64_t width, Wire format = Wire::native);

/// sums[i] := the sum of parts[addends[k]] for k in [offsets[i], offsets[i + 1]), in this order and in T. Of 16-bit
/// numbers: rounded after each addition.
/// Not overlapping. Enqueues on exec; does not fence.
template<class T>
void add_rows(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& parts,
              Vector<runtime::Offset> const& offsets, Vector<runtime::Offset> const& addends,
              std::int64_t width, Vector<T> const& sums);
/// Lists it. `format`: of the numbers in memory.
void plan_add_rows(StepPlan& step, std::int64_t num_rows, std::int64_t num_addends, std::int64_t width,
                   Wire format = Wire::native);

/// sums := the sum of `num_slabs` slabs of rows of `width` numbers, at least 1, that lie one after the other,
/// in this order and in T. Not overlapping. Enqueues on exec; does not fence.
template<class T>
void add_slabs(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& slabs,
               std::int64_t num_slabs, std::int64_t width, Vector<T> const& sums);

/// A list in the memory of kernels.
template<class Number>
[[nodiscard]] Vector<Number> to_device(char const* label, std::vector<Number> const& numbers) {
  Vector<Number> view(Kokkos::view_alloc(std::string(label), Kokkos::WithoutInitializing), numbers.size());
  Kokkos::deep_copy(view, Kokkos::View<Number const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
                              numbers.data(), numbers.size()));
  return view;
}

/// Some rows of a matrix.
struct RowSelection {
  Vector<runtime::LocalColumn> rows; // places of those that are selected, ascending
  Vector<runtime::Offset> offsets;   // [rows of the matrix + 1] into:
  Vector<runtime::Offset> places;    // for each row of the matrix its place among those selected, or none
};

/// `rows`: ascending places in a matrix of so many rows.
[[nodiscard]] RowSelection make_row_selection(std::vector<runtime::LocalColumn> const& rows,
                                              std::int64_t num_rows);
/// Lists its arrays.
void plan_row_selection(StepPlan& step, std::int64_t num_selected, std::int64_t num_rows);

/// selected := those rows of `all`, and all := `selected` in those rows and 0 in the others. Not overlapping.
/// Enqueue on exec; do not fence.
template<class T>
void select_rows(DefaultExec const& exec, runtime::PassLedger& passes, RowSelection const& selection,
                 Vector<T> const& all, std::int64_t width, Vector<T> const& selected) {
  pick_rows(exec, passes, all, selection.rows, width, selected);
}
template<class T>
void spread_rows(DefaultExec const& exec, runtime::PassLedger& passes, RowSelection const& selection,
                 Vector<T> const& selected, std::int64_t width, Vector<T> const& all) {
  add_rows(exec, passes, selected, selection.offsets, selection.places, width, all);
}

} // namespace orthant::pmm
