#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Scoped timer. The time that it measures appears in Kokkos tools (as a profiling region), in the trace, and under its name in a table of
// phases, the "phases" of the metrics. On a device, the table contains the device's time from begin to end of the work enqueued in that
// scope, because the host only enqueues it.

#include "runtime/comm/communicator.hpp"
#include "runtime/device/device_queue.hpp"
#include "runtime/device/kokkos_compat.hpp"
#include "runtime/observe/trace.hpp"

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::runtime {

/// Seconds per phase, in the order in which phases first occurred. For one thread.
class PhaseTimes {
 public:
  struct Phase {
    std::string name;
    double seconds = 0;
    std::int64_t calls = 0;
  };

  /// Measures on a device's queue from now on; null measures on the host. On a device, timers call add_stamps(), and read_stamps() converts
  /// stamps to seconds.
  void measure_on(std::shared_ptr<DeviceClock> clock) { clock_ = std::move(clock); }
  [[nodiscard]] DeviceClock* clock() const { return clock_.get(); }

  /// Allocates only for a new name.
  void add(std::string_view name, double seconds);
  /// Adds the time between two stamps of the clock when read_stamps() is called; `name` must live until then.
  void add_stamps(std::string_view name, std::size_t begin, std::size_t end) {
    stamps_.push_back({name, begin, end});
  }
  /// Reads the stamps. Call it after the host has waited for the queue. Does nothing on the host.
  void read_stamps();
  /// Copy of the seconds without the clock, for records that outlive the device's clock.
  [[nodiscard]] PhaseTimes without_clock() const;
  /// Sets all seconds to zero; the names stay.
  void clear();
  /// Seconds of the phase; 0 if it has not run.
  [[nodiscard]] double seconds(std::string_view name) const;
  [[nodiscard]] std::vector<Phase> const& phases() const { return phases_; }
  /// {"name": seconds, ..}: the phases that have run since clear().
  [[nodiscard]] nlohmann::ordered_json to_json() const;

 private:
  struct Stamps {
    std::string_view name;
    std::size_t begin;
    std::size_t end;
  };
  std::vector<Phase> phases_; // about a dozen, so that a linear search suffices
  std::shared_ptr<DeviceClock> clock_;
  std::vector<Stamps> stamps_; // not yet read
};

/// Measures the time of its own life (or until stop()). If `phases` has a device's clock, it measures on the device the work enqueued in
/// that time; otherwise on the host. The trace contains the host's time in both cases. Phases may nest; the outer one includes the inner
/// one. `name` must outlive the timer.
class ScopedTimer {
 public:
  ScopedTimer(Instruments& instruments, PhaseTimes& phases, std::string_view name)
      : clock_(instruments.clock),
        trace_(instruments.trace),
        phases_(phases),
        name_(name) {
    // The region's name is a std::string, which may allocate; it is needed only if a tool is loaded.
    if (Kokkos::Tools::profileLibraryLoaded()) region_.emplace(std::string(name));
    if (phases_.clock() != nullptr) begin_stamp_ = phases_.clock()->stamp();
    begin_ = clock_.now();
  }
  ScopedTimer(ScopedTimer const&) = delete;
  ScopedTimer& operator=(ScopedTimer const&) = delete;
  ~ScopedTimer() {
    if (!seconds_) stop();
  }

  /// Stops the timer and returns its seconds on the host. Further calls only return them.
  double stop();

 private:
  RunClock& clock_;
  Trace& trace_;
  PhaseTimes& phases_;
  std::string_view name_;
  std::optional<compat::Region> region_;
  Trace::Clock::time_point begin_;
  std::size_t begin_stamp_ = 0;
  std::optional<double> seconds_;
};

} // namespace orthant::runtime
