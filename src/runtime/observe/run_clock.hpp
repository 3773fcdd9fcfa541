#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The clock behind the seconds that a run reports: of epochs, phases and calls, in metrics, ledgers and traces. It is the
// steady clock, unless the run emulates another machine. Then each rank has a virtual clock, which starts at 0 and
// advances by the processor time of the thread that communicates, times a factor of the machine, and by what calls
// take on it (comm/pending.hpp). Processor time that passes inside calls does not count, because
// MPI waits actively. Work that every step repeats counts as it takes in most of them (run_clock.hpp). So many ranks can share
// a core, and the seconds are those of ranks that do not.

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
#include <vector>

namespace orthant::runtime {

// Seconds of work that every step repeats, without what disturbs single steps: interrupts, other programs, caches that other ranks
// of an emulation have emptied. The slowest rank decides when a call ends, so that disturbances of one rank in many would add up to
// seconds that no rank needs:
//
//   steady seconds of the place-th piece of work in step t  =  median of its seconds in the steps t-8, .., t

class SteadyWork {
 public:
  static constexpr std::size_t num_remembered = 9;

  /// The next piece is the first one of a step, which has the pieces of the step before in the same order.
  void begin_step() { place_ = 0; }

  /// Steady seconds of the next piece, which took `seconds` this time; of two in the middle the shorter one. Allocates only for a place
  /// that no step has had before.
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
    std::array<double, num_remembered> seconds{}; // of the last steps, the oldest is replaced
    std::size_t count = 0;                        // of all steps
  };

  std::size_t place_ = 0; // of the next piece in its step
  std::vector<Piece> pieces_;
};

/// A call of a group, or a message, whose seconds an emulated machine tells.
struct EmulatedCall {
  Operation operation{};
  std::span<int const> ranks;  // those of the group, as numbered in the job; of a message its two
  std::int64_t bytes = 0;      // as the ledger of this rank counts them
  std::int64_t sent_bytes = 0; // as well
};

/// A machine that a run pretends to run on. Ranks fill one node after the other.
struct EmulatedMachine {
  std::string name; // or file
  int ranks_per_node = 1;
  double seconds_per_processor_second = 1;
  std::function<double(EmulatedCall const&)> call_seconds;
  double overlap = 1; // share of computing time in which a call under way makes progress
};

/// Processor time of the calling thread in its whole life.
[[nodiscard]] double thread_processor_seconds();

/// Of one rank. For the thread that communicates, but for work_seconds().
class RunClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// The virtual clock from now on, which stands at 0. `processor_seconds`: of the calling thread; tests have their own.
  void emulate(EmulatedMachine machine, std::function<double()> processor_seconds = thread_processor_seconds);
  /// Null: the clock is real.
  [[nodiscard]] EmulatedMachine const* machine() const { return machine_ ? &*machine_ : nullptr; }

  [[nodiscard]] Clock::time_point now();
  /// Where the clocks of all ranks start, if they are virtual.
  [[nodiscard]] std::optional<Clock::time_point> shared_origin() const {
    return machine_ ? std::optional(Clock::time_point()) : std::nullopt;
  }
  /// What another thread began at `begin`, and has worked `seconds` for, is done. Nothing if the clock is real, because
  /// this thread has waited for it.
  void wait_for_work(Clock::time_point begin, double seconds);
  /// What the calling thread, whichever it is, has worked: the difference of two is the seconds of what lies between.
  [[nodiscard]] double work_seconds() const;

  /// Of an emulation: the virtual clock in seconds, and its next value if that is later.
  [[nodiscard]] double virtual_seconds();
  void advance_to(double seconds);
  /// Waits for a call that this rank began at `begin` and that would end at `end` if nobody computed meanwhile. What the rank has computed
  /// since hides min(end - begin, overlap x computing) of it.
  void wait_for_call(double begin, double end);

  /// Processor time in here does not count. Scopes may nest.
  class Paused {
   public:
    explicit Paused(RunClock& clock) : clock_(clock) { clock_.pause(); }
    Paused(Paused const&) = delete;
    Paused& operator=(Paused const&) = delete;
    ~Paused() { clock_.go_on(); }

   private:
    RunClock& clock_;
  };

  /// While it lives, a step runs that repeats the work of the steps that `steady` has seen, piece by piece. Nothing if the clock is real.
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
  /// Counts what this thread has worked since the last time.
  void count_work();

  std::optional<EmulatedMachine> machine_;
  std::function<double()> processor_seconds_;
  double seconds_ = 0;   // virtual
  double work_ = 0;      // since the virtual clock was read last
  double processor_ = 0; // seconds that are counted, or do not count
  int num_pauses_ = 0;
  SteadyWork* steady_ = nullptr; // of the step that runs; a piece lies between two reads of the virtual clock
};

} // namespace orthant::runtime
