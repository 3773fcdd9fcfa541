#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Row-major rows picked by a list, and rows that are sums of listed ones: what an exchange of needed rows
// sends, and what it makes of what it receives. And sums of whole slabs.

#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/range.hpp"

namespace orthant::pmm {

/// picked[i] := rows[list[i]], rows of `width` numbers. Not overlapping. Enqueues on exec; does not fence.
template<class T>
void pick_rows(DefaultExec const& exec, Vector<T> const& rows, Vector<runtime::LocalColumn> const& list,
               std::int64_t width, Vector<T> const& picked);

/// sums[i] := the sum of parts[addends[k]] for k in [offsets[i], offsets[i + 1]), in this order and in T.
/// Not overlapping. Enqueues on exec; does not fence.
template<class T>
void add_rows(DefaultExec const& exec, Vector<T> const& parts, Vector<runtime::Offset> const& offsets,
              Vector<runtime::Offset> const& addends, std::int64_t width, Vector<T> const& sums);

/// sums := the sum of `num_slabs` slabs of rows of `width` numbers, at least 1, that lie one after the other,
/// in this order and in T. Not overlapping. Enqueues on exec; does not fence.
template<class T>
void add_slabs(DefaultExec const& exec, Vector<T> const& slabs, std::int64_t num_slabs, std::int64_t width,
               Vector<T> const& sums);

} // namespace orthant::pmm
