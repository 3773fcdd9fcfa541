#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "pmm/cost/machine_file.hpp"

#include <algorithm>
#include <string_view>

namespace orthant::testing {

/// One of machines/*.toml.
inline pmm::Machine built_in_machine(std::string_view name) {
  auto const all = pmm::built_in_machines();
  auto const found = std::ranges::find(all, name, &pmm::BuiltInMachine::name);
  return pmm::parse_machine(found->text, std::string(name));
}

} // namespace orthant::testing
