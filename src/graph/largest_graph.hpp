#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What is taken from outside as the size of a graph. Larger numbers are slips: with these, every product of a
// count and a few bytes, and every id in the store, stays far below 64 bits.

#include <cstdint>
#include <limits>

namespace orthant::graph {

inline constexpr std::int64_t most_vertices = std::int64_t{1} << 40; // 1.1e12
inline constexpr std::int64_t most_edges = std::int64_t{1} << 44;    // 1.8e13, as listed
/// Classes and columns of features: 32-bit numbers in the store.
inline constexpr std::int64_t most_columns = std::numeric_limits<std::int32_t>::max();
/// Those that a generator is asked to make up.
inline constexpr std::int64_t most_generated_columns = std::int64_t{1} << 24;

} // namespace orthant::graph
