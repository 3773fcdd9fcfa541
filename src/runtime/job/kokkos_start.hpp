#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The start of Kokkos as Orthant wants it: wrong options are refused, and what Kokkos itself says of a
// failure (several lines and, from 3.7 on, SIGABRT) becomes one error like any other.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::runtime::detail {

/// True for --kokkos-* options, which go to Kokkos.
[[nodiscard]] bool is_for_kokkos(std::string_view argument);

/// Throws UserError if an option is none of Kokkos's (which ignores or only warns of those), if a number is
/// none, or if a device is chosen that this rank does not see: it sees `num_devices`.
void check_kokkos_options(std::span<std::string const> arguments, int num_devices);

/// Calls Kokkos::initialize with --kokkos-* options and the index of this rank's device (-1: Kokkos chooses).
/// Throws UserError if Kokkos refuses an option or a KOKKOS_* variable, Error if it cannot start. If it
/// aborts, this rank prints the same and ends the job.
void start_kokkos(std::vector<std::string> const& arguments, int device);

} // namespace orthant::runtime::detail
