// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/run_main.hpp"

#include "runtime/job/job_end.hpp"

#include <csignal>
#include <exception>
#include <optional>

namespace orthant::runtime {

int run_main(int argc, char const* const* argv, EnvironmentOptions const& options,
             std::function<int(Environment&)> const& body) {
  std::set_terminate(detail::terminate_job);
  // A limit of file sizes and a reader that is gone are errors of the write, not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  std::optional<detail::MpiSession> mpi; // outlives the environment, so that ranks can agree on its failure
  auto const begun = detail::outcome_of([&] {
    mpi.emplace(options.thread_level);
    return exit_done;
  });
  if (!mpi) detail::end_job(begun.status, begun.message.c_str());

  std::optional<Environment> environment;
  auto without_kokkos = options;
  without_kokkos.starts_kokkos = false; // started below, where a failure leaves the environment standing
  auto const started = detail::outcome_of([&] {
    environment.emplace(argc, argv, without_kokkos);
    return exit_done;
  });
  if (!environment) return detail::leave_start(started);

  auto const outcome = detail::outcome_of([&] {
    if (options.starts_kokkos) environment->start_kokkos();
    return body(*environment);
  });
  WaitingScope const waiting(environment->instruments()->position, "end of the program");
  return detail::leave_together(environment->exit_comm(), outcome);
}

} // namespace orthant::runtime
