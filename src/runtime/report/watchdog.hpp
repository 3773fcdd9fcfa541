#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Diagnoses a hang. One thread per rank wakes a few times per second and reads the position of the rank. A job hangs if some rank has
// waited in one collective for longer than `timeout` and no rank has made progress in that time. Then one report is printed, and the job
// ends with status 1. A rank makes progress if it
//   - enters or leaves a collective or a WorkingScope (the work given to together() is in one), or
//   - uses processor time inside a WorkingScope, outside any collective.
// These mistakes therefore end a job: collectives that do not match, a message that nobody sends, and a rank that sleeps, loops outside any
// scope, is stopped, or is blocked (by a file system, for example) for longer than `timeout`. An endless loop inside a WorkingScope is not
// found. A mismatch is reported when the last working rank has finished.
//
// The watchdogs use their own communicator. A stuck rank sends an alarm to rank 0's watchdog, which asks all others for their positions and
// collects the answers for a moment: 3 P messages. If the answers look like a hang, it asks again, and prints and aborts only if no rank
// has moved in between: then all ranks stood still at the same time, no matter how old the single answers are. Otherwise it asks again
// later, as long as some rank waits. If rank 0 does not react to the alarm (because it is stopped), the alarm goes to the next rank.
//
// A process that was stopped and continues (Ctrl-Z, a suspended job) does not count the time of the stop, and sends no alarms for a moment.
// This also applies if it continues only because its stop ended the job.
//
// The thread does not use Kokkos: View reference counts are not atomic in every build.

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
  /// Starts the thread. Collective over `parent`, which is duplicated. If MPI does not provide MPI_THREAD_MULTIPLE, a stuck rank reports
  /// only for itself and cannot know that another one works.
  Watchdog(MPI_Comm parent, std::shared_ptr<Instruments const> instruments, double timeout_seconds);
  Watchdog(Watchdog const&) = delete;
  Watchdog& operator=(Watchdog const&) = delete;
  /// Stops the thread. Collective.
  ~Watchdog();

  /// 0 turns alarms off; questions of other ranks are still answered. Must be equal on all ranks.
  void set_timeout(double seconds) { timeout_seconds_.store(seconds); }
  [[nodiscard]] double timeout_seconds() const { return timeout_seconds_.load(); }
  /// False if the MPI library does not let a second thread communicate.
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

  // Only the thread uses the members below.
  Whereabouts own_; // position of this rank; its seconds count since this rank last made progress
  Clock::time_point last_look_{};
  Clock::time_point quiet_until_{};
  // An alarm in progress:
  struct Letter {
    std::int64_t round = 0; // an answer has its question's round: late answers of earlier rounds do not count
    Whereabouts position;
  };
  struct Message {
    Letter letter;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::deque<Message> sent_; // kept until MPI has sent them
  std::int64_t round_ = 0;
  std::vector<RankState> states_;
  std::vector<RankState> states_before_; // of the previous round, if that looked like a hang
  bool is_called_to_lead_ = false;       // an alarm has arrived, or the last one must be examined again
  bool is_leading_ = false;
  Clock::time_point lead_again_at_{};
  Clock::time_point collect_until_{};
  bool is_alarmed_ = false;
  int asked_leader_ = 0;
  Clock::time_point next_step_{};

  // Signals the thread to end.
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_stopping_ = false;
  std::thread thread_;
};

} // namespace orthant::runtime
