// SPDX-License-Identifier: Apache-2.0
#include "graph/crc32.hpp"

#include <zlib.h>

namespace orthant::graph {

std::uint32_t crc32_of(std::span<std::byte const> bytes, std::uint32_t crc) {
  return static_cast<std::uint32_t>(
      ::crc32_z(crc, reinterpret_cast<unsigned char const*>(bytes.data()), bytes.size()));
}

} // namespace orthant::graph
