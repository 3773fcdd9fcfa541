#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Multiply-adds on all units of a rank's processors, or of its device.

#include "runtime/arrays/views.hpp"

#include <cstdint>

namespace orthant::cli {

/// Enqueues a few milliseconds of multiply-adds on exec. Returns their number of floating-point operations.
template<class T>
std::int64_t run_fma_work(runtime::DefaultExec const& exec);

extern template std::int64_t run_fma_work<float>(runtime::DefaultExec const&);
extern template std::int64_t run_fma_work<double>(runtime::DefaultExec const&);

} // namespace orthant::cli
