#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What bench machine measures of the processor, on all ranks at once: the constants of what a step computes.
//
//   launches        small passes, one after the other
//   dense products  the three of a layer of 131,072 rows (more than caches hold) and 128 columns, as training calls
//                   them, less a pass over operands and results; the shares of narrow ones with 2 to 64 columns on one side;
//                   what each takes beside: small ones, 32 x 32 x 32
//   attention       forward and backward of 16 sequences of 128 tokens, 4 heads of 32 numbers
//   sparse products A^ B by the width n of B, of two blocks: all columns of a rank's rows, and an eighth of them,
//                   which has as many rows and an eighth of the non-zeros. Two equations for two constants:
//
//                     seconds - (rows + columns) n 4 / memory  =  non-zeros t(n) + rows r(n)
//
//   random numbers  how much longer a pass takes that drops half of what it moves

#include "cli/bench/machine_timer.hpp"
#include "graph/store/store_reader.hpp"
#include "pmm/cost/machine.hpp"

#include <functional>
#include <string_view>

namespace orthant::cli {

/// Fills `machine` but for memory, which it needs, and the network. `report` is told what is measured next. Collective.
void measure_products(MachineTimer const& timer, graph::GraphStore const& store, pmm::Machine& machine,
                      std::function<void(std::string_view)> const& report);

} // namespace orthant::cli
