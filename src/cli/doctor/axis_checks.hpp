#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How fast the ranks of each axis of a grid send while all groups of that axis do, beside what a machine file says of it.

#include "cli/doctor/finding.hpp"
#include "pmm/cost/machine.hpp"
#include "pmm/grid/process_grid.hpp"

namespace orthant::cli {

struct AxisSpeed {
  std::string axis;
  pmm::GroupSpan span;
  double measured = 0; // bytes per second and rank
  double expected = 0; // of the machine
};

/// Collective over the grid's ranks: an all_reduce of 8 MiB along each axis of more than one rank.
[[nodiscard]] std::vector<AxisSpeed> measure_axes(pmm::ProcessGrid const& grid, pmm::Machine const& machine);
/// Finds axes that reach less than half of what the machine's file says.
[[nodiscard]] Diagnosis check_axes(std::vector<AxisSpeed> const& speeds, std::string const& machine);

} // namespace orthant::cli
