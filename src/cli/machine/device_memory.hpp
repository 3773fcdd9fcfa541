#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a rank takes of its device's memory. Two figures, because each lacks something: arrays are counted
// exactly, also where ranks share a device, but libraries have memory that is no array; the device knows what
// is free, but neither whose the rest is nor how little was free before.

#include <cstdint>

namespace orthant::cli {

/// Counts from its construction on; one at a time. All 0 where kernels run on the host
/// (device_memory_host.cpp).
class DeviceMemory {
 public:
  /// Kokkos must run; all allocations after this are seen.
  DeviceMemory();
  DeviceMemory(DeviceMemory const&) = delete;
  DeviceMemory& operator=(DeviceMemory const&) = delete;
  ~DeviceMemory();

  /// The most bytes that this rank's arrays held at one time.
  [[nodiscard]] std::int64_t peak_array_bytes() const;
  /// By how much less is free now, whoever took it: all ranks of the device, their libraries, other programs.
  [[nodiscard]] std::int64_t taken_bytes() const;

 private:
  std::int64_t free_at_start_ = 0;
};

/// Bytes that nobody has taken of this rank's device; the largest number where kernels run on the host.
[[nodiscard]] std::int64_t free_device_bytes();

} // namespace orthant::cli
