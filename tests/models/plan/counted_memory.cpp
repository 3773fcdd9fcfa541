// SPDX-License-Identifier: Apache-2.0
#include "models/plan/counted_memory.hpp"

#include "support/forms_of_new.inc"

#include <Kokkos_Core.hpp>
#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <new>

namespace orthant::testing {
namespace {

std::atomic<std::int64_t> live{0};
std::atomic<std::int64_t> peak{0};

void add(std::int64_t num_bytes) {
  auto const now = live += num_bytes;
  auto most = peak.load();
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
}

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  add(static_cast<std::int64_t>(malloc_usable_size(memory)));
  return memory;
}

void release(void* memory) {
  if (memory == nullptr) return;
  live -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

} // namespace

void count_kokkos_arrays() {
  constexpr std::int64_t probe_bytes = 1 << 20;
  auto const before = live_bytes();
  Kokkos::View<char*, Kokkos::HostSpace> const probe("orthant::testing::probe", probe_bytes);
  if (live_bytes() - before >= probe_bytes) return;
  using Space = Kokkos::Tools::SpaceHandle;
  Kokkos::Tools::Experimental::set_allocate_data_callback(
      [](Space, char const*, void const*, std::uint64_t size) { add(static_cast<std::int64_t>(size)); });
  Kokkos::Tools::Experimental::set_deallocate_data_callback(
      [](Space, char const*, void const*, std::uint64_t size) { add(-static_cast<std::int64_t>(size)); });
}

std::int64_t live_bytes() {
  return live;
}
std::int64_t peak_bytes() {
  return peak;
}
void restart_peak() {
  peak = live.load();
}

} // namespace orthant::testing

void* operator new(std::size_t size) {
  return orthant::testing::counted(std::malloc(size == 0 ? 1 : size));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  auto const step = static_cast<std::size_t>(alignment);
  return orthant::testing::counted(std::aligned_alloc(step, (size + step) / step * step));
}
void operator delete(void* memory) noexcept {
  orthant::testing::release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  orthant::testing::release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  orthant::testing::release(memory);
}
