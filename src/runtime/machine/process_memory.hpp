#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Resident memory of this process, as the kernel counts it.

#include <cstdint>

namespace orthant::runtime {

/// Bytes resident now, and the most there ever were. 0 where the system does not say.
[[nodiscard]] std::int64_t resident_bytes();
[[nodiscard]] std::int64_t peak_resident_bytes();

} // namespace orthant::runtime
