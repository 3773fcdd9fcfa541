#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Diagnoses a hang. One thread per rank wakes a few times a second and reads where the rank stands. A job
// hangs when some rank waits in one collective for longer than `timeout` and no rank has shown life for so
// long. One report is printed then, and the job ends with status 1. A rank shows life when it
//   - enters or leaves a collective or a WorkingScope (the work given to together() is in one), or
//   - uses processor time inside a WorkingScope, outside any collective.
// So these end a job: collectives that do not match, a message that nobody sends, and a rank that sleeps,
// loops outside any scope, is stopped, or is blocked (by a file system, for example) for longer than
// `timeout`. What is not found: an endless loop inside a WorkingScope. A mismatch is reported when the last
// rank that works has finished.
//
// The watchdogs talk over a communicator of their own. A rank that is stuck sends an alarm to rank 0's
// watchdog, which asks all others where they stand and collects for a moment: 3 P messages. If that looks
// like a hang, it asks again, and prints and aborts only if no rank has moved in between: then all of them
// stood still at one instant, however old the single answers are. Otherwise it asks again later, for as long
// as some rank waits. A rank that does not take up the alarm (it is stopped) is passed over for the next.
//
// A process that was stopped and goes on (Ctrl-Z, a suspended job, or the end of the job that its stop
// caused) does not count the time it slept, and keeps quiet for a moment.
//
// The thread touches no Kokkos: View reference counts are not atomic in every build.

#include "runtime/comm/communicator.hpp"
#include "runtime/observe/position.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mpi.h>
#include <mutex>
#include <thread>
#include <vector>

namespace orthant::runtime {

inline constexpr double default_timeout_seconds = 600;

class Watchdog {
 public:
  /// Starts the thread. Collective over `parent`, which is duplicated. If MPI does not give
  /// MPI_THREAD_MULTIPLE, a stuck rank reports for itself only, and cannot know that another one works.
  Watchdog(MPI_Comm parent, std::shared_ptr<Instruments const> instruments, double timeout_seconds);
  Watchdog(Watchdog const&) = delete;
  Watchdog& operator=(Watchdog const&) = delete;
  /// Stops the thread. Collective.
  ~Watchdog();

  /// 0 turns alarms off; questions of other ranks are answered still. Equal on all ranks.
  void set_timeout(double seconds) { timeout_seconds_.store(seconds); }
  [[nodiscard]] double timeout_seconds() const { return timeout_seconds_.load(); }
  /// False where the MPI library does not let a second thread communicate.
  [[nodiscard]] bool talks_to_others() const { return talks_to_others_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum Tag : int { alarm_tag, question_tag, answer_tag };

  void watch();
  void tick();
  void look(Clock::time_point now);
  [[nodiscard]] bool is_stuck() const;
  void raise_alarm();
  void take_messages();
  void lead();
  void ask();
  void conclude();
  void send(int destination, Tag tag, std::int64_t round);
  [[noreturn]] void end_job(std::string const& report) const;

  detail::MpiComm comm_;
  std::shared_ptr<Instruments const> instruments_;
  std::atomic<double> timeout_seconds_;
  int rank_ = 0;
  int size_ = 1;
  bool talks_to_others_ = false;

  // All below is used by the thread only.
  Whereabouts own_; // where this rank stands; its seconds are those since it last showed life
  Clock::time_point last_look_{};
  Clock::time_point quiet_until_{};
  // An alarm under way.
  struct Letter {
    std::int64_t round = 0; // an answer's is its question's: late answers of earlier rounds do not count
    Whereabouts position;
  };
  struct Message {
    Letter letter;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::deque<Message> sent_; // kept until MPI is done with them
  std::int64_t round_ = 0;
  std::vector<RankState> states_;
  std::vector<RankState> states_before_; // of the round before, if that looked like a hang
  bool is_called_to_lead_ = false;       // an alarm came in, or the last one is to be looked at again
  bool is_leading_ = false;
  Clock::time_point lead_again_at_{};
  Clock::time_point collect_until_{};
  bool is_alarmed_ = false;
  int asked_leader_ = 0;
  Clock::time_point next_step_{};

  // How the thread is told to end.
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_stopping_ = false;
  std::thread thread_;
};

} // namespace orthant::runtime
