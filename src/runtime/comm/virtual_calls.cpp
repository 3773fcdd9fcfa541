// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/virtual_calls.hpp"

#include "runtime/comm/call.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/error.hpp"

#include <algorithm>

namespace orthant::runtime::detail {
namespace {

double seconds_of(Communicator const& comm, Call const& call, std::int64_t bytes) {
  auto const sent = sent_bytes(call.operation, bytes, comm.rank(), comm.size());
  auto const ranks = comm.job_ranks();
  auto const& machine = *comm.instruments().clock.machine();
  if (call.operation != Operation::send && call.operation != Operation::receive)
    return machine.call_seconds({call.operation, ranks, bytes, sent});
  auto const [first, second] = std::minmax({comm.rank(), call.peer});
  std::array const ends{ranks[static_cast<std::size_t>(first)], ranks[static_cast<std::size_t>(second)]};
  return call.operation == Operation::send ? machine.call_seconds({call.operation, ends, bytes, sent}) : 0;
}

} // namespace

VirtualCall::~VirtualCall() {
  // Only while an error unwinds: MPI may still write.
  if (request_ != MPI_REQUEST_NULL) static_cast<void>(numbers_.release());
}

void VirtualCall::wait() {
  ORTHANT_MPI(MPI_Wait(&request_, MPI_STATUS_IGNORE));
}

std::shared_ptr<VirtualCall> VirtualCalls::begin(Communicator const& comm, Call const& call,
                                                 std::int64_t bytes) {
  auto begun = std::make_shared<VirtualCall>(comm.instruments().clock.virtual_seconds(),
                                             seconds_of(comm, call, bytes));
  if (call.operation == Operation::send || call.operation == Operation::receive) {
    begin_message(comm, call, *begun);
    return begun;
  }
  auto& numbers = *begun->numbers_;
  ORTHANT_MPI(MPI_Iallreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(numbers.size()), MPI_DOUBLE,
                             MPI_MAX, comm.mpi(), &begun->request_));
  open_.push_back(begun);
  return begun;
}

/// The sender tells the receiver when the message arrives, ahead of the message and under its tag.
void VirtualCalls::begin_message(Communicator const& comm, Call const& call, VirtualCall& message) {
  message.is_message_ = true;
  auto& [clock, seconds] = *message.numbers_;
  if (call.operation == Operation::receive) {
    ORTHANT_MPI(MPI_Irecv(&clock, 1, MPI_DOUBLE, call.peer, call.tag, comm.mpi(), &message.request_));
    return;
  }
  clock = last_departure_ = std::max(clock, last_departure_) + seconds;
  ORTHANT_MPI(MPI_Isend(&clock, 1, MPI_DOUBLE, call.peer, call.tag, comm.mpi(), &message.request_));
}

double VirtualCalls::end_of(VirtualCall& call) {
  if (call.is_message_) {
    call.wait();
    return call.numbers_->front();
  }
  while (call.request_ != MPI_REQUEST_NULL) { // those before it have no end yet, either
    auto& first = *open_.front();
    first.wait();
    auto const [latest, seconds] = *first.numbers_;
    first.end_ = last_end_ = std::max(latest, last_end_) + seconds;
    open_.pop_front();
  }
  return call.end_;
}

} // namespace orthant::runtime::detail
