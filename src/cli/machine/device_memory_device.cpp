// SPDX-License-Identifier: Apache-2.0
//
// Device memory on a device. Compiled instead of device_memory_host.cpp if Kokkos's default execution space is a device.
#include "cli/machine/device_memory.hpp"

#include "pmm/vendor/vendor_spmm.hpp"
#include "runtime/arrays/views.hpp"

#include <Kokkos_Core.hpp>
#include <atomic>
#include <string_view>

namespace orthant::cli {
namespace {

using Space = runtime::DefaultExec::memory_space;
namespace tools = Kokkos::Tools::Experimental;

/// State of the callbacks, global because Kokkos Tools calls plain functions. A tool that was set before (KOKKOS_TOOLS_LIBS) is also
/// called.
struct Counter {
  std::atomic<std::int64_t> held{0};
  std::atomic<std::int64_t> peak{0};
  tools::EventSet others{};
};

Counter& counter() {
  static Counter only;
  return only;
}

bool is_device(Kokkos_Profiling_SpaceHandle const& space) {
  return std::string_view(space.name) == Space::name();
}

void on_allocation(Kokkos_Profiling_SpaceHandle space, char const* label, void const* data,
                   std::uint64_t num_bytes) {
  auto& count = counter();
  if (is_device(space)) {
    auto const held = count.held += static_cast<std::int64_t>(num_bytes);
    auto peak = count.peak.load();
    while (held > peak && !count.peak.compare_exchange_weak(peak, held)) {
    }
  }
  if (count.others.allocate_data != nullptr) count.others.allocate_data(space, label, data, num_bytes);
}

void on_deallocation(Kokkos_Profiling_SpaceHandle space, char const* label, void const* data,
                     std::uint64_t num_bytes) {
  auto& count = counter();
  if (is_device(space)) count.held -= static_cast<std::int64_t>(num_bytes);
  if (count.others.deallocate_data != nullptr) count.others.deallocate_data(space, label, data, num_bytes);
}

} // namespace

std::int64_t free_device_bytes() {
  return static_cast<std::int64_t>(pmm::vendor::free_device_bytes());
}

DeviceMemory::DeviceMemory() : free_at_start_(free_device_bytes()) {
  auto& count = counter();
  count.held = 0;
  count.peak = 0;
  count.others = tools::get_callbacks();
  tools::set_allocate_data_callback(on_allocation);
  tools::set_deallocate_data_callback(on_deallocation);
}

DeviceMemory::~DeviceMemory() {
  tools::set_allocate_data_callback(counter().others.allocate_data);
  tools::set_deallocate_data_callback(counter().others.deallocate_data);
}

std::int64_t DeviceMemory::peak_array_bytes() const {
  return counter().peak;
}

std::int64_t DeviceMemory::taken_bytes() const {
  return free_at_start_ - free_device_bytes();
}

} // namespace orthant::cli
