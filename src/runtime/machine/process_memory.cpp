// SPDX-License-Identifier: Apache-2.0
#include "runtime/machine/process_memory.hpp"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace orthant::runtime {
namespace {

/// Value in bytes of a line "Name:   123 kB" of /proc/self/status.
std::int64_t status_bytes(std::string const& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == name + ":") {
      std::int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

#ifdef __GLIBC__
/// True if the user has set how memory is allocated.
bool has_own_settings() {
  for (auto const* const name : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"})
    if (std::getenv(name) != nullptr) return true;
  auto const* const tunables = std::getenv("GLIBC_TUNABLES");
  return tunables != nullptr && std::string(tunables).find("malloc") != std::string::npos;
}
#endif

/// Sets the size from which arrays are mapped, and the freed memory that the heap retains at its end.
void set_thresholds([[maybe_unused]] int mapped_bytes, [[maybe_unused]] int kept_bytes) {
#ifdef __GLIBC__
  if (has_own_settings()) return;
  mallopt(M_MMAP_THRESHOLD, mapped_bytes);
  mallopt(M_TRIM_THRESHOLD, kept_bytes);
#endif
}

constexpr int mib = 1 << 20;

std::atomic<int> num_mapped_arrays = 0;

} // namespace

std::int64_t resident_bytes() {
  return status_bytes("VmRSS");
}
std::int64_t peak_resident_bytes() {
  return status_bytes("VmHWM");
}

// glibc's initial values. With 1 MiB, the holes between arrays of experts on 2 and 4 ranks took 4 MiB more.
MappedArrays::MappedArrays() {
  if (num_mapped_arrays++ == 0) set_thresholds(mib / 8, mib / 8);
}
// The largest values that glibc itself chooses after large arrays were freed.
MappedArrays::~MappedArrays() {
  if (--num_mapped_arrays == 0) set_thresholds(32 * mib, 64 * mib);
}

} // namespace orthant::runtime
