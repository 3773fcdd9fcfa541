#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What is asked of the output of a layer when a training goes wrong.

#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>

namespace orthant::models {

/// Of this rank's numbers: whether all are finite, and how many are positive. Fence; not collective.
template<class T>
[[nodiscard]] bool is_finite(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& matrix);
template<class T>
[[nodiscard]] std::int64_t count_positive(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& matrix);

} // namespace orthant::models
