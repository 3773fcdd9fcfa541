// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/machine_timer.hpp"

#include "cli/bench/bench.hpp"
#include "runtime/arrays/huge_pages.hpp"

#include <array>

namespace orthant::cli {
namespace {

constexpr std::size_t swept_bytes = std::size_t{96} << 20; // more than the caches of a core hold
constexpr std::int64_t repeats_after_sweeps = 25;

} // namespace

MachineTimer::MachineTimer(runtime::Communicator const& world, std::int64_t repeat)
    : world_(world),
      repeat_(repeat) {
  if (world.instruments().clock.machine() != nullptr)
    swept_ = runtime::make_zeros<float>("orthant::cli::swept", swept_bytes / sizeof(float));
}

void MachineTimer::sweep_caches() const {
  runtime::DefaultExec const exec;
  auto const swept = swept_; // a kernel cannot read members
  Kokkos::parallel_for(
      "orthant::cli::sweep", Kokkos::RangePolicy<runtime::DefaultExec>(exec, 0, swept.extent(0)),
      KOKKOS_LAMBDA(std::size_t k) { swept(k) += 1; });
}

double MachineTimer::seconds_of(std::function<void()> work) const {
  runtime::DefaultExec const exec;
  if (!sweeps_caches()) {
    std::array works{std::move(work)};
    return time_in_turn(world_, exec, works, repeat_).front().median;
  }
  work(); // chooses its ways
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < (repeat_ > 0 ? repeat_ : repeats_after_sweeps); ++i) {
    sweep_caches();
    seconds.push_back(time_together(world_, exec, work));
  }
  return summarise(world_, std::move(seconds)).median;
}

} // namespace orthant::cli
