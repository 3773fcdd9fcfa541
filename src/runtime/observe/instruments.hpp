#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What observes a process and what it says: its position (for the watchdog), its clock, its trace, its log, the count of
// its arithmetic and of its passes over arrays. Owned by Environment, shared by every communicator that descends from its world.

#include "runtime/observe/log.hpp"
#include "runtime/observe/passes.hpp"
#include "runtime/observe/position.hpp"
#include "runtime/observe/run_clock.hpp"
#include "runtime/observe/trace.hpp"

#include <cstdint>

namespace orthant::runtime {

class CallTape;

/// Floating-point operations of the products that this process has run; a multiplication and an addition are
/// two.
struct FlopCount {
  std::int64_t dense = 0;
  std::int64_t sparse = 0;
  FlopCount& operator+=(FlopCount const& other) {
    dense += other.dense;
    sparse += other.sparse;
    return *this;
  }
};

struct Instruments {
  Position position;
  RunClock clock;
  Trace trace;
  Log log;
  FlopCount flops;
  PassLedger passes;
  CallTape* tape = nullptr; // if set, collectives go through it (comm/call_tape.hpp)
};

} // namespace orthant::runtime
