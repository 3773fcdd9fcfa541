#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// When the calls of a communicator end on an emulated machine (observe/run_clock.hpp). Its calls follow one another, as
// on a stream:
//
//   end_k = max(end_{k-1}, latest clock among the ranks that begin call k)  +  most seconds that call k takes on a rank
//
// A message ends for its sender when it has left, one after the other, and for its receiver at the same time, or when that one asks for it. The clocks
// travel beside the numbers, in exchanges that are never waited for before the call itself is.

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mpi.h>

namespace orthant::runtime {
class Communicator;
namespace detail {

struct Call;

/// One call or message under way.
class VirtualCall {
 public:
  VirtualCall(double clock, double seconds) : numbers_(std::make_unique<Numbers>(Numbers{clock, seconds})) {}
  VirtualCall(VirtualCall const&) = delete;
  VirtualCall& operator=(VirtualCall const&) = delete;
  ~VirtualCall();

 private:
  friend class VirtualCalls;
  using Numbers = std::array<double, 2>; // clock and seconds: this rank's, then the largest over ranks

  void wait();

  std::unique_ptr<Numbers> numbers_; // MPI's until the request is over
  MPI_Request request_ = MPI_REQUEST_NULL;
  double end_ = 0;
  bool is_message_ = false;
};

/// Of one communicator, on one rank.
class VirtualCalls {
 public:
  /// Of a call that this rank begins now, in the order in which the ranks of the group begin theirs. Before the call's own messages
  /// are sent. `bytes`: those that the ledger counts.
  [[nodiscard]] std::shared_ptr<VirtualCall> begin(Communicator const& comm, Call const& call,
                                                   std::int64_t bytes);
  /// When it ends. Waits for the clocks of those that take part.
  [[nodiscard]] double end_of(VirtualCall& call);

 private:
  void begin_message(Communicator const& comm, Call const& call, VirtualCall& message);

  std::deque<std::shared_ptr<VirtualCall>> open_; // calls without an end, in their order
  double last_end_ = 0;                           // of a call
  double last_departure_ = 0;                     // of a message
};

} // namespace detail
} // namespace orthant::runtime
