#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Operations on lists of row-major rows: rows picked or placed by a list, sums of listed rows, and sums of whole slabs. An
// exchange of needed rows sends picked rows and sums the received ones. Each call adds one pass to `passes`.

#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/range.hpp"

#include <vector>

namespace orthant::pmm {

/// picked[i] := rows[list[i]], rows of `width` numbers. The arrays must not overlap. Enqueues on exec; does not fence.
template<class T>
void pick_rows(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& rows,
               Vector<runtime::LocalColumn> const& list, std::int64_t width, Vector<T> const& picked);
/// Adds the pass of pick_rows() to `step`. `format` is the number format in memory.
void plan_pick_rows(StepPlan& step, std::int64_t num_picked, std::int64_t width, Wire format = Wire::native);

/// rows[list[i]] := placed[i], rows of `width` numbers; other rows keep their values. The arrays must not overlap, and the list must not
/// repeat a row. Enqueues on exec; does not fence.
template<class T>
void place_rows(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& placed,
                Vector<runtime::LocalColumn> const& list, std::int64_t width, Vector<T> const& rows);
/// Adds the pass of place_rows() to `step`.
void plan_place_rows(StepPlan& step, std::int64_t num_placed, std::int64_t width);

/// sums[i] := the sum of parts[addends[k]] for k in [offsets[i], offsets[i + 1]), in this order. Sums of 16-bit numbers
/// are rounded after each addition on hosts, and once at the end on devices. The arrays must not overlap. Enqueues on
/// exec; does not fence.
template<class T>
void add_rows(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& parts,
              Vector<runtime::Offset> const& offsets, Vector<runtime::Offset> const& addends,
              std::int64_t width, Vector<T> const& sums);
/// Adds the pass of add_rows() to `step`. `format` is the number format in memory.
void plan_add_rows(StepPlan& step, std::int64_t num_rows, std::int64_t num_addends, std::int64_t width,
                   Wire format = Wire::native);

/// sums := the sum of `num_slabs` slabs that lie one after the other, added in this order in T. Rows have `width`
/// numbers, at least 1. The arrays must not overlap. Enqueues on exec; does not fence.
template<class T>
void add_slabs(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& slabs,
               std::int64_t num_slabs, std::int64_t width, Vector<T> const& sums);

/// Copies a list to a View in the memory of kernels.
template<class Number>
[[nodiscard]] Vector<Number> to_device(char const* label, std::vector<Number> const& numbers) {
  Vector<Number> view(Kokkos::view_alloc(std::string(label), Kokkos::WithoutInitializing), numbers.size());
  Kokkos::deep_copy(view, Kokkos::View<Number const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
                              numbers.data(), numbers.size()));
  return view;
}

/// Selected rows of a matrix. Row i of the matrix has its place among the selected rows in
/// places[offsets[i], offsets[i + 1]), which is empty if it is not selected.
struct RowSelection {
  Vector<runtime::LocalColumn> rows; // the selected rows, ascending
  Vector<runtime::Offset> offsets;   // [rows of the matrix + 1]
  Vector<runtime::Offset> places;    // [selected rows]
};

/// Selects `rows`, which must be ascending, of a matrix of `num_rows` rows.
[[nodiscard]] RowSelection make_row_selection(std::vector<runtime::LocalColumn> const& rows,
                                              std::int64_t num_rows);
/// Adds the arrays of a RowSelection to `step`.
void plan_row_selection(StepPlan& step, std::int64_t num_selected, std::int64_t num_rows);

/// select_rows: selected := the selected rows of `all`. spread_rows: all := `selected` in the selected rows, 0 in the
/// others. The arrays must not overlap. Enqueue on exec; do not fence.
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
