// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench.hpp"

#include "cli/commands/build_info.hpp"

#include <algorithm>
#include <cstdio>

namespace orthant::cli {
namespace {

/// Number of repeats for about half a second, within bounds.
std::int64_t choose_repeat(double seconds) {
  constexpr auto fewest = 5.0;
  constexpr auto most = 200.0;
  return static_cast<std::int64_t>(std::clamp(0.5 / std::max(seconds, 1e-6), fewest, most));
}

} // namespace

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

RepeatSeconds summarise(runtime::Communicator const& world, std::vector<double> seconds) {
  runtime::all_reduce(runtime::host, world, std::span(seconds), runtime::Reduction::max);
  auto const minimum = seconds.empty() ? 0.0 : std::ranges::min(seconds);
  auto const repeats = static_cast<std::int64_t>(seconds.size());
  return {median_of(std::move(seconds)), minimum, repeats};
}

std::vector<RepeatSeconds> time_in_turn(runtime::Communicator const& world, runtime::DefaultExec const& exec,
                                        std::span<std::function<void()> const> works, std::int64_t repeat) {
  auto slowest = 0.0;
  for (auto const& work : works) { // two warm-up runs: the first one sets up pages and threads
    (void)time_together(world, exec, work);
    slowest = std::max(slowest, time_together(world, exec, work));
  }
  slowest = runtime::all_reduced(world, slowest, runtime::Reduction::max);
  auto const rounds = static_cast<std::size_t>(repeat > 0 ? repeat : choose_repeat(slowest));

  std::vector<std::vector<double>> seconds(works.size(), std::vector<double>(rounds));
  for (std::size_t round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < works.size(); ++i) {
      auto const w = (round + i) % works.size();
      seconds[w][round] = time_together(world, exec, works[w]);
    }
  std::vector<RepeatSeconds> result;
  for (auto& of_work : seconds)
    result.push_back(summarise(world, std::move(of_work)));
  return result;
}

double giga_per_second(double amount, double seconds) {
  return seconds > 0 ? amount / seconds * 1e-9 : 0;
}

nlohmann::ordered_json begin_line(Context const& context, std::string_view bench) {
  nlohmann::ordered_json line{{"bench", bench},
                              {"version", version()},
                              {"host", context.environment.binding().host.data()},
                              {"ranks", context.world().size()}};
  if (context.world().instruments().clock.machine() != nullptr) line["clock"] = "virtual";
  return line;
}

std::string date_of_today() {
  auto const now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, sizeof "2026-01-31"> text{};
  std::strftime(text.data(), text.size(), "%F", &utc);
  return text.data();
}

void UnitLines::begin(std::int64_t number) {
  constexpr auto quiet = std::chrono::seconds(2);
  auto const now = Clock::now();
  if (number > 1 && now - last_ < quiet) return;
  log_.info("{} {} of {}", unit_, number, total_);
  last_ = now;
}

void print_line(Context& context, nlohmann::ordered_json const& line) {
  if (!context.world().is_root()) return;
  std::fputs((line.dump() + "\n").c_str(), stdout);
  std::fflush(stdout);
  if (context.metrics.is_on()) context.metrics.write("bench", line);
}

void add_repeat_option(Command& command, std::int64_t& repeat) {
  command.option("--repeat", repeat, "Number of timed runs; 0: as many as take about half a second",
                 whole_number(0, most_repeats));
}

} // namespace orthant::cli
