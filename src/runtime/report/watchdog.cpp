// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/watchdog.hpp"

#include "runtime/error.hpp"
#include "runtime/files/temporary_path.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace orthant::runtime {
namespace {

using namespace std::chrono_literals;

constexpr auto period = 200ms;
constexpr auto late = 1500ms; // a longer sleep means that the whole process was stopped
constexpr auto quiet_time =
    3s; // no alarms for this time after a stop: if the job is being ended, it has ended by then
constexpr auto patience = 2s;      // time for a leader to ask back before the next rank is tried
constexpr auto longest_pause = 4s; // longest pause of a leader before it asks again

using Duration = std::chrono::steady_clock::duration;

Duration to_duration(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

/// Time that the leader waits for answers. A rank that swaps may take seconds.
Duration collect_time(double timeout_seconds) {
  return std::clamp<Duration>(to_duration(timeout_seconds / 20), 2s, 30s);
}

/// Time from a leader's question to a new alarm, in case the leader is gone.
Duration question_grace(double timeout_seconds) {
  return collect_time(timeout_seconds) + longest_pause + 2s;
}

/// Candidates for the leader are first tried one by one, then in doubling steps: a whole node of low ranks may be gone.
int next_leader(int leader) {
  return leader < 4 ? leader + 1 : leader * 2;
}

detail::MpiComm duplicate(MPI_Comm parent) {
  MPI_Comm copy = MPI_COMM_NULL;
  ORTHANT_MPI(MPI_Comm_dup(parent, &copy));
  ORTHANT_MPI(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
  return detail::MpiComm(copy);
}

/// Starts a thread that receives no signals: the program's handlers must run on its own threads.
template<class Body>
std::thread start_without_signals(Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread thread(std::move(body));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (std::system_error const& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw Error(fmt::format("the watchdog's thread cannot be started: {}", error.code().message()));
  }
}

} // namespace

Watchdog::Watchdog(MPI_Comm parent, std::shared_ptr<Instruments const> instruments, double timeout_seconds)
    : comm_(duplicate(parent)),
      instruments_(std::move(instruments)),
      timeout_seconds_(timeout_seconds) {
  int provided = MPI_THREAD_SINGLE;
  ORTHANT_MPI(MPI_Query_thread(&provided));
  talks_to_others_ = provided == MPI_THREAD_MULTIPLE;
  ORTHANT_MPI(MPI_Comm_rank(comm_.get(), &rank_));
  ORTHANT_MPI(MPI_Comm_size(comm_.get(), &size_));
  states_.resize(static_cast<std::size_t>(size_));
  thread_ = start_without_signals([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard const lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Watchdog::watch() {
  last_look_ = Clock::now();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, period, [this] { return is_stopping_; })) {
    lock.unlock();
    tick();
    lock.lock();
  }
}

void Watchdog::tick() {
  auto const now = Clock::now();
  look(now);
  if (!talks_to_others_) {
    if (is_stuck()) end_job(describe_own_hang(own_, timeout_seconds_.load(), rank_));
    return;
  }
  take_messages();
  if (now < quiet_until_) return;
  if (is_called_to_lead_ && !is_leading_ && now >= lead_again_at_) lead();
  if (is_leading_)
    conclude();
  else if (!is_stuck())
    is_alarmed_ = false;
  else if (!is_called_to_lead_)
    raise_alarm();
}

void Watchdog::look(Clock::time_point now) {
  auto const slept = now - last_look_;
  last_look_ = now;
  if (slept > late) quiet_until_ = now + quiet_time;
  // The time in which the process was stopped does not count.
  auto const awake = std::chrono::duration<double>(std::min<Clock::duration>(slept, late)).count();
  auto const before = std::exchange(own_, instruments_->position.read());
  auto const has_moved = own_.num_changes != before.num_changes;
  if (!has_moved && own_.processor_seconds > before.processor_seconds) own_.seconds = 0;
  own_.seconds = std::min(own_.seconds, (has_moved ? 0 : before.seconds) + awake);
}

bool Watchdog::is_stuck() const {
  auto const timeout = timeout_seconds_.load();
  return timeout > 0 && own_.is_waiting && own_.seconds > timeout;
}

void Watchdog::raise_alarm() {
  auto const now = Clock::now();
  if (is_alarmed_ && now < next_step_) return;
  asked_leader_ = is_alarmed_ ? next_leader(asked_leader_) : 0;
  is_alarmed_ = true;
  next_step_ = now + patience;
  if (asked_leader_ >= rank_) return lead();
  send(asked_leader_, alarm_tag, 0);
}

void Watchdog::take_messages() {
  for (;;) {
    MPI_Status status;
    int has_message = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_.get(), &has_message, &status) != MPI_SUCCESS) return;
    if (has_message == 0) return;
    Letter letter;
    if (MPI_Recv(&letter, sizeof letter, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm_.get(),
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return;
    auto const source = static_cast<std::size_t>(status.MPI_SOURCE);
    switch (status.MPI_TAG) {
    case alarm_tag:
      is_called_to_lead_ = true;
      break;
    case question_tag:
      if (status.MPI_SOURCE < rank_)
        is_leading_ = is_called_to_lead_ = false; // the lowest rank that answers leads
      is_alarmed_ = true;
      asked_leader_ = -1; // if this alarm has no result, the next one starts at rank 0
      next_step_ = Clock::now() + question_grace(timeout_seconds_.load());
      look(Clock::now()); // the second round requires a position from after the question
      send(status.MPI_SOURCE, answer_tag, letter.round);
      break;
    default:
      if (letter.round == round_) states_[source] = {true, letter.position};
    }
  }
}

void Watchdog::lead() {
  is_leading_ = true;
  is_called_to_lead_ = false;
  states_before_.clear();
  ask();
}

void Watchdog::ask() {
  ++round_;
  collect_until_ = Clock::now() + collect_time(timeout_seconds_.load());
  std::ranges::fill(states_, RankState{});
  for (int r = 0; r < size_; ++r)
    if (r != rank_) send(r, question_tag, round_);
}

void Watchdog::conclude() {
  auto const now = Clock::now();
  auto const timeout = timeout_seconds_.load();
  states_[static_cast<std::size_t>(rank_)] = {true, own_};
  auto const all_answered = std::ranges::all_of(states_, &RankState::has_answered);
  if (!all_answered && now < collect_until_) return;
  if (timeout > 0 && is_hang(states_, timeout)) {
    if (stood_still(states_before_, states_)) end_job(describe_hang(states_, timeout, rank_));
    states_before_ = states_;
    return ask();
  }
  is_leading_ = false;
  is_alarmed_ = false;
  is_called_to_lead_ = false; // alarms that arrived meanwhile concern the same wait
  auto const waits_too_long = [&](RankState const& state) {
    return state.position.is_waiting && state.position.seconds > timeout;
  };
  if (timeout <= 0 || std::ranges::none_of(states_, waits_too_long)) return;
  // The wait is examined again as long as it lasts: next when all ranks may have been silent for long enough.
  auto silence = timeout;
  for (auto const& state : states_)
    if (state.has_answered) silence = std::min(silence, state.position.seconds);
  is_called_to_lead_ = true;
  lead_again_at_ = now + std::min<Duration>(to_duration(timeout - silence), longest_pause);
}

void Watchdog::send(int destination, Tag tag, std::int64_t round) {
  auto const is_complete = [](Message& message) {
    int is_done = 0;
    MPI_Test(&message.request, &is_done, MPI_STATUS_IGNORE);
    return is_done != 0;
  };
  while (!sent_.empty() && is_complete(sent_.front()))
    sent_.pop_front();
  auto& message = sent_.emplace_back();
  message.letter = {round, own_};
  MPI_Isend(&message.letter, sizeof message.letter, MPI_BYTE, destination, tag, comm_.get(),
            &message.request);
}

void Watchdog::end_job(std::string const& report) const {
  // Flushes the program's output, unless the program is stuck in printing.
  if (ftrylockfile(stdout) == 0) {
    std::fflush(stdout);
    funlockfile(stdout);
  }
  std::fputs(report.c_str(), stderr);
  std::fflush(stderr);
  remove_temporaries();
  MPI_Abort(comm_.get(), exit_internal);
  std::_Exit(exit_internal);
}

} // namespace orthant::runtime
