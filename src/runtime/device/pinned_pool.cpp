// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/pinned_pool.hpp"

#include "runtime/device/kokkos_compat.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace orthant::runtime {
namespace {

using Memory = std::span<std::byte>;

struct Pool {
  std::vector<Memory> idle;
  bool is_freed_at_the_end = false;
};

Pool& pool() {
  static Pool only;
  return only;
}

void free_idle() {
  for (auto const memory : pool().idle)
    Kokkos::kokkos_free<compat::PinnedSpace>(memory.data());
  pool().idle.clear();
}

/// Removes from the pool the smallest memory that is large enough, otherwise the largest. Returns an empty span if the pool is empty.
Memory take(std::size_t num_bytes) {
  auto& idle = pool().idle;
  if (idle.empty()) return {};
  std::size_t best = 0;
  for (std::size_t i = 1; i < idle.size(); ++i) {
    auto const fits = idle[i].size() >= num_bytes;
    auto const best_fits = idle[best].size() >= num_bytes;
    if (fits ? !best_fits || idle[i].size() < idle[best].size()
             : !best_fits && idle[i].size() > idle[best].size())
      best = i;
  }
  std::swap(idle[best], idle.back());
  auto const memory = idle.back();
  idle.pop_back();
  return memory;
}

} // namespace

std::span<std::byte> lend_pinned(std::size_t num_bytes) {
  constexpr std::size_t smallest = 4096; // also for an empty message: MPI needs an address
  num_bytes = std::max(num_bytes, smallest);
  auto const memory = take(num_bytes);
  if (memory.size() >= num_bytes) return memory;
  if (!memory.empty()) Kokkos::kokkos_free<compat::PinnedSpace>(memory.data()); // it was too small
  if (!pool().is_freed_at_the_end) {
    Kokkos::push_finalize_hook(free_idle);
    pool().is_freed_at_the_end = true;
  }
  auto* const data = Kokkos::kokkos_malloc<compat::PinnedSpace>("orthant::runtime::pinned", num_bytes);
  return {static_cast<std::byte*>(data), num_bytes};
}

void give_back_pinned(std::span<std::byte> memory) {
  if (!memory.empty()) pool().idle.push_back(memory);
}

} // namespace orthant::runtime
