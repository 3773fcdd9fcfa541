// SPDX-License-Identifier: Apache-2.0
//
// Assigns a View to another, and says how far it came. OrthantKokkosCheck.cmake runs it.
#include <Kokkos_Core.hpp>
#include <cstdio>

namespace {

using Numbers = Kokkos::View<int*, Kokkos::HostSpace>;
constexpr bool runs_on_host =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, Kokkos::DefaultExecutionSpace::memory_space>::accessible;

void say(char const* text) {
  std::puts(text);
  std::fflush(stdout); // a crash would keep it
}

void assign(Numbers const& from) {
  say("assigning");
  Numbers to;
  to = from;
  if (to.data() == from.data() && to.extent(0) == from.extent(0)) say("assigned");
}

} // namespace

int main() {
  int memory[5] = {};
  assign(Numbers(memory, 5)); // needs neither Kokkos::initialize nor a device
  if (runs_on_host) {
    Kokkos::initialize();
    assign(Numbers("numbers", 5));
    Kokkos::finalize();
  }
  say("done");
}
