// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/axis_checks.hpp"

#include "cli/machine/units.hpp"
#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/huge_pages.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

namespace orthant::cli {
namespace {

constexpr double least_share = 0.5;

/// The median of several, of the slowest rank.
double time_all_reduce(pmm::ProcessGrid const& grid, runtime::Communicator const& comm,
                       std::size_t num_floats) {
  constexpr auto num_repeats = 7;
  auto const data = runtime::make_zeros<float>("orthant::cli::data", num_floats);
  runtime::DefaultExec const exec;
  std::vector<double> seconds;
  for (auto repeat = 0; repeat <= num_repeats; ++repeat) {
    runtime::barrier(runtime::host, grid.world());
    auto const begin = std::chrono::steady_clock::now();
    runtime::all_reduce(exec, comm, data);
    runtime::compat::fence(exec, "orthant::cli::time_all_reduce (timing)");
    if (repeat > 0) // the first one connects
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::sort(seconds);
  return runtime::all_reduced(grid.world(), seconds[seconds.size() / 2], runtime::Reduction::max);
}

} // namespace

std::vector<AxisSpeed> measure_axes(pmm::ProcessGrid const& grid, pmm::Machine const& machine) {
  constexpr std::size_t num_floats = std::size_t{2} << 20;
  std::vector<AxisSpeed> speeds;
  for (auto const& [axis, name] :
       {std::pair(pmm::Axis::data, "data"), {pmm::Axis::x, "x"}, {pmm::Axis::y, "y"}, {pmm::Axis::z, "z"}}) {
    auto const size = grid.shape().size(axis);
    if (size == 1) continue;
    auto const span = pmm::span_of(grid.shape(), axis);
    auto const seconds = time_all_reduce(grid, grid.over(axis), num_floats);
    auto const sent = 2.0 * (size - 1) / size * static_cast<double>(num_floats * sizeof(float)); // by a ring
    speeds.push_back({name, span, sent / seconds, pmm::bytes_per_second(machine, span, grid.world().size())});
  }
  return speeds;
}

Diagnosis check_axes(std::vector<AxisSpeed> const& speeds, std::string const& machine) {
  Diagnosis check{"axes", speeds.empty() ? "the grid has none of more than one rank" : ""};
  for (auto const& [axis, span, measured, expected] : speeds) {
    check.fact +=
        fmt::format("{}{} ({} ranks, stride {}) {:.2f} GB/s of {:.2f}", check.fact.empty() ? "" : "; ", axis,
                    span.num_ranks, span.stride, measured / giga, expected / giga);
    if (measured < least_share * expected)
      check.findings.push_back(
          {fmt::format("along {} each rank sends {:.2f} GB/s, and the machine '{}' has {:.2f}", axis,
                       measured / giga, machine, expected / giga),
           "see to binding and to the network first; if this is what the machine can do, measure it: "
           "`orthant bench machine -o FILE.toml`"});
  }
  return check;
}

} // namespace orthant::cli
