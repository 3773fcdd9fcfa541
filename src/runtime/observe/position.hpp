#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Position of this rank: the collective that it is in or the last one that it finished, and whether it works alone. The thread that
// communicates writes it, and the watchdog's thread reads it. Plain data of fixed size, sent between ranks as bytes.

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <time.h>

namespace orthant::runtime {

struct Whereabouts {
  std::int64_t num_changes = 0; // entries into and exits from collectives and WorkingScopes so far
  bool is_waiting = false;      // is inside a collective
  bool is_working = false;      // is inside a WorkingScope; a collective inside one counts as waiting
  std::int64_t sequence = 0;    // number of the collective on its communicator, from 0
  std::int64_t bytes = 0;       // logical bytes of the buffer
  double seconds = 0;           // since the last change
  std::array<char, 24> what{};  // the operation
  std::array<char, 24> axis{};
  std::array<char, 40> file{}; // source file of the call, without directories
  std::uint32_t line = 0;
  // For the innermost WorkingScope:
  double processor_seconds = 0; // total processor time of the thread that opened it; 0 while waiting
  std::array<char, 40> work_file{};
  std::uint32_t work_line = 0;
};

/// Position of this rank for the threads of its process. enter() and leave() cost one uncontended lock and one clock read each.
class Position {
 public:
  void enter(std::string_view what, std::string_view axis, std::int64_t sequence, std::int64_t bytes,
             std::source_location where);
  void leave();
  [[nodiscard]] Whereabouts read() const;

 private:
  friend class WorkingScope;
  using Clock = std::chrono::steady_clock;

  /// A section of work and the thread that does it.
  struct Work {
    bool is_open = false;
    clockid_t clock{}; // the thread's processor time
    std::array<char, 40> file{};
    std::uint32_t line = 0;
  };
  [[nodiscard]] Work begin_work(std::source_location where);
  void end_work(Work const& outer);
  void note_change();

  mutable std::mutex mutex_;
  Whereabouts now_;
  Work work_;
  Clock::time_point since_ = Clock::now();
};

/// Marks a section that may wait for other ranks without a collective of this library (a bare MPI call, parallel HDF5), so that the
/// watchdog also covers it.
class WaitingScope {
 public:
  WaitingScope(Position& position, std::string_view what,
               std::source_location where = std::source_location::current())
      : position_(position) {
    position_.enter(what, "world", 0, 0, where);
  }
  WaitingScope(WaitingScope const&) = delete;
  WaitingScope& operator=(WaitingScope const&) = delete;
  ~WaitingScope() { position_.leave(); }

 private:
  Position& position_;
};

/// Marks a section in which this rank computes or reads alone for any time, while others may wait for it. The watchdog considers the rank
/// alive as long as the calling thread uses processor time. The calling thread must do the work, or at least wake up for each part of it.
/// Scopes may nest, and collectives inside a scope are watched as usual.
class WorkingScope {
 public:
  explicit WorkingScope(Position& position, std::source_location where = std::source_location::current())
      : position_(position),
        outer_(position.begin_work(where)) {}
  WorkingScope(WorkingScope const&) = delete;
  WorkingScope& operator=(WorkingScope const&) = delete;
  ~WorkingScope() { position_.end_work(outer_); }

 private:
  Position& position_;
  Position::Work outer_;
};

// Decisions and reports of the watchdog: whether a job hangs, where every rank is (ranks in the same state together), and which ranks have
// not arrived.

struct RankState {
  bool has_answered = false;
  Whereabouts position;
};

/// True if some rank waits in a collective and no rank has made progress for more than `timeout_seconds`. A rank that does not answer makes
/// no progress.
[[nodiscard]] bool is_hang(std::span<RankState const> states, double timeout_seconds);

/// True if no rank has moved between `before` and `after`.
[[nodiscard]] bool stood_still(std::span<RankState const> before, std::span<RankState const> after);

/// Report of several lines, all terminated by a newline. states[r] is the state of rank r; `reporter` is the rank that writes.
[[nodiscard]] std::string describe_hang(std::span<RankState const> states, double timeout_seconds,
                                        int reporter);

/// Report of one rank about itself, if the watchdogs cannot communicate.
[[nodiscard]] std::string describe_own_hang(Whereabouts const& position, double timeout_seconds, int rank);

/// "0-3,7" for ascending numbers.
[[nodiscard]] std::string format_ranges(std::span<int const> numbers);

} // namespace orthant::runtime
