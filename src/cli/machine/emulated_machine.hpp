#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// ORTHANT_EMULATE: name or .toml file of a machine to emulate, for tests and demonstrations. All seconds that the run reports are then
// virtual (runtime/observe/run_clock.hpp).

#include "runtime/job/environment.hpp"

#include <string>

namespace orthant::cli {

inline constexpr auto emulate_variable = "ORTHANT_EMULATE";

/// Starts the emulation; does nothing if the variable is not set or empty. Must be called before communicators other than the world are
/// made. Collective. Throws UserError on all ranks if the variable names no machine, or in a build for devices, whose time is not the
/// processor's.
void emulate_machine(runtime::Environment& environment, runtime::AlgorithmChoice const& algorithms);

/// Text after seconds in summaries: ", virtual on NAME"; empty if the seconds are real.
[[nodiscard]] std::string clock_text(runtime::Communicator const& world);

} // namespace orthant::cli
