#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// ORTHANT_EMULATE: a machine to pretend to run on, by name or .toml file, for tests and demonstrations. All seconds that
// the run reports are then virtual (runtime/observe/run_clock.hpp).

#include "runtime/job/environment.hpp"

#include <string>

namespace orthant::cli {

inline constexpr auto emulate_variable = "ORTHANT_EMULATE";

/// Nothing if the variable is not set, or empty. Before communicators but the world are made. Collective. Throws UserError on
/// all ranks if it names no machine, or the build is one for devices, whose time is not the processor's.
void emulate_machine(runtime::Environment& environment);

/// Stands behind seconds in summaries: ", virtual on NAME"; empty if they are real.
[[nodiscard]] std::string clock_text(runtime::Communicator const& world);

} // namespace orthant::cli
