// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench.hpp"
#include "cli/bench/roofline.hpp"
#include "cli/machine/machine_loops.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/arrays/allocation.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <random>

namespace orthant::cli {
namespace {

constexpr std::int64_t line_bytes = floats_per_line * std::int64_t{sizeof(float)};
constexpr std::int64_t most_lines = 8;                          // a longer row is gathered in parts
constexpr std::int64_t gathered_bytes = std::int64_t{64} << 20; // per thread and run
constexpr std::array<std::int64_t, 4> distances{0, 4, 12, 32};
constexpr std::int64_t repeats = 5;

} // namespace

double GatherRoof::measure(std::int64_t num_rows, std::int64_t lines) const {
  runtime::DefaultExec const exec;
  static auto const loop = supported_gather_loops().back();
  auto const num_threads = static_cast<std::int64_t>(exec.concurrency());
  auto const count = gathered_bytes / (lines * line_bytes);
  auto const rows = runtime::make_zeros<float>("orthant::cli::gathered",
                                               static_cast<std::size_t>(num_rows * lines * floats_per_line));
  Kokkos::deep_copy(exec, rows, 1.0F); // unwritten pages would share one physical page
  std::vector<std::int32_t> order(static_cast<std::size_t>(count + distances.back()));
  std::minstd_rand random;
  std::ranges::generate(
      order, [&] { return static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(num_rows)); });
  runtime::Vector<float> const sums("orthant::cli::gathered_sums", static_cast<std::size_t>(num_threads));

  std::vector<std::function<void()>> works;
  for (auto const ahead : distances)
    works.emplace_back([=, &order, run = loop.run] {
      pmm::for_each_part(
          exec, "orthant::cli::gather", num_threads, [=, &order](std::int64_t begin, std::int64_t end) {
            for (auto thread = begin; thread < end; ++thread)
              sums(static_cast<std::size_t>(thread)) = run(rows.data(), lines, order.data(), count, ahead);
          });
    });
  auto const seconds = time_in_turn(world_, exec, works, repeats);
  auto const least = std::ranges::min_element(seconds, {}, &RepeatSeconds::minimum)->minimum;
  auto const bytes = static_cast<double>(num_threads * count * lines * line_bytes);
  return bytes * world_.size() / least;
}

double GatherRoof::bytes_per_second(std::int64_t num_rows, std::int64_t row_bytes) {
  std::array largest{num_rows, row_bytes};
  runtime::all_reduce(runtime::host, world_, std::span(largest), runtime::Reduction::max);
  auto const [most_rows, most_bytes] = largest;
  if (most_rows == 0 || most_bytes == 0) return 0;
  auto& rate = measured_[{most_rows, most_bytes}];
  if (rate > 0) return rate;
  auto const whole_lines = static_cast<std::int64_t>(std::bit_floor(
      static_cast<std::uint64_t>(std::clamp(most_bytes / line_bytes, std::int64_t{1}, most_lines))));
  // The array is as large as the operand, and its rows are whole cache lines.
  auto const num_places = std::max(most_rows * most_bytes / (whole_lines * line_bytes), std::int64_t{1});
  rate = measure(num_places, whole_lines);
  return rate;
}

} // namespace orthant::cli
