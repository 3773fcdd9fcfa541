// SPDX-License-Identifier: Apache-2.0
#include "runtime/run_main.hpp"

#include "runtime/error.hpp"
#include "runtime/temporary_path.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace orthant::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Ranks that fail together arrive within milliseconds; the job must be over 5 s after a rank failed alone.
constexpr auto grace = std::chrono::milliseconds(1500);
// Ranks may fail in thousands of ways at once; the first few tell the story.
constexpr std::size_t max_messages = 8;
constexpr int max_message_length = 4000;

/// How the body ended on this rank.
struct Outcome {
  int status = exit_done;
  bool has_failed = false;
  std::string message; // may be empty: another process prints it
};

Outcome run_body(Environment& environment, EnvironmentOptions const& options,
                 std::function<int(Environment&)> const& body) {
  try {
    if (options.starts_kokkos) environment.start_kokkos();
    return {body(environment), false, {}};
  } catch (Error const& error) {
    return {error.exit_status(), true, error.what()};
  } catch (std::exception const& error) {
    return {exit_internal, true, error.what()};
  } catch (...) {
    return {exit_internal, true, "an exception of unknown type"};
  }
}

/// "rank 3: a.cpp:7: text" says the same as "rank 0: a.cpp:7: text".
std::string_view without_rank(std::string_view message) {
  if (!message.starts_with("rank ")) return message;
  auto const end = message.find_first_not_of("0123456789", 5);
  if (end == 5 || end == std::string_view::npos || !message.substr(end).starts_with(": ")) return message;
  return message.substr(end + 2);
}

void print_error(std::string const& message) {
  std::fflush(stdout);
  std::fputs(fmt::format("orthant: error: {}\n", message).c_str(), stderr);
  std::fflush(stderr);
}

/// Prints on rank 0 the messages of all ranks that failed, equal ones once. Collective: every rank has
/// arrived.
void print_messages(MPI_Comm comm, Outcome const& outcome, int first_failed, bool have_all_failed) {
  int rank = 0;
  int size = 1;
  ORTHANT_MPI(MPI_Comm_rank(comm, &rank));
  ORTHANT_MPI(MPI_Comm_size(comm, &size));
  auto mine = std::string(without_rank(outcome.message)).substr(0, max_message_length);

  // The first one travels to all, so that only those who have something else to say send their text.
  std::array<char, max_message_length + 1> first{};
  if (rank == first_failed) std::ranges::copy(mine, first.begin());
  ORTHANT_MPI(MPI_Bcast(first.data(), static_cast<int>(first.size()), MPI_CHAR, first_failed, comm));
  auto const differs = outcome.has_failed && mine != first.data();
  if (!differs) mine.clear();

  auto const length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<std::size_t>(size));
  ORTHANT_MPI(MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, comm));
  if (rank != 0) {
    if (length > 0) ORTHANT_MPI(MPI_Send(mine.data(), length, MPI_CHAR, 0, 0, comm));
    return;
  }
  auto const is_everybodys =
      have_all_failed && std::ranges::all_of(lengths, [](int length_of_rank) { return length_of_rank == 0; });
  auto const print = [&](int of_rank, std::string const& message) {
    if (!message.empty()) print_error(is_everybodys ? message : fmt::format("rank {}: {}", of_rank, message));
  };
  print(first_failed, first.data());
  std::vector<std::string> printed{first.data()};
  for (int r = 0; r < size; ++r) {
    auto const count = lengths[static_cast<std::size_t>(r)];
    if (count == 0) continue;
    std::string message(static_cast<std::size_t>(count), '\0');
    if (r == 0)
      message = mine;
    else
      ORTHANT_MPI(MPI_Recv(message.data(), count, MPI_CHAR, r, 0, comm, MPI_STATUS_IGNORE));
    if (printed.size() >= max_messages || std::ranges::find(printed, message) != printed.end()) continue;
    printed.push_back(message);
    print(r, message);
  }
}

[[noreturn]] void end_job(MPI_Comm comm, Outcome const& outcome) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  print_error(fmt::format("rank {}: {}", rank, without_rank(outcome.message)));
  MPI_Abort(comm, outcome.status);
  std::_Exit(outcome.status);
}

/// Waits until all ranks are done, which the watchdog sees as a collective, or ends the job. Returns the
/// common status.
int agree(Environment& environment, Outcome const& outcome) {
  auto const comm = environment.exit_comm();
  auto const rank = environment.world().rank();
  WaitingScope const waiting(environment.instruments()->position, "end of the program");

  // Minima over ranks: the first rank that failed, minus the number that none succeeded (0) or some did (-1),
  // and of those that did the largest status.
  constexpr auto none = std::numeric_limits<int>::max();
  std::array<int, 3> const mine{outcome.has_failed ? rank : none, outcome.has_failed ? 0 : -1,
                                outcome.has_failed ? 0 : -outcome.status};
  std::array<int, 3> all{};
  MPI_Request request = MPI_REQUEST_NULL;
  ORTHANT_MPI(MPI_Iallreduce(mine.data(), all.data(), 3, MPI_INT, MPI_MIN, comm, &request));
  auto const start = Clock::now();
  for (int is_complete = 0;;) {
    ORTHANT_MPI(MPI_Test(&request, &is_complete, MPI_STATUS_IGNORE));
    if (is_complete != 0) break;
    auto const waited = Clock::now() - start;
    if (outcome.has_failed && waited > grace) end_job(comm, outcome);
    // Spinning would take the core from ranks that still work.
    if (waited > std::chrono::milliseconds(1)) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  auto const first_failed = all[0];
  if (first_failed == none) return -all[2];
  print_messages(comm, outcome, first_failed, all[1] == 0);
  int status = outcome.status;
  ORTHANT_MPI(MPI_Bcast(&status, 1, MPI_INT, first_failed, comm));
  return status;
}

/// What escapes a destructor or a thread ends here: there is nobody to catch it, so the job ends with its
/// text.
[[noreturn]] void terminate_job() {
  std::string message = "terminated";
  if (auto const error = std::current_exception()) {
    try {
      std::rethrow_exception(error);
    } catch (std::exception const& exception) {
      message = exception.what();
    } catch (...) {
      message = "an exception of unknown type";
    }
  }
  int is_initialised = 0;
  int is_finalised = 0;
  MPI_Initialized(&is_initialised);
  MPI_Finalized(&is_finalised);
  remove_temporaries();
  if (is_initialised != 0 && is_finalised == 0) end_job(MPI_COMM_WORLD, {exit_internal, true, message});
  print_error(message);
  std::_Exit(exit_internal);
}

} // namespace

int run_main(int argc, char const* const* argv, EnvironmentOptions const& options,
             std::function<int(Environment&)> const& body) {
  std::set_terminate(terminate_job);
  std::signal(SIGXFSZ, SIG_IGN); // a limit of file sizes is an error of the write, not the end of the process
  auto without_kokkos = options;
  without_kokkos.starts_kokkos = false; // started inside run_body, where a failure is agreed upon
  try {
    Environment environment(argc, argv, without_kokkos);
    return agree(environment, run_body(environment, options, body));
  } catch (Error const& error) {
    if (*error.what() != '\0') print_error(error.what());
    return error.exit_status();
  } catch (std::exception const& error) {
    print_error(error.what());
    return exit_internal;
  }
}

} // namespace orthant::runtime
