#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks of kernels share: repeats that all ranks begin together, and the line that is printed.
// A repeat takes as long as its slowest rank.

#include "cli/options/command.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/comm/collectives.hpp"

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::cli {

/// Over the repeats.
struct RepeatSeconds {
  double median = 0;
  double minimum = 0;
  std::int64_t repeats = 0;
};

/// Seconds of `work` on this rank, complete at the end; all ranks begin together. Collective.
template<class Work>
[[nodiscard]] double time_together(runtime::Communicator const& world, runtime::DefaultExec const& exec,
                                   Work&& work) {
  auto& clock = world.instruments().clock;
  runtime::barrier(runtime::host, world);
  auto const begin = clock.now();
  work();
  runtime::compat::fence(exec, "orthant::cli::time_together/the clock is read");
  return std::chrono::duration<double>(clock.now() - begin).count();
}

/// Of one rank's seconds a repeat, equally many on every rank. Collective.
[[nodiscard]] RepeatSeconds summarise(runtime::Communicator const& world, std::vector<double> seconds);

/// The middle of the values, the upper one of two; 0 of none.
[[nodiscard]] double median_of(std::vector<double> values);

/// Times each of `works`, one after the other, `repeat` times over (0: about half a second of each), after a
/// run of each that is not counted. Which goes first changes from round to round. Collective.
[[nodiscard]] std::vector<RepeatSeconds> time_in_turn(runtime::Communicator const& world,
                                                      runtime::DefaultExec const& exec,
                                                      std::span<std::function<void()> const> works,
                                                      std::int64_t repeat);

/// 1e-9 amount / seconds: GB/s of bytes, GFLOP/s of operations.
[[nodiscard]] double giga_per_second(double amount, double seconds);

/// What heads every line: benchmark, version, host, number of ranks.
[[nodiscard]] nlohmann::ordered_json begin_line(Context const& context, std::string_view bench);

/// "2026-01-31", in UTC.
[[nodiscard]] std::string date_of_today();

/// Says on stderr which of `total` units begins, if the last line is some seconds old: "epoch 3 of 10".
class UnitLines {
 public:
  UnitLines(Context const& context, std::string unit, std::int64_t total)
      : log_(context.log()),
        unit_(std::move(unit)),
        total_(total) {}
  void begin(std::int64_t number);

 private:
  using Clock = std::chrono::steady_clock;
  runtime::Log& log_;
  std::string unit_;
  std::int64_t total_;
  Clock::time_point last_ = Clock::now();
};

/// To stdout of rank 0, and to the metrics.
void print_line(Context& context, nlohmann::ordered_json const& line);

/// --repeat.
inline constexpr std::int64_t most_repeats = 1'000'000;
void add_repeat_option(Command& command, std::int64_t& repeat);

} // namespace orthant::cli
