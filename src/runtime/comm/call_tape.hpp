#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Records the results of collectives and returns them when the same calls are made again. A replayed call communicates nothing, and the
// ledger of calls does not count it.
//
//   CallTape tape(make_bytes); // runtime/arrays/allocation.hpp
//   tape.begin(CallTape::State::recording);
//   { TapeScope const scope(world.instruments(), &tape); forward(); }
//   tape.begin(CallTape::State::replaying);
//   { TapeScope const scope(world.instruments(), &tape); forward(); }   // the same bits, without a message
//
// Source: communication-aware checkpointing of DeepSpeed-TED (arXiv 2303.06318), section 5.

#include "runtime/comm/call.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/device/device_queue.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orthant::runtime {

namespace detail {

/// Allocates `num_bytes` bytes on a device or on the host.
using MakeBytes =
    std::function<std::shared_ptr<std::byte>(char const* label, std::int64_t num_bytes, bool on_device)>;

/// The recorded result of one call.
struct KeptResult {
  Operation operation{};
  std::int64_t num_bytes = 0;
  std::int64_t capacity = 0;
  std::shared_ptr<std::byte> bytes;

  /// Allocates memory for the call's result if the existing memory is too small; then adds 1/32 to its length.
  void prepare(MakeBytes const& make_bytes, Call const& call);
  /// Copies the result of `call`, which must be complete, into `bytes`, in the order of the call's stream. hand_out() copies it back into
  /// the call's receive buffer.
  void take(PassLedger& passes, Call const& call);
  void hand_out(PassLedger& passes, Call const& call) const;
};

} // namespace detail

/// The recorded results of one rank. All ranks of a communicator must make the same calls on their tapes.
class CallTape {
 public:
  enum class State : std::uint8_t { off, recording, replaying };

  explicit CallTape(detail::MakeBytes make_bytes) : make_bytes_(std::move(make_bytes)) {}
  CallTape(CallTape const&) = delete;
  CallTape& operator=(CallTape const&) = delete;

  /// Starts recording, replaying or neither from the first call. A new recording replaces the old results but keeps their memory.
  void begin(State state);

  /// Place for the result of `call`, or null if the tape is not recording or the call has no result. Called by collectives in the order in
  /// which they start.
  [[nodiscard]] detail::KeptResult* record(Communicator const& comm, detail::Call const& call);
  /// Copies the recorded result of `call` into its receive buffer and returns true; returns false if the tape is not replaying. Throws
  /// Error if the calls of a communicator are not the recorded ones in the same order.
  [[nodiscard]] bool replay(Communicator const& comm, detail::Call const& call);

 private:
  struct Track {
    std::deque<detail::KeptResult> results; // a deque, because results must not move
    std::size_t next = 0;
  };

  detail::MakeBytes make_bytes_;
  State state_ = State::off;
  std::map<Communicator const*, Track>
      tracks_; // calls of one communicator have the same order in both passes
};

/// While it exists, collectives of these instruments use `tape`, or no tape if it is null.
class TapeScope {
 public:
  TapeScope(Instruments& instruments, CallTape* tape) : instruments_(instruments), before_(instruments.tape) {
    instruments_.tape = tape;
  }
  TapeScope(TapeScope const&) = delete;
  TapeScope& operator=(TapeScope const&) = delete;
  ~TapeScope() { instruments_.tape = before_; }

 private:
  Instruments& instruments_;
  CallTape* before_;
};

// A step that the ranks of a group record together and then replay: a graph of device work (runtime/device/device_queue.hpp), and the
// counts of its collectives. Data that differ from step to step must be in the device's memory.

class RecordedStep {
 public:
  /// `queue` must outlive the recording.
  explicit RecordedStep(DeviceQueue const& queue) : queue_(queue) {}

  /// Records the work that `enqueue` enqueues on the queue, without running it. `communicators` are all communicators that the step uses;
  /// they and `group` must outlive the recording. Recorded collectives must be launched by all ranks or by none: if one rank cannot record,
  /// no rank has a recording, and every rank gets the reason. Otherwise the returned text is empty. Collective over the group.
  [[nodiscard]] std::string record(Communicator const& group, std::vector<Communicator const*> communicators,
                                   std::function<void()> const& enqueue);
  [[nodiscard]] bool exists() const { return graph_.exists(); }

  /// Enqueues the recorded step, and counts its calls, flops and passes. Throws Error if the device refuses.
  void replay();

 private:
  DeviceQueue const& queue_;
  std::vector<Communicator const*> communicators_;
  std::vector<Ledger> calls_; // of one step, per communicator
  Instruments* instruments_ = nullptr;
  FlopCount flops_; // of one step
  PassCount passes_;
  DeviceGraph graph_;
};

} // namespace orthant::runtime
