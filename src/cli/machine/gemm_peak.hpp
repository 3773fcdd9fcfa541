#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The speed of a large square product, of the library that is chosen for it, called by itself: what the speed of a
// training is compared with.

#include "runtime/comm/communicator.hpp"

#include <cstdint>

namespace orthant::cli {

/// flop / s of all ranks together, which multiply at once: the best of `num_repeats`, behind one that warms up.
/// Collective.
template<class T>
[[nodiscard]] double measure_gemm_peak(runtime::Communicator const& world, std::int64_t size,
                                       std::int64_t num_repeats);

} // namespace orthant::cli
