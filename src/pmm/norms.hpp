#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sums over a whole distributed matrix, in double, replicas counted once: gradient norms, clipping. What a
// rank contributes is local; one reduction over the group then serves all parameters at once:
//
//   std::array sums{local_squared_norm(exec, dw), local_squared_norm(exec, db)};
//   sum_over_group(grid, sums);                            // ||dW||_F^2, ||db||^2

#include "pmm/dist_vector.hpp"

#include <span>

namespace orthant::pmm {

/// This rank's share of ||matrix||_F^2: 0 on all replicas but the first. Fences exec.
template<class T>
[[nodiscard]] double local_squared_norm(DefaultExec const& exec, DistMatrix<T> const& matrix);
template<class T>
[[nodiscard]] double local_squared_norm(DefaultExec const& exec, DistVector<T> const& vector);

/// shares[i] := sum over the X x Y x Z group. Collective: one all_reduce.
void sum_over_group(ProcessGrid const& grid, std::span<double> shares);

} // namespace orthant::pmm
