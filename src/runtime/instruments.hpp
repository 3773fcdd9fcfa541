#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What observes a process and what it says: its position (for the watchdog), its trace and its log. Owned by
// Environment, shared by every communicator that descends from its world.

#include "runtime/log.hpp"
#include "runtime/position.hpp"
#include "runtime/trace.hpp"

namespace orthant::runtime {

struct Instruments {
  Position position;
  Trace trace;
  Log log;
};

} // namespace orthant::runtime
