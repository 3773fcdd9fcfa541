#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The clock for the seconds that a run reports: seconds of epochs, phases and calls, in metrics, ledgers and traces. It is the steady
// clock, unless the run emulates another machine.
//
// On an emulated machine, each rank has a virtual clock, which starts at 0. It advances by the processor time of the communicating thread
// times a factor of the machine, and by the modeled duration of calls (comm/pending.hpp). Processor time inside calls does not count,
// because MPI waits actively. Work that every step repeats counts with its median (SteadyWork). Many ranks can therefore share a core, and
// the seconds are those of ranks with cores of their own.

#include "runtime/observe/ledger.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::runtime {

// Seconds of work that every step repeats, without disturbances of single steps: interrupts, other programs, caches that other ranks of an
// emulation have emptied. The slowest rank decides when a call ends, so that rare disturbances of many ranks would add up to seconds that
// no rank needs:
//
//   steady seconds of work piece `place` in step t  =  median of its seconds in the steps t-8, .., t

class SteadyWork {
 public:
  static constexpr std::size_t num_remembered = 9;

  /// The next piece is the first one of a step. Every step must have the same pieces in the same order.
  void begin_step() { place_ = 0; }

  /// Steady seconds of the next piece, which took `seconds` this time; of two middle values, the smaller one. Allocates only for a place
  /// that no earlier step had.
  [[nodiscard]] double of(double seconds) {
    if (place_ == pieces_.size()) pieces_.emplace_back();
    auto& piece = pieces_[place_++];
    piece.seconds[piece.count++ % num_remembered] = seconds;
    auto sorted = piece.seconds;
    auto const remembered = std::min(piece.count, num_remembered);
    auto const middle = sorted.begin() + static_cast<std::ptrdiff_t>((remembered - 1) / 2);
    std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(remembered));
    return *middle;
  }

 private:
  struct Piece {
    std::array<double, num_remembered> seconds{}; // of the last steps; a new value replaces the oldest
    std::size_t count = 0;                        // over all steps
  };

  std::size_t place_ = 0; // index of the next piece within its step
  std::vector<Piece> pieces_;
};

/// A call of a group, or a message, whose duration the emulated machine models.
struct EmulatedCall {
  Operation operation{};
  std::string_view axis;
  std::span<int const> ranks;  // job ranks of the group; for a message, its two ranks
  std::int64_t bytes = 0;      // as the ledger of this rank counts them
  std::int64_t sent_bytes = 0; // as the ledger of this rank counts them
};

/// The machine that a run emulates. Ranks fill one node after the other.
struct EmulatedMachine {
  std::string name; // of the machine or of its file
  int ranks_per_node = 1;
  double seconds_per_processor_second = 1;
  std::function<double(EmulatedCall const&)> call_seconds;
  double overlap = 1; // fraction of computing time in which a call in progress advances
};

/// Total processor time of the calling thread.
[[nodiscard]] double thread_processor_seconds();

/// Clock of one rank. Only the communicating thread may use it, except for work_seconds().
class RunClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Switches to the virtual clock, which starts at 0. `processor_seconds` returns the processor time of the calling thread; tests replace
  /// it.
  void emulate(EmulatedMachine machine, std::function<double()> processor_seconds = thread_processor_seconds);
  /// Null if the clock is real.
  [[nodiscard]] EmulatedMachine const* machine() const { return machine_ ? &*machine_ : nullptr; }

  [[nodiscard]] Clock::time_point now();
  /// Common start of the clocks of all ranks, if they are virtual.
  [[nodiscard]] std::optional<Clock::time_point> shared_origin() const {
    return machine_ ? std::optional(Clock::time_point()) : std::nullopt;
  }
  /// Waits virtually for work that another thread began at `begin` and for which it used `seconds`. Does nothing if the clock is real,
  /// because this thread has then waited for the work.
  void wait_for_work(Clock::time_point begin, double seconds);
  /// Work of the calling thread (any thread) so far; the difference of two values is the seconds of the work between them.
  [[nodiscard]] double work_seconds() const;

  /// For emulation: the virtual clock in seconds. advance_to() moves it forward if `seconds` is later.
  [[nodiscard]] double virtual_seconds();
  void advance_to(double seconds);
  /// Waits for a call that this rank began at `begin` and that would end at `end` without computation in between. The computation of this
  /// rank since then hides min(end - begin, overlap x computing) of the call.
  void wait_for_call(double begin, double end);

  /// While it exists, processor time does not count. Scopes may nest.
  class Paused {
   public:
    explicit Paused(RunClock& clock) : clock_(clock) { clock_.pause(); }
    Paused(Paused const&) = delete;
    Paused& operator=(Paused const&) = delete;
    ~Paused() { clock_.go_on(); }

   private:
    RunClock& clock_;
  };

  /// While it exists, a step runs that repeats, piece by piece, the work of the steps in `steady`. Does nothing if the clock is real.
  class EqualStep {
   public:
    EqualStep(RunClock& clock, SteadyWork& steady) : clock_(clock) { clock_.begin_step(steady); }
    EqualStep(EqualStep const&) = delete;
    EqualStep& operator=(EqualStep const&) = delete;
    ~EqualStep() { clock_.end_step(); }

   private:
    RunClock& clock_;
  };

 private:
  void pause();
  void go_on();
  void begin_step(SteadyWork& steady);
  void end_step();
  /// Counts the work of this thread since the last call.
  void count_work();

  std::optional<EmulatedMachine> machine_;
  std::function<double()> processor_seconds_;
  double seconds_ = 0;   // virtual time
  double work_ = 0;      // since the virtual clock was last read
  double processor_ = 0; // processor time up to which work is counted or excluded
  int num_pauses_ = 0;
  SteadyWork* steady_ = nullptr; // of the running step; pieces lie between reads of the virtual clock
};

} // namespace orthant::runtime
