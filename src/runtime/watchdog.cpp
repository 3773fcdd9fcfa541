// SPDX-License-Identifier: Apache-2.0
#include "runtime/watchdog.hpp"

#include "runtime/error.hpp"
#include "runtime/temporary_path.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace orthant::runtime {
namespace {

using namespace std::chrono_literals;

constexpr auto period = 200ms;
constexpr auto late = 1500ms;       // the thread slept so long only if the whole process did
constexpr auto quiet_time = 3s;     // after that; a job that is being ended is gone by then
constexpr auto collect_time = 2s;   // how long the leader waits for answers
constexpr auto patience = 2s;       // how long a leader may take to ask back, before the next rank is tried
constexpr auto question_grace = 8s; // from a leader's question to a new alarm, should nothing come of it

/// Leaders are tried one by one at first, then in doubling steps: a whole node of low ranks may be gone.
int next_leader(int leader) {
  return leader < 4 ? leader + 1 : leader * 2;
}

detail::MpiComm duplicate(MPI_Comm parent) {
  MPI_Comm copy = MPI_COMM_NULL;
  ORTHANT_MPI(MPI_Comm_dup(parent, &copy));
  ORTHANT_MPI(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
  return detail::MpiComm(copy);
}

/// A thread that no signal is delivered to: handlers of the program run on its own threads.
template<class Body>
std::thread start_without_signals(Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto thread = std::thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
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
  if (is_called_to_lead_ && !is_leading_) lead();
  if (is_leading_)
    conclude();
  else if (is_stuck())
    raise_alarm();
  else
    is_alarmed_ = false;
}

void Watchdog::look(Clock::time_point now) {
  auto const slept = now - last_look_;
  last_look_ = now;
  if (slept > late) quiet_until_ = now + quiet_time;
  auto const awake = std::chrono::duration<double>(std::min<Clock::duration>(slept, late)).count();
  auto const waited = own_.is_waiting ? own_.seconds : 0;
  own_ = instruments_->position.read();
  if (own_.is_waiting) own_.seconds = std::min(own_.seconds, waited + awake);
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
  send(asked_leader_, alarm_tag, own_);
}

void Watchdog::take_messages() {
  for (;;) {
    MPI_Status status;
    int has_message = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_.get(), &has_message, &status) != MPI_SUCCESS) return;
    if (has_message == 0) return;
    Whereabouts position;
    if (MPI_Recv(&position, sizeof position, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm_.get(),
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return;
    auto const source = static_cast<std::size_t>(status.MPI_SOURCE);
    switch (status.MPI_TAG) {
    case alarm_tag:
      is_called_to_lead_ = true;
      break;
    case question_tag:
      if (status.MPI_SOURCE < rank_) is_leading_ = false; // the lowest rank that answers reports
      is_alarmed_ = true;
      asked_leader_ = -1; // should nothing come of it, the next alarm starts at rank 0
      next_step_ = Clock::now() + question_grace;
      send(status.MPI_SOURCE, answer_tag, own_);
      break;
    default:
      states_[source] = {true, position};
    }
  }
}

void Watchdog::lead() {
  is_leading_ = true;
  is_called_to_lead_ = false;
  collect_until_ = Clock::now() + collect_time;
  std::ranges::fill(states_, RankState{});
  for (int r = 0; r < size_; ++r)
    if (r != rank_) send(r, question_tag, {});
}

void Watchdog::conclude() {
  auto const timeout = timeout_seconds_.load();
  states_[static_cast<std::size_t>(rank_)] = {true, own_};
  auto const all_answered = std::ranges::all_of(states_, &RankState::has_answered);
  if (!all_answered && Clock::now() < collect_until_) return;
  is_leading_ = false;
  is_called_to_lead_ = false; // alarms that came meanwhile are of the same hang
  is_alarmed_ = false;
  // The collective may have ended after all, a moment too late to stop the alarm.
  auto const is_over_time = [&](RankState const& state) {
    return state.position.is_waiting && state.position.seconds > timeout;
  };
  if (timeout > 0 && std::ranges::any_of(states_, is_over_time))
    end_job(describe_hang(states_, timeout, rank_));
}

void Watchdog::send(int destination, Tag tag, Whereabouts const& position) {
  auto const is_complete = [](Message& message) {
    int is_done = 0;
    MPI_Test(&message.request, &is_done, MPI_STATUS_IGNORE);
    return is_done != 0;
  };
  while (!sent_.empty() && is_complete(sent_.front()))
    sent_.pop_front();
  auto& message = sent_.emplace_back();
  message.position = position;
  MPI_Isend(&message.position, sizeof message.position, MPI_BYTE, destination, tag, comm_.get(),
            &message.request);
}

void Watchdog::end_job(std::string const& report) const {
  // What the program has printed so far, unless it is stuck in printing.
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
