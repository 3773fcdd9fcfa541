#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// When a device comes to a point of its queue: time stamps that are enqueued like any other work, and read
// once the queue has been waited for. Only where kernels run on a device.

#include "runtime/unique_handle.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace orthant::runtime {

class DeviceClock {
 public:
  /// For a queue (cudaStream_t, hipStream_t), which must outlive it; null where this build has no device:
  /// then there is no clock.
  [[nodiscard]] static std::shared_ptr<DeviceClock> create(void* native_stream);

  /// Enqueues a time stamp and returns its number, counted from 0. Makes an event only where there have never
  /// been as many stamps.
  std::size_t stamp();
  /// Seconds between two stamps. Throws Error unless the queue has been waited for since.
  [[nodiscard]] double seconds(std::size_t begin, std::size_t end) const;
  /// The next stamp is number 0 again.
  void clear() { num_stamps_ = 0; }

 private:
  explicit DeviceClock(void* native_stream) : stream_(native_stream) {}
  struct DestroyEvent {
    void operator()(void* event) const noexcept;
  };
  void* stream_;
  std::vector<UniqueHandle<void*, nullptr, DestroyEvent>> events_;
  std::size_t num_stamps_ = 0;
};

} // namespace orthant::runtime
