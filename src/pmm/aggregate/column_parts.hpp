#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A row-major matrix [n x w] as its column parts one after the other, each [n x w_p] row-major, and back: what
// an exchange of columns against rows sends, and receives.

#include "pmm/matrix/dist_matrix.hpp"

namespace orthant::pmm {

/// parts := the balanced column parts of `rows` [num_rows x width], and back. Not overlapping. Enqueue on
/// exec; do not fence. Each is a pass, which it counts.
template<class T>
void split_columns(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& rows,
                   std::int64_t num_rows, std::int64_t width, int num_parts, Vector<T> const& parts);
template<class T>
void join_columns(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& parts,
                  std::int64_t num_rows, std::int64_t width, int num_parts, Vector<T> const& rows);

} // namespace orthant::pmm
