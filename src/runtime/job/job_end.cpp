// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/job_end.hpp"

#include "runtime/files/temporary_path.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace orthant::runtime::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Ranks that fail together arrive within milliseconds. After a rank has failed alone, the job must end within 5 s.
constexpr auto grace = std::chrono::milliseconds(1500);
// Ranks may fail in thousands of different ways at once; the first few messages suffice.
constexpr std::size_t max_messages = 8;
constexpr int max_message_length = 4000;
constexpr int start_tag = 32'100;

/// Removes the rank, because "rank 3: a.cpp:7: text" and "rank 0: a.cpp:7: text" are the same error.
std::string_view without_rank(std::string_view message) {
  if (!message.starts_with("rank ")) return message;
  auto const end = message.find_first_not_of("0123456789", 5);
  if (end == 5 || end == std::string_view::npos || !message.substr(end).starts_with(": ")) return message;
  return message.substr(end + 2);
}

/// Prints "orthant: error: [rank R: ]message" as one line and with one write, so that text of other programs is not mixed in. Allocates no
/// memory, because there may be none left.
void print_error(char const* message, int rank = -1) {
  std::array<char, max_message_length + 100> line{};
  constexpr auto room = line.size() - 1; // without the end of the line
  auto length = rank < 0 ? std::snprintf(line.data(), room, "orthant: error: %s", message)
                         : std::snprintf(line.data(), room, "orthant: error: rank %d: %s", rank, message);
  length = std::clamp(length, 0, static_cast<int>(room) - 1);
  auto const end = line.begin() + length;
  std::replace_if(
      line.begin(), end, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  *end = '\n';
  std::fflush(stdout);
  std::fwrite(line.data(), 1, static_cast<std::size_t>(length) + 1, stderr);
  std::fflush(stderr);
}

/// Prints each different message once.
class ErrorPrinter {
 public:
  explicit ErrorPrinter(bool names_ranks) : names_ranks_(names_ranks) {}
  void print(int rank, std::string message) {
    if (printed_.size() >= max_messages || std::ranges::find(printed_, message) != printed_.end()) return;
    if (!message.empty()) print_error(message.c_str(), names_ranks_ ? rank : -1);
    printed_.push_back(std::move(message));
  }

 private:
  bool names_ranks_;
  std::vector<std::string> printed_;
};

std::string message_of(Outcome const& outcome) {
  return std::string(without_rank(outcome.message)).substr(0, max_message_length);
}

int rank_in(MPI_Comm comm) {
  int rank = 0;
  ORTHANT_MPI(MPI_Comm_rank(comm, &rank));
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 1;
  ORTHANT_MPI(MPI_Comm_size(comm, &size));
  return size;
}

/// Calls `is_over` until it returns true. If this takes longer than `grace`, a rank that has failed ends the job.
template<class IsOver>
void wait_until(Outcome const& outcome, IsOver&& is_over) {
  auto const start = Clock::now();
  while (!is_over()) {
    auto const waited = Clock::now() - start;
    if (outcome.has_failed && waited > grace) end_job(outcome.status, outcome.message.c_str());
    // Sleep, because spinning would use the core of ranks that still work.
    if (waited > std::chrono::milliseconds(1)) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

bool is_complete(MPI_Request& request) {
  int is_done = 0;
  ORTHANT_MPI(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE));
  return is_done != 0;
}

/// Prints on rank 0 the messages of all ranks that failed, each different message once. Collective: every rank has arrived.
void print_messages(MPI_Comm comm, Outcome const& outcome, int first_failed, bool have_all_failed) {
  auto const rank = rank_in(comm);
  auto const size = size_of(comm);
  auto mine = message_of(outcome);

  // The first message is sent to all ranks, so that only ranks with a different message send their text.
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
  ErrorPrinter printer(!is_everybodys);
  printer.print(first_failed, first.data());
  for (int r = 0; r < size; ++r) {
    auto const count = lengths[static_cast<std::size_t>(r)];
    if (count == 0) continue;
    std::string message(static_cast<std::size_t>(count), '\0');
    if (r == 0)
      message = mine;
    else
      ORTHANT_MPI(MPI_Recv(message.data(), count, MPI_CHAR, r, 0, comm, MPI_STATUS_IGNORE));
    printer.print(r, std::move(message));
  }
}

/// leave_together(), but throws if MPI or an allocation fails.
int agree(MPI_Comm comm, Outcome const& outcome) {
  auto const rank = rank_in(comm);
  // Minima over the ranks: the first rank that failed; 0 if all ranks failed, -1 if some succeeded; and minus the largest status of the
  // ranks that succeeded.
  constexpr auto none = std::numeric_limits<int>::max();
  std::array<int, 3> const mine{outcome.has_failed ? rank : none, outcome.has_failed ? 0 : -1,
                                outcome.has_failed ? 0 : -outcome.status};
  std::array<int, 3> all{};
  MPI_Request request = MPI_REQUEST_NULL;
  ORTHANT_MPI(MPI_Iallreduce(mine.data(), all.data(), 3, MPI_INT, MPI_MIN, comm, &request));
  wait_until(outcome, [&] { return is_complete(request); });
  auto const first_failed = all[0];
  if (first_failed == none) return -all[2];
  print_messages(comm, outcome, first_failed, all[1] == 0);
  int status = outcome.status;
  ORTHANT_MPI(MPI_Bcast(&status, 1, MPI_INT, first_failed, comm));
  return status;
}

/// Implements leave_start() by point-to-point messages. A collective on MPI_COMM_WORLD would not work: other ranks may still be in
/// MPI_Comm_dup, which is itself a collective on it. Rank 0 gets a message from every rank, or ends the job; the others wait for its
/// status.
int agree_on_start(Outcome const& outcome) {
  auto const comm = MPI_COMM_WORLD;
  auto const size = size_of(comm);
  auto const mine = message_of(outcome);
  int status = outcome.status;
  if (rank_in(comm) != 0) {
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    ORTHANT_MPI(
        MPI_Isend(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, 0, start_tag, comm, &requests[0]));
    ORTHANT_MPI(MPI_Irecv(&status, 1, MPI_INT, 0, start_tag, comm, &requests[1]));
    wait_until(outcome, [&] { return is_complete(requests[0]) && is_complete(requests[1]); });
    return status;
  }
  std::vector<std::string> messages(static_cast<std::size_t>(size), mine);
  auto num_missing = size - 1;
  wait_until(outcome, [&] {
    MPI_Status from;
    for (int has_message = 1; num_missing > 0; --num_missing) {
      ORTHANT_MPI(MPI_Iprobe(MPI_ANY_SOURCE, start_tag, comm, &has_message, &from));
      if (has_message == 0) return false;
      int length = 0;
      ORTHANT_MPI(MPI_Get_count(&from, MPI_CHAR, &length));
      auto& message = messages[static_cast<std::size_t>(from.MPI_SOURCE)];
      message.assign(static_cast<std::size_t>(length), '\0');
      ORTHANT_MPI(
          MPI_Recv(message.data(), length, MPI_CHAR, from.MPI_SOURCE, start_tag, comm, MPI_STATUS_IGNORE));
    }
    return true;
  });
  auto const is_mine = [&](std::string const& message) { return message == mine; };
  ErrorPrinter printer(!std::ranges::all_of(messages, is_mine));
  for (int r = 0; r < size; ++r)
    printer.print(r, messages[static_cast<std::size_t>(r)]);
  for (int r = 1; r < size; ++r)
    ORTHANT_MPI(MPI_Send(&status, 1, MPI_INT, r, start_tag, comm));
  return status;
}

/// Returns the result of `agreement`. If it throws, this rank cannot know the state of the others and ends the job.
template<class Agreement>
int or_end_job(Outcome const& outcome, Agreement&& agreement) {
  try {
    return agreement();
  } catch (std::exception const& error) {
    if (outcome.has_failed) end_job(outcome.status, outcome.message.c_str());
    end_job(exit_internal, error.what());
  }
}

} // namespace

Outcome outcome_of(std::function<int()> const& body) noexcept {
  auto const failure = [](int status, std::exception const& error) noexcept -> Outcome {
    try {
      return {status, true, describe(error)};
    } catch (...) {
      return {exit_internal, true, "out of memory"}; // short enough to need no allocation
    }
  };
  try {
    return {body(), false, {}};
  } catch (Error const& error) {
    return failure(error.exit_status(), error);
  } catch (std::exception const& error) {
    return failure(exit_internal, error);
  } catch (...) {
    return {exit_internal, true, "unknown error"};
  }
}

int leave_together(MPI_Comm comm, Outcome const& outcome) noexcept {
  return or_end_job(outcome, [&] { return agree(comm, outcome); });
}

int leave_start(Outcome const& outcome) noexcept {
  return or_end_job(outcome, [&] { return agree_on_start(outcome); });
}

void end_job(int status, char const* message) noexcept {
  // Allocates no memory, because there may be none left.
  int is_initialised = 0;
  int is_finalised = 0;
  MPI_Initialized(&is_initialised);
  MPI_Finalized(&is_finalised);
  auto const has_mpi = is_initialised != 0 && is_finalised == 0;
  int rank = -1;
  if (has_mpi) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  print_error(has_mpi ? without_rank(message).data() : message, rank);
  remove_temporaries();
  if (has_mpi) MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

void terminate_job() noexcept {
  if (auto const error = std::current_exception()) {
    auto const outcome = outcome_of([&]() -> int { std::rethrow_exception(error); });
    end_job(outcome.status, outcome.message.c_str());
  }
  end_job(exit_internal, "terminated");
}

} // namespace orthant::runtime::detail

namespace orthant::runtime {

int run_main(int argc, char const* const* argv, EnvironmentOptions const& options,
             std::function<int(Environment&)> const& body) {
  std::set_terminate(detail::terminate_job);
  // Exceeding the limit of file sizes, or a reader that is gone, becomes an error of the write and does not end the process.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  std::optional<detail::MpiSession> mpi; // outlives the environment: ranks must agree on its failure
  auto const begun = detail::outcome_of([&] {
    mpi.emplace(options.thread_level);
    return exit_done;
  });
  if (!mpi) detail::end_job(begun.status, begun.message.c_str());

  std::optional<Environment> environment;
  auto without_kokkos = options;
  without_kokkos.starts_kokkos = false; // started below, where a failure leaves the environment intact
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
