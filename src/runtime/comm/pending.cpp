// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/pending.hpp"

#include "runtime/comm/backend.hpp"
#include "runtime/comm/call.hpp"
#include "runtime/comm/call_tape.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/encoded_exchange.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/formats.hpp"

#include <algorithm>
#include <utility>

namespace orthant::runtime::detail {
namespace {

double seconds_of(Communicator const& comm, Call const& call, std::int64_t bytes) {
  auto const sent = sent_bytes(call.operation, bytes, comm.rank(), comm.size());
  auto const ranks = comm.job_ranks();
  auto const& machine = *comm.instruments().clock.machine();
  if (call.operation != Operation::send && call.operation != Operation::receive)
    return machine.call_seconds({call.operation, comm.axis(), ranks, bytes, sent});
  auto const [first, second] = std::minmax({comm.rank(), call.peer});
  std::array const ends{ranks[static_cast<std::size_t>(first)], ranks[static_cast<std::size_t>(second)]};
  return call.operation == Operation::send
             ? machine.call_seconds({call.operation, comm.axis(), ends, bytes, sent})
             : 0;
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

/// The sender sends the receiver the arrival time of the message, before the message and with its tag.
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
  while (call.request_ != MPI_REQUEST_NULL) { // the ends of earlier calls are found first
    auto& first = *open_.front();
    first.wait();
    auto const [latest, seconds] = *first.numbers_;
    first.end_ = last_end_ = std::max(latest, last_end_) + seconds;
    open_.pop_front();
  }
  return call.end_;
}

namespace {

/// Tells the watchdog that this rank is in the collective, until the scope ends in any way.
class InCollective {
 public:
  InCollective(Communicator const& comm, Operation operation, std::int64_t sequence, std::int64_t bytes,
               std::source_location where)
      : position_(comm.instruments().position) {
    position_.enter(name_of(operation), comm.axis(), sequence, bytes, where);
  }
  InCollective(InCollective const&) = delete;
  InCollective& operator=(InCollective const&) = delete;
  ~InCollective() { position_.leave(); }

 private:
  Position& position_;
};

/// The first backend that can carry the call. The same on all ranks.
Backend& backend_of(Communicator const& comm, Call const& call, Mode mode) {
  auto const is_pair = call.operation == Operation::send || call.operation == Operation::receive;
  if (mode == Mode::blocking && !call.on_device && !is_pair) comm.prepare_shared_memory();
  for (auto const& backend : comm.backends(call.on_device))
    if (can_carry(*backend, call, mode)) return *backend;
  throw_internal(concatenate("nothing carries out ", name_of(call.operation), " on ", comm.axis()),
                 call.where);
}

} // namespace

std::int64_t Pending::logical_bytes() const {
  auto const& encoding = encoding_of(call_.wire);
  auto const bytes = [&](std::int64_t count) {
    return encoding.encoded_bytes(count, static_cast<std::int64_t>(size_of(call_.type)));
  };
  // Every part is encoded alone, so that its last block may be a short one.
  auto const bytes_of_parts = [&](std::span<std::int64_t const> counts, std::int64_t whole) {
    if (encoding.block_length() == 1) return bytes(whole);
    return counts.empty() ? comm_.size() * bytes(whole / comm_.size()) : encoding.encoded_bytes(counts);
  };
  switch (call_.operation) {
  case Operation::all_reduce: // cut at multiples of blocks
  case Operation::exclusive_scan:
  case Operation::broadcast:
    return bytes(call_.receive_count);
  case Operation::all_gather:
    return bytes_of_parts(call_.receive_counts, call_.receive_count);
  case Operation::reduce_scatter:
    return bytes_of_parts(call_.send_counts, call_.send_count);
  case Operation::send:
    return bytes(call_.send_count);
  case Operation::all_to_all: {
    auto const own = call_.send_counts.empty() ? call_.send_count / comm_.size()
                                               : call_.send_counts[static_cast<std::size_t>(comm_.rank())];
    return bytes_of_parts(call_.send_counts, call_.send_count) - bytes(own);
  }
  case Operation::receive:
  case Operation::barrier:
    return 0;
  }
  return 0;
}

void Pending::begin() {
  auto const bytes = logical_bytes();
  if (auto* const tape = comm_.instruments().tape) kept_ = tape->record(comm_, call_);
  auto& clock = comm_.instruments().clock;
  comm_.ledger().add(call_.operation, bytes, sent_bytes(call_.operation, bytes, comm_.rank(), comm_.size()));
  RunClock::Paused const paused(clock);
  began_ = clock.now();
  InCollective const waiting(comm_, call_.operation, sequence_, bytes, call_.where);
  if (clock.machine() != nullptr) {
    virtual_began_ = clock.virtual_seconds();
    virtual_ = comm_.virtual_calls().begin(comm_, call_, bytes);
  }
  backend_ = &backend_of(comm_, call_, mode_);
  exchange_ = begin_on(*backend_, comm_, call_, mode_);
  is_done_ = backend_->is_ordered_by_stream(); // then the host need not wait
  if (auto const progress = backend_->progress(); progress && mode_ == Mode::asynchronous)
    progress->advance();
  comm_.ledger().add_seconds(call_.operation, std::chrono::duration<double>(clock.now() - began_).count());
}

void Pending::finish(std::source_location where) {
  if (!is_done_) wait(where);
  if (auto* const kept = std::exchange(kept_, nullptr)) kept->take(comm_.instruments().passes, call_);
}

void Pending::wait(std::source_location where) {
  auto& instruments = comm_.instruments();
  RunClock::Paused const paused(instruments.clock);
  auto const entered = instruments.clock.now();
  auto const bytes = logical_bytes();
  InCollective const waiting(comm_, call_.operation, sequence_, bytes, where);
  if (exchange_) {
    // Another rank may wait for a sum for which this rank waits later.
    if (auto const progress = backend_->progress(); progress && progress->is_needed())
      while (!exchange_->test())
        progress->advance();
    exchange_->finish();
  }
  is_done_ = true;
  if (virtual_) {
    auto const end = comm_.virtual_calls().end_of(*virtual_);
    // The sender's clock has the time of the transfer, so a receiver that comes later than the message does not wait for it.
    if (call_.operation == Operation::receive)
      instruments.clock.advance_to(end);
    else
      instruments.clock.wait_for_call(virtual_began_, end);
  }
  auto const now = instruments.clock.now();
  comm_.ledger().add_seconds(call_.operation, std::chrono::duration<double>(now - entered).count());
  if (instruments.trace.is_on())
    instruments.trace.add(name_of(call_.operation), comm_.axis(), began_, now, bytes);
}

bool Pending::test() {
  if (is_done_ || !exchange_) return true;
  RunClock::Paused const paused(comm_.instruments().clock);
  if (auto const progress = backend_->progress()) progress->advance();
  return exchange_->test();
}

} // namespace orthant::runtime::detail
