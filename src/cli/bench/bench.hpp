#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Shared by the benchmarks: timed repeats that all ranks begin together, and the printed lines. The time of a repeat is that of its
// slowest rank.

#include "cli/options/command.hpp"
#include "pmm/gemm/gemm_choice.hpp"
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

/// Statistics over the repeats.
struct RepeatSeconds {
  double median = 0;
  double minimum = 0;
  std::int64_t repeats = 0;
};

/// Seconds of `work` on this rank, including the final fence. All ranks begin together. Collective.
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

/// Statistics of the slowest rank's seconds. `seconds`: this rank's seconds per repeat, equally many on every rank. Collective.
[[nodiscard]] RepeatSeconds summarise(runtime::Communicator const& world, std::vector<double> seconds);

/// Median of the values, the upper one of two middle values; 0 if there are none.
[[nodiscard]] double median_of(std::vector<double> values);

/// Times each of `works` alternately, for `repeat` rounds (0: about half a second each), after two warm-up runs of each. The order changes
/// from round to round. Collective.
[[nodiscard]] std::vector<RepeatSeconds> time_in_turn(runtime::Communicator const& world,
                                                      runtime::DefaultExec const& exec,
                                                      std::span<std::function<void()> const> works,
                                                      std::int64_t repeat);

/// Rate in GB/s for an amount of bytes, in GFLOP/s for operations: 1e-9 amount / seconds.
[[nodiscard]] double giga_per_second(double amount, double seconds);

/// First fields of every line: benchmark, version, host, number of ranks.
[[nodiscard]] nlohmann::ordered_json begin_line(Context const& context, std::string_view bench);

/// Today's date in UTC: "2026-01-31".
[[nodiscard]] std::string date_of_today();

/// Logs on stderr which of `total` units begins, if the last such line is some seconds old: "epoch 3 of 10".
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

/// Writes a line to stdout of rank 0 and to the metrics.
void print_line(Context& context, nlohmann::ordered_json const& line);

/// Upper bound of --repeat.
inline constexpr std::int64_t most_repeats = 1'000'000;
void add_repeat_option(Command& command, std::int64_t& repeat);

// Finds the fastest library for every kind of dense product of a training, measured on all ranks at once.

/// Least number of rows of a tall operand.
inline constexpr std::int64_t least_tuned_rows = 4'096;

/// Returns a table for the processor of rank 0, and prints a line of JSON per kind of product. `rows`: rows of the tall operands per
/// rank. `repeat`: number of repeats, as in time_in_turn(). Afterwards local_gemm() uses the table. Collective. Throws UserError on a
/// device, where the vendor's library runs all products.
[[nodiscard]] pmm::GemmTable tune_gemm(Context& context, std::int64_t rows, std::int64_t repeat);

} // namespace orthant::cli
