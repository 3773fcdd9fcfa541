// SPDX-License-Identifier: Apache-2.0
//
// A Kokkos tool that aborts as soon as Kokkos starts it, in the manner of Kokkos::abort: text on std::cerr,
// then SIGABRT.

#include <cstdint>
#include <cstdlib>
#include <iostream>

extern "C" void kokkosp_init_library(int /*sequence*/, std::uint64_t /*version*/, std::uint32_t /*devices*/,
                                     void* /*info*/) {
  std::cerr << "no device\nis free\n";
  std::abort();
}
