#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Timeline of one run in the Chrome trace-event format (chrome://tracing, Perfetto): one process per rank, one lane for regions and one for
// the collectives of each axis. It is off until `start`; while off, a record costs one branch. The system clocks put the ranks on one time
// axis. They agree to a microsecond on one node, and between nodes as well as NTP synchronizes them (report/metrics.hpp).

#include "runtime/observe/ledger.hpp"
#include "runtime/observe/log.hpp"
#include "runtime/observe/position.hpp"
#include "runtime/observe/run_clock.hpp"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::runtime {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t default_capacity = std::size_t{1} << 20;

  /// Begins recording. Allocates memory for `capacity` records (32 bytes each); later records are only counted as dropped. Call it before
  /// any thread records. `origin` is a common time of all ranks' clocks if they have one (in an emulation); without it, times count from
  /// now.
  void start(std::size_t capacity = default_capacity, std::optional<Clock::time_point> origin = {});
  [[nodiscard]] bool is_on() const { return is_on_; }

  /// Adds a finished region (`bytes` < 0) or collective. Does nothing while off. Any thread. Allocates only for a new name or lane.
  void add(std::string_view name, std::string_view lane, Clock::time_point begin, Clock::time_point end,
           std::int64_t bytes = -1);

  [[nodiscard]] std::int64_t num_records() const;
  [[nodiscard]] std::int64_t num_dropped() const;

  /// The system's clock at start(), in nanoseconds: the origin of the records' times. 0 with a shared origin.
  [[nodiscard]] std::int64_t origin_of_system_ns() const { return origin_of_system_ns_; }
  /// The first `num_records` records as JSON events of `rank`, with `shift_ns` added to their times.
  [[nodiscard]] std::string events_of(int rank, std::int64_t num_records, std::int64_t shift_ns) const;

 private:
  struct Record {
    std::uint32_t name; // index of names_
    std::uint32_t lane;
    std::int64_t begin_ns; // since origin_
    std::int64_t duration_ns;
    std::int64_t bytes;
  };
  std::uint32_t index_of(std::string_view name);

  bool is_on_ = false;
  Clock::time_point origin_{};
  std::int64_t origin_of_system_ns_ = 0; // the system clock at origin_
  mutable std::mutex mutex_;
  std::vector<std::string> names_; // of regions, operations and lanes; a few dozen
  std::vector<Record> records_;
  std::int64_t num_dropped_ = 0;
};

// Instruments of a process: its position (for the watchdog), its clock, its trace, its log, and the counts of its flops and of its passes
// over arrays. Environment owns them, and all communicators that descend from its world share them.

class CallTape;

/// Floating-point operations of the products that this process has run; a multiplication and an addition count as two.
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
  CallTape* tape = nullptr; // if set, collectives use it (comm/call_tape.hpp)
};

} // namespace orthant::runtime
