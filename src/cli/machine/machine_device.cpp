// SPDX-License-Identifier: Apache-2.0
//
// Peak arithmetic and memory of a device. Compiled instead of machine_host.cpp if Kokkos's default execution space is a device.
#include "cli/machine/arithmetic_peak.hpp"
#include "cli/machine/device_memory.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/vendor/vendor_spmm.hpp"
#include "runtime/arrays/views.hpp"

#include <Kokkos_Core.hpp>
#include <atomic>
#include <string_view>

namespace orthant::cli {

template<class T>
std::int64_t run_fma_work(runtime::DefaultExec const& exec) {
  constexpr auto steps = 1 << 14;
  constexpr auto num_chains = 8; // per thread; a fully occupied multiprocessor needs few
  auto const num_threads = static_cast<std::int64_t>(exec.concurrency());
  runtime::Vector<T> const sums("orthant::cli::fma", static_cast<std::size_t>(num_threads));
  Kokkos::parallel_for(
      "orthant::cli::fma", Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, num_threads),
      KOKKOS_LAMBDA(std::int64_t thread) {
        T chains[num_chains];
        for (int chain = 0; chain < num_chains; ++chain)
          chains[chain] = static_cast<T>(chain);
        auto const factor = T(0.5) + static_cast<T>(thread % 2) / 4; // not known to the compiler
        for (int step = 0; step < steps; ++step)
          for (int chain = 0; chain < num_chains; ++chain)
            chains[chain] = chains[chain] * factor + T(1);
        T sum = 0;
        for (int chain = 0; chain < num_chains; ++chain)
          sum += chains[chain];
        sums(static_cast<std::size_t>(thread)) = sum;
      });
  return num_threads * steps * num_chains * 2;
}

template std::int64_t run_fma_work<float>(runtime::DefaultExec const&);
template std::int64_t run_fma_work<double>(runtime::DefaultExec const&);

namespace {

using pmm::Panel;
using pmm::Transpose;

constexpr std::string_view of_vendor = "vendor";

} // namespace

std::vector<std::string_view> bare_libraries() {
  return {of_vendor};
}

template<class T>
std::string_view chosen_library(Transpose, Transpose, pmm::GemmExtents const&) {
  return of_vendor;
}

template<class T>
bool bare_gemm(std::string_view, Transpose transpose_a, Panel<T> const& a, Transpose transpose_b,
               Panel<T> const& b, Panel<T> const& c) {
  pmm::detail::library_gemm<T>(runtime::DefaultExec(), 1, transpose_a, a, transpose_b, b, 0, c);
  return true;
}

template std::string_view chosen_library<float>(Transpose, Transpose, pmm::GemmExtents const&);
template std::string_view chosen_library<double>(Transpose, Transpose, pmm::GemmExtents const&);
template bool bare_gemm(std::string_view, Transpose, Panel<float> const&, Transpose, Panel<float> const&,
                        Panel<float> const&);
template bool bare_gemm(std::string_view, Transpose, Panel<double> const&, Transpose, Panel<double> const&,
                        Panel<double> const&);

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
