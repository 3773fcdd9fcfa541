// SPDX-License-Identifier: Apache-2.0
#include "cli/machine/device_memory.hpp"

#include <limits>

namespace orthant::cli {

DeviceMemory::DeviceMemory() = default;
DeviceMemory::~DeviceMemory() = default;
std::int64_t DeviceMemory::peak_array_bytes() const {
  return 0;
}
std::int64_t DeviceMemory::taken_bytes() const {
  return free_at_start_;
}

std::int64_t free_device_bytes() {
  return std::numeric_limits<std::int64_t>::max();
}

} // namespace orthant::cli
