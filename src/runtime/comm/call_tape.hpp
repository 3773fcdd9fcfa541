#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Results of collectives that are kept, and handed out when the same calls are made again: nothing is communicated then, and the ledger
// of calls does not count them.
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

/// Memory of that many bytes, of a device or of the host.
using MakeBytes =
    std::function<std::shared_ptr<std::byte>(char const* label, std::int64_t num_bytes, bool on_device)>;

/// The result of one call.
struct KeptResult {
  Operation operation{};
  std::int64_t num_bytes = 0;
  std::int64_t capacity = 0;
  std::shared_ptr<std::byte> bytes;

  /// Memory for the call's result, with a thirty-second more when it grows.
  void prepare(MakeBytes const& make_bytes, Call const& call);
  /// Copies the result of that call, which is complete, in the order of its stream. And back.
  void take(PassLedger& passes, Call const& call);
  void hand_out(PassLedger& passes, Call const& call) const;
};

} // namespace detail

/// Belongs to one rank; all ranks of a communicator must do the same with theirs.
class CallTape {
 public:
  enum class State : std::uint8_t { off, recording, replaying };

  explicit CallTape(detail::MakeBytes make_bytes) : make_bytes_(std::move(make_bytes)) {}
  CallTape(CallTape const&) = delete;
  CallTape& operator=(CallTape const&) = delete;

  /// From now on, from its first call. What was recorded before goes when it is recorded again; memory is kept.
  void begin(State state);

  /// For collectives, in the order in which they start. Where the result of a call is to go, or null: not recording.
  [[nodiscard]] detail::KeptResult* record(Communicator const& comm, detail::Call const& call);
  /// Whether the call has its result now, because it was kept. Throws Error if the calls of a communicator are not those that were
  /// recorded, in their order.
  [[nodiscard]] bool replay(Communicator const& comm, detail::Call const& call);

 private:
  struct Track {
    std::deque<detail::KeptResult> results; // stay where they are
    std::size_t next = 0;
  };

  detail::MakeBytes make_bytes_;
  State state_ = State::off;
  std::map<Communicator const*, Track>
      tracks_; // calls of one communicator have the same order in both passes
};

/// While it lives, collectives of these instruments go through the tape; null: through none.
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

// A step that the ranks of a group record together and then replay: a graph of device work
// (runtime/device/device_queue.hpp), and the calls that its collectives count. What differs from step to step must be in the device's memory.

class RecordedStep {
 public:
  /// `queue` must outlive the recording.
  explicit RecordedStep(DeviceQueue const& queue) : queue_(queue) {}

  /// Records what `enqueue` enqueues on the queue, instead of doing it. `communicators` are all that it
  /// communicates over; they and `group` must outlive the recording. Recorded collectives must be launched by
  /// all ranks or by none: if one rank cannot record, no rank has a recording. Returns the reason then, on
  /// every rank, and otherwise an empty text. Collective over the group.
  [[nodiscard]] std::string record(Communicator const& group, std::vector<Communicator const*> communicators,
                                   std::function<void()> const& enqueue);
  [[nodiscard]] bool exists() const { return graph_.exists(); }

  /// Enqueues the recorded step, and counts its calls, its arithmetic and its passes. Throws Error if the device refuses.
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
