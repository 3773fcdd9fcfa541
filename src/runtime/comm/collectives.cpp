// SPDX-License-Identifier: Apache-2.0
//
// What every backend shares: checks, ledger, trace and watchdog records, the 16-bit wire.
#include "runtime/comm/collectives.hpp"

#include "runtime/comm/nccl_group.hpp"
#include "runtime/comm/pending.hpp"
#include "runtime/device/pinned_pool.hpp"
#include "runtime/numbers/encoding.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>

namespace orthant::runtime {
namespace detail {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t sum_of(std::span<std::int64_t const> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// What a rank can find wrong by itself, before it communicates. Errors name the operation and the caller's
/// place.
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
                  call.send_counts[rank] == call.receive_counts[rank],
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
            ": the 16-bit wire carries float and sums only");
  }
  if (call.type == DataType::float32_index || call.type == DataType::float64_index)
    require(call.operation == Operation::all_reduce && call.reduction == Reduction::max,
            ": pairs of value and index know the arg-max only");
}

/// For the watchdog: this rank is in the collective, until the scope is left, however that happens.
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

/// A group of one: the result is the input, and 0 before it.
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

template<class T>
std::span<float> floats(T* data, std::int64_t count) {
  return {static_cast<float*>(data), static_cast<std::size_t>(count)};
}
std::span<float const> floats(void const* data, std::int64_t count) {
  return {static_cast<float const*>(data), static_cast<std::size_t>(count)};
}

} // namespace

std::size_t size_of(DataType type) {
  switch (type) {
  case DataType::float32:
  case DataType::int32:
    return 4;
  case DataType::float64:
  case DataType::int64:
    return 8;
  case DataType::float32_index:
    return sizeof(ValueIndex<float>);
  case DataType::float64_index:
    return sizeof(ValueIndex<double>);
  }
  return 0;
}

Pending::Pending(Communicator const& comm, Call const& call, Mode mode)
    : comm_(comm),
      call_(call),
      host_(call),
      exchange_(comm, mode),
      mode_(mode),
      sequence_(comm.next_sequence()) {}

Pending::~Pending() {
  for (auto* buffer : {&halves_send_, &halves_receive_})
    comm_.give_back(std::move(*buffer));
  give_back_pinned(staged_send_);
  give_back_pinned(staged_receive_);
}

std::int64_t Pending::logical_bytes() const {
  auto const bytes = [&](std::int64_t count) {
    return encoding_of(call_.wire).encoded_bytes(count, static_cast<std::int64_t>(size_of(call_.type)));
  };
  switch (call_.operation) {
  case Operation::all_reduce:
  case Operation::exclusive_scan:
  case Operation::broadcast:
  case Operation::all_gather:
    return bytes(call_.receive_count);
  case Operation::reduce_scatter:
  case Operation::send:
    return bytes(call_.send_count);
  case Operation::all_to_all: {
    auto const own = call_.send_counts.empty() ? call_.send_count / comm_.size()
                                               : call_.send_counts[static_cast<std::size_t>(comm_.rank())];
    return bytes(call_.send_count - own);
  }
  case Operation::receive:
  case Operation::barrier:
    return 0;
  }
  return 0;
}

void Pending::begin() {
  auto const bytes = logical_bytes();
  comm_.ledger().add(call_.operation, bytes, sent_bytes(call_.operation, bytes, comm_.rank(), comm_.size()));
  began_ = Clock::now();
  InCollective const waiting(comm_, call_.operation, sequence_, bytes, call_.where);
  auto* const nccl = call_.on_device && can_enqueue(call_) ? comm_.nccl() : nullptr;
  if (nccl != nullptr) {
    enqueue(*nccl, call_);
    is_done = true; // as far as the host is concerned
  } else {
    if (call_.on_device) stage_to_host();
    if (call_.wire == Wire::native)
      exchange_.begin(host_);
    else
      begin_wire();
  }
  comm_.ledger().add_seconds(call_.operation, std::chrono::duration<double>(Clock::now() - began_).count());
}

void Pending::finish(std::source_location where) {
  if (is_done) return;
  auto const entered = Clock::now();
  auto& instruments = comm_.instruments();
  auto const bytes = logical_bytes();
  InCollective const waiting(comm_, call_.operation, sequence_, bytes, where);
  exchange_.finish();
  if (call_.wire != Wire::native) finish_wire();
  if (call_.on_device) stage_to_device();
  is_done = true;
  auto const now = Clock::now();
  comm_.ledger().add_seconds(call_.operation, std::chrono::duration<double>(now - entered).count());
  if (instruments.trace.is_on())
    instruments.trace.add(name_of(call_.operation), comm_.axis(), began_, now, bytes);
}

bool Pending::test() {
  return is_done || exchange_.test();
}

