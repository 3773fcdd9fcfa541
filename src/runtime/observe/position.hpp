#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where this rank stands: the collective it is in or the last one it finished, and whether it works alone.
// Written by the thread that communicates, read by the watchdog's thread. Plain data of fixed size, so it
// travels between ranks as bytes.

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
  std::int64_t num_changes = 0; // how often this rank has entered or left a collective or a WorkingScope
  bool is_waiting = false;      // inside a collective now
  bool is_working = false;      // inside a WorkingScope now; a collective in there counts as waiting
  std::int64_t sequence = 0;    // number of the collective on its communicator, from 0
  std::int64_t bytes = 0;       // logical bytes of the buffer
  double seconds = 0;           // since the last change
  std::array<char, 24> what{};  // operation
  std::array<char, 24> axis{};
  std::array<char, 40> file{}; // of the call, without directories
  std::uint32_t line = 0;
  // Of the innermost WorkingScope.
  double processor_seconds = 0; // used by the thread that opened it, in its whole life; 0 while waiting
  std::array<char, 40> work_file{};
  std::uint32_t work_line = 0;
};

/// Enter and leave cost one uncontended lock and one clock read each.
class Position {
 public:
  void enter(std::string_view what, std::string_view axis, std::int64_t sequence, std::int64_t bytes,
             std::source_location where);
  void leave();
  [[nodiscard]] Whereabouts read() const;

 private:
  friend class WorkingScope;
  using Clock = std::chrono::steady_clock;

  /// A stretch of work, by the thread that does it.
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

/// Marks a stretch that may wait for other ranks but is no collective of ours (a bare MPI call, parallel
/// HDF5), so that the watchdog covers it too.
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

/// Marks a stretch in which this rank computes or reads by itself, however long, while others may wait for
/// it. The watchdog takes the rank for alive as long as the calling thread uses processor time. The calling
/// thread must do the work, or at least wake up for each piece of it. Scopes may nest, and collectives inside
/// a scope are watched as elsewhere.
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

// What the watchdog judges and prints: whether a job hangs, where every rank stands, equal ranks together,
// and who has not arrived.

struct RankState {
  bool has_answered = false;
  Whereabouts position;
};

/// Whether some rank waits in a collective and no rank has shown life for more than `timeout_seconds`. A rank
/// that does not answer shows none.
[[nodiscard]] bool is_hang(std::span<RankState const> states, double timeout_seconds);

/// Whether no rank has moved from `before` to `after`.
[[nodiscard]] bool stood_still(std::span<RankState const> before, std::span<RankState const> after);

/// states[r] is rank r's; `reporter` the rank that writes. Several lines, the last one ended too.
[[nodiscard]] std::string describe_hang(std::span<RankState const> states, double timeout_seconds,
                                        int reporter);

/// One rank's own words where the watchdogs cannot talk to each other.
[[nodiscard]] std::string describe_own_hang(Whereabouts const& position, double timeout_seconds, int rank);

/// "0-3,7" from ascending numbers.
[[nodiscard]] std::string format_ranges(std::span<int const> numbers);

} // namespace orthant::runtime
