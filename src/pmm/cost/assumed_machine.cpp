// SPDX-License-Identifier: Apache-2.0
#include "pmm/cost/machine_file.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>

namespace orthant::pmm {

Machine const& assumed_machine() {
  static auto const machine = [] {
    std::string const name = runs_on_host ? "host" : "perlmutter";
    return parse_machine(std::ranges::find(built_in_machines(), name, &BuiltInMachine::name)->text, name);
  }();
  return machine;
}

} // namespace orthant::pmm
