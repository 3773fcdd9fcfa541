#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The checksum of graph stores and of zip archives.

#include <cstddef>
#include <cstdint>
#include <span>

namespace orthant::graph {

/// CRC-32 as in zlib, continued from `crc`.
[[nodiscard]] std::uint32_t crc32_of(std::span<std::byte const> bytes, std::uint32_t crc = 0);

} // namespace orthant::graph
