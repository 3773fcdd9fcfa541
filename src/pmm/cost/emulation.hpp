#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A machine that a run pretends to run on (runtime/observe/run_clock.hpp): its calls take what the prediction says of
// them, call_seconds(). The rest is not predicted: what ranks compute, and how long they wait for one another.

#include "pmm/cost/machine.hpp"
#include "runtime/observe/run_clock.hpp"

#include <string>

namespace orthant::pmm {

/// For a job of that many ranks. `name`: of the machine or its file, as the user gave it.
[[nodiscard]] runtime::EmulatedMachine emulation_of(Machine const& machine, std::string name, int job_ranks);

} // namespace orthant::pmm
