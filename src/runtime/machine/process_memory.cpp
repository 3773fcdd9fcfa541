// SPDX-License-Identifier: Apache-2.0
#include "runtime/machine/process_memory.hpp"

#include <fstream>
#include <string>

namespace orthant::runtime {
namespace {

/// A line "Name:   123 kB" of /proc/self/status, in bytes.
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

} // namespace

std::int64_t resident_bytes() {
  return status_bytes("VmRSS");
}
std::int64_t peak_resident_bytes() {
  return status_bytes("VmHWM");
}

} // namespace orthant::runtime