std::span<std::uint16_t> Pending::lend_halves(std::vector<std::byte>& buffer, std::int64_t count) {
  buffer = comm_.lend_scratch(static_cast<std::size_t>(count) * sizeof(std::uint16_t));
  return {reinterpret_cast<std::uint16_t*>(buffer.data()), static_cast<std::size_t>(count)};
}

// 16-bit wire. A sum is an exchange of addends (every rank receives all addends of its own part), an fp32 sum
// in rank order, one rounding, and for all_reduce a gather of the parts: all ranks, the owner included, end
// with the same bits.
void Pending::begin_wire() {
  auto const size = comm_.size();
  Call wire = host_;
  wire.wire = Wire::native;
  auto const* source = call_.send == nullptr ? host_.receive : host_.send;
  auto const num_send = call_.send == nullptr ? call_.receive_count : call_.send_count;

  auto const is_sum =
      call_.operation == Operation::all_reduce || call_.operation == Operation::reduce_scatter;
  if (is_sum) {
    parts_.resize(static_cast<std::size_t>(size) * 2);
    std::span const send_parts(parts_.data(), static_cast<std::size_t>(size));
    std::span const receive_parts(parts_.data() + size, static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      auto const part = static_cast<std::size_t>(r);
      if (call_.operation == Operation::all_reduce)
        send_parts[part] = num_send / size + (r < num_send % size ? 1 : 0);
      else
        send_parts[part] = call_.send_counts.empty() ? call_.receive_count : call_.send_counts[part];
    }
    std::ranges::fill(receive_parts, send_parts[static_cast<std::size_t>(comm_.rank())]);
    wire.operation = Operation::all_to_all;
    wire.send_counts = send_parts;
    wire.receive_counts = receive_parts;
    wire.receive_count = receive_parts[0] * size;
  }

  if (call_.operation == Operation::broadcast) {
    auto const halves = lend_halves(halves_receive_, call_.receive_count);
    if (comm_.rank() == call_.peer)
      encoding_of(call_.wire).encode(floats(source, num_send), std::as_writable_bytes(halves));
    wire.receive = halves.data();
    wire.send = nullptr;
  } else {
    auto const halves = lend_halves(halves_send_, num_send);
    encoding_of(call_.wire).encode(floats(source, num_send), std::as_writable_bytes(halves));
    wire.send = halves.data();
    wire.send_count = num_send;
    wire.receive = lend_halves(halves_receive_, wire.receive_count).data();
  }
  exchange_.begin(wire, MPI_UINT16_T);
}

void Pending::finish_wire() {
  if (call_.operation == Operation::all_reduce || call_.operation == Operation::reduce_scatter)
    return finish_wire_sum();
  std::span const halves(reinterpret_cast<std::uint16_t const*>(halves_receive_.data()),
                         static_cast<std::size_t>(call_.receive_count));
  encoding_of(call_.wire).decode(std::as_bytes(halves), floats(host_.receive, call_.receive_count));
}

void Pending::finish_wire_sum() {
  auto const size = static_cast<std::size_t>(comm_.size());
  auto const num_own = parts_[static_cast<std::size_t>(comm_.rank())];
  std::span const addends(reinterpret_cast<std::uint16_t const*>(halves_receive_.data()),
                          static_cast<std::size_t>(num_own) * size);
  std::span const sums(reinterpret_cast<std::uint16_t*>(halves_send_.data()),
                       static_cast<std::size_t>(num_own));
  auto const& encoding = encoding_of(call_.wire);
  // halves_send_ was sent in whole and is free again
  encoding.sum_in_order(std::as_bytes(addends), comm_.size(), std::as_writable_bytes(sums), num_own);
  if (call_.operation == Operation::reduce_scatter) {
    encoding.decode(std::as_bytes(sums), floats(host_.receive, call_.receive_count));
    return;
  }
  Call gather = host_;
  gather.operation = Operation::all_gather;
  gather.send = sums.data();
  gather.send_count = num_own;
  gather.receive_counts = {parts_.data(), size};
  auto halves_all = comm_.lend_scratch(static_cast<std::size_t>(call_.receive_count) * sizeof(std::uint16_t));
  gather.receive = halves_all.data();
  MpiExchange exchange(comm_, Mode::blocking);
  exchange.begin(gather, MPI_UINT16_T);
  encoding.decode(
      std::span(halves_all).first(static_cast<std::size_t>(encoding.encoded_bytes(call_.receive_count))),
      floats(host_.receive, call_.receive_count));
  comm_.give_back(std::move(halves_all));
}

void run(Communicator const& comm, Call const& call) {
  check(comm, call);
  if (comm.size() == 1) return copy_locally(call);
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
  if (std::uncaught_exceptions() == 0) return wait(); // an error here terminates, as there is nobody to tell
  // An error is unwinding and the job is ending; waiting could hang it. MPI may still write, so the buffers
  // stay.
  static_cast<void>(pending_.release());
}

void Request::wait(std::source_location where) {
  if (!pending_) return;
  auto const pending = std::move(pending_); // over, also where finish throws
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
