// SPDX-License-Identifier: Apache-2.0
#include "runtime/arrays/allocation.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace orthant::runtime {

void advise_huge_pages([[maybe_unused]] void* address, [[maybe_unused]] std::size_t num_bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t page = std::uintptr_t{2} << 20;
  constexpr std::size_t worth_it = 4 * page;
  if (num_bytes < worth_it) return;
  auto const begin = reinterpret_cast<std::uintptr_t>(address);
  auto const first = (begin + page - 1) / page * page;
  auto const end = (begin + num_bytes) / page * page;
  // Fails if the kernel has no transparent huge pages. The memory is then used without them.
  madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}

} // namespace orthant::runtime
