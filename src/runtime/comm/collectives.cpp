// SPDX-License-Identifier: Apache-2.0
//
// Local checks before a rank communicates; groups of one rank; requests.
#include "runtime/comm/collectives.hpp"

#include "runtime/comm/call_tape.hpp"
#include "runtime/comm/pending.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>

namespace orthant::runtime {
namespace detail {
namespace {

/// Errors that a rank can find alone, before it communicates. The messages contain the operation and the caller's source location.
void check(Communicator const& comm, Call const& call) {
  auto const size = static_cast<std::int64_t>(comm.size());
  auto const rank = static_cast<std::size_t>(comm.rank());
  auto const require = [&](bool holds, auto const&... parts) {
    if (!holds) throw_internal(concatenate(name_of(call.operation), parts...), call.where);
  };
  auto const are_parts_of = [&](std::span<std::int64_t const> counts, std::int64_t whole) {
    return std::ssize(counts) == size && std::ranges::all_of(counts, [](auto count) { return count >= 0; }) &&
           sum_of(counts) == whole;
  };
  auto const parts_match = [&](std::span<std::int64_t const> counts, std::int64_t whole, std::int64_t part) {
    return counts.empty() ? whole == part * size : are_parts_of(counts, whole) && counts[rank] == part;
  };
  switch (call.operation) {
  case Operation::all_gather:
    require(parts_match(call.receive_counts, call.receive_count, call.send_count), " of ", call.send_count,
            " elements into ", call.receive_count, " on ", size, " ranks");
    break;
  case Operation::reduce_scatter:
    require(parts_match(call.send_counts, call.send_count, call.receive_count), " of ", call.send_count,
            " elements into ", call.receive_count, " on ", size, " ranks");
    break;
  case Operation::all_to_all:
    if (call.send_counts.empty() && call.receive_counts.empty())
      require(call.send_count == call.receive_count && call.send_count % size == 0, " of ", call.send_count,
              " elements into ", call.receive_count, " on ", size, " ranks");
    else
      require(are_parts_of(call.send_counts, call.send_count) &&
                  are_parts_of(call.receive_counts, call.receive_count) &&
                  (call.send_counts[rank] == call.receive_counts[rank] ||
                   (call.send_counts[rank] == 0 && call.wire == Wire::native)),
              ": the counts do not add up to the buffers");
    break;
  case Operation::send:
  case Operation::receive:
    require(call.peer != comm.rank(), ": a rank has no message for itself");
    require(call.tag >= 0 && call.tag <= max_user_tag, " with tag ", call.tag, "; the largest is ",
            max_user_tag);
    [[fallthrough]];
  case Operation::broadcast:
    require(call.peer >= 0 && call.peer < size, " with rank ", call.peer, " of ", size);
    break;
  case Operation::all_reduce:
  case Operation::exclusive_scan:
  case Operation::barrier:
    break;
  }
  if (call.wire != Wire::native) {
    auto const carries_wire = call.operation != Operation::send && call.operation != Operation::receive &&
                              call.operation != Operation::exclusive_scan;
    require(carries_wire && call.type == DataType::float32 && call.reduction == Reduction::sum,
            ": an encoded wire carries float and sums only");
  }
  require(call.residuals == nullptr || (call.operation == Operation::all_reduce && call.wire != Wire::native),
          ": error feedback is for an all_reduce on an encoded wire");
  require(call.type != DataType::byte || !(reduces(call) || call.operation == Operation::exclusive_scan),
          ": bytes have no sum");
  if (is_arg_max(call))
    require(call.operation == Operation::all_reduce && call.reduction == Reduction::max,
            ": pairs of value and index know the arg-max only");
}

/// For a group of one rank: the result is the input; an exclusive scan gives 0.
void copy_locally(Call const& call) {
  if (call.operation == Operation::exclusive_scan && call.receive_count > 0)
    std::memset(call.receive, 0, static_cast<std::size_t>(call.receive_count) * size_of(call.type));
  if (call.send == nullptr || call.send == call.receive || call.receive == nullptr || call.send_count == 0)
    return;
  auto const num_bytes = static_cast<std::size_t>(call.send_count) * size_of(call.type);
  if (call.on_device)
    call.stream.copy(call.receive, call.send, num_bytes, CopyDirection::within_device);
  else
    std::memmove(call.receive, call.send, num_bytes);
}

/// True if the result was recorded on a tape and has been copied from it.
bool is_replayed(Communicator const& comm, Call const& call) {
  auto* const tape = comm.instruments().tape;
  return tape != nullptr && tape->replay(comm, call);
}

} // namespace

void run(Communicator const& comm, Call const& call) {
  check(comm, call);
  if (comm.size() == 1) return copy_locally(call);
  if (is_replayed(comm, call)) return;
  Pending pending(comm, call, Mode::blocking);
  pending.begin();
  pending.finish(call.where);
}

Request start(Communicator const& comm, Call const& call) {
  check(comm, call);
  if (comm.size() == 1) {
    copy_locally(call);
    return {};
  }
  if (is_replayed(comm, call)) return {};
  auto pending = std::make_unique<Pending>(comm, call, Mode::asynchronous);
  pending->begin();
  return Request(std::move(pending));
}

} // namespace detail

Request::Request() noexcept = default;
Request::Request(std::unique_ptr<detail::Pending> pending) noexcept : pending_(std::move(pending)) {}
Request::Request(Request&&) noexcept = default;
Request& Request::operator=(Request&& other) noexcept {
  if (this != &other) {
    complete_or_abandon();
    pending_ = std::move(other.pending_);
  }
  return *this;
}
Request::~Request() {
  complete_or_abandon();
}

void Request::complete_or_abandon() noexcept {
  if (!pending_) return;
  if (std::uncaught_exceptions() == 0) return wait(); // an error here terminates: no caller can catch it
  // An error is unwinding and the job is ending; waiting could hang it. MPI may still write, so the buffers are not freed.
  pending_->abandon();
  static_cast<void>(pending_.release());
}

void Request::wait(std::source_location where) {
  if (!pending_) return;
  auto const pending = std::move(pending_); // so that the operation is over even if finish() throws
  pending->finish(where);
}

bool Request::test() {
  return !pending_ || pending_->test();
}

void barrier(Stream const& stream, Communicator const& comm, Here where) {
  stream.fence("orthant::runtime::barrier");
  detail::Call call;
  call.operation = Operation::barrier;
  call.where = where;
  detail::run(comm, call);
}

} // namespace orthant::runtime
