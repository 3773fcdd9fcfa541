#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// End of a job: all ranks leave with the same status, each different error is printed once, and no rank hangs.

#include "runtime/error.hpp"
#include "runtime/job/environment.hpp"

#include <functional>
#include <mpi.h>
#include <string>

namespace orthant::runtime::detail {

/// Result of a part of the program on this rank.
struct Outcome {
  int status = exit_done;
  bool has_failed = false;
  std::string message; // may be empty if another process prints it
};

/// Status that `body` returns, or status and text of its exception. Throws nothing.
[[nodiscard]] Outcome outcome_of(std::function<int()> const& body) noexcept;

/// Waits until every rank of `comm` has called this, and returns the common status: the status of the lowest rank that failed, or the
/// largest status if none failed. Rank 0 prints every different error once. If this rank has failed and the others do not come within a
/// short grace period, they are waiting for this rank elsewhere: it then prints its error and ends the job. `comm` must span all ranks and
/// must not be used for anything else.
[[nodiscard]] int leave_together(MPI_Comm comm, Outcome const& outcome) noexcept;

/// leave_together() for a failure before the world communicator exists. Only ranks that failed call it.
[[nodiscard]] int leave_start(Outcome const& outcome) noexcept;

/// Prints the error message with this rank's number and ends the job.
[[noreturn]] void end_job(int status, char const* message) noexcept;

/// std::terminate handler: ends the job with the text of an exception that nobody can catch, such as one from a destructor or a thread.
[[noreturn]] void terminate_job() noexcept;

} // namespace orthant::runtime::detail

namespace orthant::runtime {

// The body of every program's main. It catches and prints every exception, and makes all ranks leave with the same status and without a
// hang, no matter whether the start, the body or the end failed (job_end.hpp).

/// Runs `body` inside an Environment and returns the exit status: the result of `body`, 2 for UserError, 1 for any other exception.
/// Messages read `orthant: error: ...`.
[[nodiscard]] int run_main(int argc, char const* const* argv, EnvironmentOptions const& options,
                           std::function<int(Environment&)> const& body);

} // namespace orthant::runtime
