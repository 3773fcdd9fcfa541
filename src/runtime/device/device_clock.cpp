// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device_clock.hpp"

#include <Kokkos_Macros.hpp>

#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP)
#include "runtime/device/device_runtime.hpp"

namespace orthant::runtime {

void DeviceClock::DestroyEvent::operator()(void* event) const noexcept {
  static_cast<void>(ORTHANT_DEVICE_API(EventDestroy)(static_cast<device::NativeEvent>(event)));
}

std::shared_ptr<DeviceClock> DeviceClock::create(void* native_stream) {
  return std::shared_ptr<DeviceClock>(native_stream == nullptr ? nullptr : new DeviceClock(native_stream));
}

std::size_t DeviceClock::stamp() {
  if (num_stamps_ == events_.size()) {
    device::NativeEvent event = nullptr;
    ORTHANT_DEVICE(EventCreate(&event));
    events_.emplace_back(event);
  }
  ORTHANT_DEVICE(EventRecord(static_cast<device::NativeEvent>(events_[num_stamps_].get()),
                             static_cast<device::NativeStream>(stream_)));
  return num_stamps_++;
}

double DeviceClock::seconds(std::size_t begin, std::size_t end) const {
  auto milliseconds = 0.0F;
  ORTHANT_DEVICE(EventElapsedTime(&milliseconds, static_cast<device::NativeEvent>(events_[begin].get()),
                                  static_cast<device::NativeEvent>(events_[end].get())));
  return static_cast<double>(milliseconds) / 1000;
}

} // namespace orthant::runtime

#else
namespace orthant::runtime {

void DeviceClock::DestroyEvent::operator()(void*) const noexcept {}
std::shared_ptr<DeviceClock> DeviceClock::create(void*) {
  return nullptr;
}
std::size_t DeviceClock::stamp() {
  return num_stamps_++;
}
double DeviceClock::seconds(std::size_t, std::size_t) const {
  return 0;
}

} // namespace orthant::runtime
#endif
