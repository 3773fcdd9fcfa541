#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How a job ends: all ranks leave with one status, each different error is printed once, and none hangs.

#include "runtime/error.hpp"
#include "runtime/job/environment.hpp"

#include <functional>
#include <mpi.h>
#include <string>

namespace orthant::runtime::detail {

/// How a piece of the program ended on this rank.
struct Outcome {
  int status = exit_done;
  bool has_failed = false;
  std::string message; // may be empty: another process prints it
};

/// body's own status, or the status and text of what it throws. Throws nothing.
[[nodiscard]] Outcome outcome_of(std::function<int()> const& body) noexcept;

/// Waits until every rank of `comm` has come here and returns the common status: that of the lowest rank that
/// failed, else the largest. Rank 0 prints every different error once. If this rank has failed and the others
/// do not come within a short grace, they wait for it somewhere: it prints its error and ends the job. `comm`
/// must span all ranks and serve nothing else.
[[nodiscard]] int leave_together(MPI_Comm comm, Outcome const& outcome) noexcept;

/// The same for a failure before there is a communicator of ours. Only ranks that failed come here.
[[nodiscard]] int leave_start(Outcome const& outcome) noexcept;

/// Prints the outcome's error under this rank's number, and ends the job.
[[noreturn]] void end_job(int status, char const* message) noexcept;

/// What escapes a destructor or a thread ends here, as nobody can catch it: the job ends with its text.
[[noreturn]] void terminate_job() noexcept;

} // namespace orthant::runtime::detail

namespace orthant::runtime {

// The body of every program's main. It catches what escapes, prints it, and sees to it that all ranks leave
// with one status and none hangs, whether the start, the body or the end failed (job_end.hpp).

/// Runs `body` inside an Environment and returns the status to leave with: body's own, 2 for UserError, 1 for
/// any other exception. Messages read `orthant: error: ...`.
[[nodiscard]] int run_main(int argc, char const* const* argv, EnvironmentOptions const& options,
                           std::function<int(Environment&)> const& body);

} // namespace orthant::runtime
