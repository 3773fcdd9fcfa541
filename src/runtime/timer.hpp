#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where the time goes: a scoped timer whose stretch appears in Kokkos tools (as a profiling region), in the
// trace, and under its name in a table of phases, the metrics' "phases".

#include "runtime/communicator.hpp"
#include "runtime/instruments.hpp"
#include "runtime/kokkos_compat.hpp"

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

  /// Allocates only for a name that it has not met before.
  void add(std::string_view name, double seconds);
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
  std::vector<Phase> phases_; // a dozen: searched from the front
};

/// Times its own life (to `stop`, if that comes first) on the host. Work that was enqueued on a device and
/// not waited for is not in it: fence before the end where it should be. Phases may nest; the outer contains
/// the inner. `name` must outlive the timer.
class ScopedTimer {
 public:
  ScopedTimer(Instruments& instruments, PhaseTimes& phases, std::string_view name)
      : trace_(instruments.trace),
        phases_(phases),
        name_(name) {
    // The region's name is a std::string, which may allocate: only where a tool listens.
    if (Kokkos::Tools::profileLibraryLoaded()) region_.emplace(std::string(name));
    begin_ = Trace::Clock::now();
  }
  ScopedTimer(ScopedTimer const&) = delete;
  ScopedTimer& operator=(ScopedTimer const&) = delete;
  ~ScopedTimer() {
    if (!seconds_) stop();
  }

  /// Ends the stretch and returns its seconds; the second time only returns them.
  double stop();

 private:
  Trace& trace_;
  PhaseTimes& phases_;
  std::string_view name_;
  std::optional<compat::Region> region_;
  Trace::Clock::time_point begin_;
  std::optional<double> seconds_;
};

} // namespace orthant::runtime
