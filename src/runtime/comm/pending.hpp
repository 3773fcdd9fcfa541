#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// An operation between its start and its end, as the caller sees it: its records in the ledger, the trace and the watchdog, and the
// exchange that carries it out.

#include "runtime/comm/backend.hpp"
#include "runtime/comm/communicator.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mpi.h>

namespace orthant::runtime {

// End times of the calls of a communicator on an emulated machine (observe/run_clock.hpp). Calls of a communicator run one after another,
// as on a stream:
//
//   end_k = max(end_{k-1}, latest clock among the ranks that begin call k)  +  largest duration of call k over the ranks
//
// For its sender, a message ends when it has left; messages leave one after another. For its receiver, it ends at the same time, or when
// the receiver asks for it if that is later.
// The clocks are exchanged along with the numbers, in exchanges that are never waited for before the call itself is.

class Communicator;
namespace detail {

struct Call;

/// One call or message in progress on an emulated machine.
class VirtualCall {
 public:
  VirtualCall(double clock, double seconds) : numbers_(std::make_unique<Numbers>(Numbers{clock, seconds})) {}
  VirtualCall(VirtualCall const&) = delete;
  VirtualCall& operator=(VirtualCall const&) = delete;
  ~VirtualCall();

 private:
  friend class VirtualCalls;
  using Numbers = std::array<double, 2>; // this rank's clock and seconds, then the largest over ranks

  void wait();

  std::unique_ptr<Numbers> numbers_; // MPI accesses them until the request is complete
  MPI_Request request_ = MPI_REQUEST_NULL;
  double end_ = 0;
  bool is_message_ = false;
};

/// The emulated calls of one communicator on one rank.
class VirtualCalls {
 public:
  /// Registers a call that this rank begins now. Must be called in the order in which the ranks of the group begin their calls, before the
  /// call's own messages are sent. `bytes` is the ledger's count.
  [[nodiscard]] std::shared_ptr<VirtualCall> begin(Communicator const& comm, Call const& call,
                                                   std::int64_t bytes);
  /// End time of the call. Waits for the clocks of the ranks that take part.
  [[nodiscard]] double end_of(VirtualCall& call);

 private:
  void begin_message(Communicator const& comm, Call const& call, VirtualCall& message);

  std::deque<std::shared_ptr<VirtualCall>> open_; // calls whose end is not known yet, in order
  double last_end_ = 0;                           // end of the last call
  double last_departure_ = 0;                     // departure of the last message
};

} // namespace detail
} // namespace orthant::runtime

namespace orthant::runtime::detail {

struct KeptResult;

class Pending {
 public:
  Pending(Communicator const& comm, Call const& call, Mode mode)
      : comm_(comm),
        call_(call),
        mode_(mode),
        sequence_(comm.next_sequence()) {}
  Pending(Pending const&) = delete;
  Pending& operator=(Pending const&) = delete;

  void begin();
  void finish(std::source_location where);
  [[nodiscard]] bool test();
  /// Called if an error unwinds and nobody will wait: the operation continues without the caller's buffers.
  void abandon() noexcept {
    if (exchange_) exchange_->abandon();
  }

 private:
  [[nodiscard]] std::int64_t logical_bytes() const;
  void wait(std::source_location where);

  Communicator const& comm_;
  Call call_;
  Mode mode_;
  std::int64_t sequence_;
  bool is_done_ = false;
  Backend* backend_ = nullptr;
  std::unique_ptr<Exchange> exchange_;   // null: nothing to wait for
  std::shared_ptr<VirtualCall> virtual_; // null: the clock is real
  KeptResult* kept_ = nullptr;           // where a tape records the result
  double virtual_began_ = 0;
  std::chrono::steady_clock::time_point began_;
};

} // namespace orthant::runtime::detail
