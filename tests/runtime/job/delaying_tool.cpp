// SPDX-License-Identifier: Apache-2.0
//
// A Kokkos tool that delays one rank: every kernel of the rank ORTHANT_TEST_DELAYED_RANK (of Open MPI) starts 2 ms late.

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace {

bool is_delayed() {
  auto const* const delayed = std::getenv("ORTHANT_TEST_DELAYED_RANK");
  auto const* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return delayed != nullptr && rank != nullptr && std::string_view(delayed) == rank;
}

} // namespace

extern "C" void kokkosp_begin_parallel_for(char const* /*name*/, std::uint32_t /*device*/,
                                           std::uint64_t* kernel) {
  static bool const delays = is_delayed();
  *kernel = 0;
  if (delays) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}
