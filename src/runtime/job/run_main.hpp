#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The body of every program's main. It catches what escapes, prints it, and sees to it that all ranks leave
// with one status and none hangs, whether the start, the body or the end failed (job_end.hpp).

#include "runtime/job/environment.hpp"

#include <functional>

namespace orthant::runtime {

/// Runs `body` inside an Environment and returns the status to leave with: body's own, 2 for UserError, 1 for
/// any other exception. Messages read `orthant: error: ...`.
[[nodiscard]] int run_main(int argc, char const* const* argv, EnvironmentOptions const& options,
                           std::function<int(Environment&)> const& body);

} // namespace orthant::runtime
