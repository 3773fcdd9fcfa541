#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What observes a process: its position (for the watchdog) and its trace. Owned by Environment, shared by
// every communicator that descends from its world.

#include "runtime/position.hpp"
#include "runtime/trace.hpp"

namespace orthant::runtime {

struct Instruments {
  Position position;
  Trace trace;
};

} // namespace orthant::runtime
