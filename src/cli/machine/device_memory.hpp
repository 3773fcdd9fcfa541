#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Device memory that a rank takes, as two numbers. The bytes of arrays are counted exactly, also if ranks share a device, but without the
// memory of libraries. The device reports its free memory, but not who uses the rest.

#include <cstdint>

namespace orthant::cli {

/// Counts from its construction on. Only one object may exist at a time. All values are 0 if kernels run on the host
/// (machine_host.cpp).
class DeviceMemory {
 public:
  /// Kokkos must be initialized. Later allocations are counted.
  DeviceMemory();
  DeviceMemory(DeviceMemory const&) = delete;
  DeviceMemory& operator=(DeviceMemory const&) = delete;
  ~DeviceMemory();

  /// Peak bytes of this rank's arrays.
  [[nodiscard]] std::int64_t peak_array_bytes() const;
  /// Decrease of the device's free memory since construction, by all ranks of the device, their libraries, and other programs.
  [[nodiscard]] std::int64_t taken_bytes() const;

 private:
  std::int64_t free_at_start_ = 0;
};

/// Free bytes of this rank's device; the largest number if kernels run on the host.
[[nodiscard]] std::int64_t free_device_bytes();

} // namespace orthant::cli
