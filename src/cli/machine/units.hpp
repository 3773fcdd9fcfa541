#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Factors of units.

namespace orthant::cli {

inline constexpr double percent = 1e2; // percent per 1
inline constexpr double milli = 1e-3;
inline constexpr double mega = 1e6;
inline constexpr double giga = 1e9;

} // namespace orthant::cli
