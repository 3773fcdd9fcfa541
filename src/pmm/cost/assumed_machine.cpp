// SPDX-License-Identifier: Apache-2.0
#include "pmm/cost/machine_file.hpp"
#include "runtime/arrays/views.hpp"

#include <algorithm>

namespace orthant::pmm {

Machine const& assumed_machine() {
  using Memory = runtime::DefaultExec::memory_space;
  static auto const machine = [] {
    std::string const name =
        Kokkos::SpaceAccessibility<Kokkos::HostSpace, Memory>::accessible ? "host" : "perlmutter";
    return parse_machine(std::ranges::find(built_in_machines(), name, &BuiltInMachine::name)->text, name);
  }();
  return machine;
}

} // namespace orthant::pmm
