#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where the time goes: a scoped timer whose stretch appears in Kokkos tools (as a profiling region), in the
// trace, and under its name in a table of phases, the metrics' "phases". On a device the table tells when the
// device began and ended the work that was enqueued in that time: the host is done with it long before.

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

/// Seconds by phase, in the order in which phases were first met. One thread.
class PhaseTimes {
 public:
  struct Phase {
    std::string name;
    double seconds = 0;
    std::int64_t calls = 0;
  };

  /// Measures on a device's queue from now on; null: on the host. Then add_stamps() is what timers call, and
  /// read_stamps() makes seconds of it.
  void measure_on(std::shared_ptr<DeviceClock> clock) { clock_ = std::move(clock); }
  [[nodiscard]] DeviceClock* clock() const { return clock_.get(); }

  /// Allocates only for a name that it has not met before.
  void add(std::string_view name, double seconds);
  /// The same between two stamps of the clock, once they are read; `name` must live until then.
  void add_stamps(std::string_view name, std::size_t begin, std::size_t end) {
    stamps_.push_back({name, begin, end});
  }
  /// After the queue has been waited for. Nothing on the host.
  void read_stamps();
  /// The seconds alone, for records that outlive the device's clock.
  [[nodiscard]] PhaseTimes without_clock() const;
  /// Back to zero; the names stay.
  void clear();
  /// Seconds of the phase, 0 where it has not run.
  [[nodiscard]] double seconds(std::string_view name) const;
  [[nodiscard]] std::vector<Phase> const& phases() const { return phases_; }
  /// {"name": seconds, ..}: the phases that have run since clear().
  [[nodiscard]] nlohmann::ordered_json to_json() const;
  /// The largest seconds over ranks, of the phases that rank 0 knows. Collective.
  [[nodiscard]] PhaseTimes max_over_ranks(Communicator const& comm) const;

 private:
  struct Stamps {
    std::string_view name;
    std::size_t begin;
    std::size_t end;
  };
  std::vector<Phase> phases_; // a dozen: searched from the front
  std::shared_ptr<DeviceClock> clock_;
  std::vector<Stamps> stamps_; // not yet read
};

/// Times its own life (to `stop`, if that comes first): on the host, or where `phases` have the clock of a
/// device the work that is enqueued meanwhile (the trace has the host's time in both cases). Phases may nest;
/// the outer contains the inner. `name` must outlive the timer.
class ScopedTimer {
 public:
  ScopedTimer(Instruments& instruments, PhaseTimes& phases, std::string_view name)
      : clock_(instruments.clock),
        trace_(instruments.trace),
        phases_(phases),
        name_(name) {
    // The region's name is a std::string, which may allocate: only where a tool listens.
    if (Kokkos::Tools::profileLibraryLoaded()) region_.emplace(std::string(name));
    if (phases_.clock() != nullptr) begin_stamp_ = phases_.clock()->stamp();
    begin_ = clock_.now();
  }
  ScopedTimer(ScopedTimer const&) = delete;
  ScopedTimer& operator=(ScopedTimer const&) = delete;
  ~ScopedTimer() {
    if (!seconds_) stop();
  }

  /// Ends the stretch and returns its seconds on the host; the second time only returns them.
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
