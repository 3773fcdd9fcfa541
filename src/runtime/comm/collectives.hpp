#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Collective operations on one process group. Names are NCCL's in snake_case. Rules for all operations:
//
// Order: `stream` is `host`, or any Kokkos execution space (runtime/arrays/views.hpp). The operation is ordered with it, and device buffers
// are complete when the stream reaches that point. Host buffers are complete on return. Every rank of the group must call the same
// operations in the same order. The `start_` forms return a request: the buffers must stay valid until its `wait()`.
//
// Buffers are contiguous (std::span, std::vector, Kokkos::View) and hold float, double, int32, int64 or std::byte (which has no sum). Type
// and length are the same on all ranks unless counts are given. A group of one only copies, and counts nothing. All functions throw Error
// if MPI or NCCL reports one.
//
// Bytes counted: see ledger.hpp. `Wire::bf16`/`fp16` send 16 bits per number (docs/design.md, section 6), for sums of floats only: each
// addend is rounded once, the sum is computed in fp32 in rank order, and the result is rounded once. All ranks get the same bits.

#include "runtime/comm/call.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <type_traits>

namespace orthant::runtime {

namespace detail {

template<class T>
constexpr DataType data_type_of() {
  if constexpr (std::is_same_v<T, float>)
    return DataType::float32;
  else if constexpr (std::is_same_v<T, double>)
    return DataType::float64;
  else if constexpr (std::is_same_v<T, std::byte>)
    return DataType::byte;
  else if constexpr (std::is_same_v<T, ValueIndex<float>>)
    return DataType::float32_index;
  else if constexpr (std::is_same_v<T, ValueIndex<double>>)
    return DataType::float64_index;
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 4)
    return DataType::int32;
  else {
    static_assert(std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 8,
                  "collectives carry float, double, int32, int64, bytes and ValueIndex");
    return DataType::int64;
  }
}

/// Specialized in views.hpp for Kokkos Views in device memory.
template<class Buffer>
inline constexpr bool is_device_buffer = false;

template<class Buffer>
using element_of = std::remove_pointer_t<decltype(std::declval<Buffer&>().data())>;

template<class Buffer>
Call make_call(Stream const& stream, Operation operation, Buffer const& buffer, std::source_location where) {
  Call call;
  call.operation = operation;
  call.type = data_type_of<std::remove_const_t<element_of<Buffer>>>();
  call.on_device = is_device_buffer<Buffer>;
  call.stream = stream;
  call.where = where;
  if constexpr (requires { buffer.span_is_contiguous(); }) ORTHANT_REQUIRE(buffer.span_is_contiguous());
  return call;
}

template<class Buffer>
std::int64_t count_of(Buffer const& buffer) {
  return static_cast<std::int64_t>(buffer.size());
}

/// Pointer to a buffer that is passed as const& or as a temporary; a const span or View of mutable data is still mutable data.
template<class Buffer>
void* data_of(Buffer&& buffer) {
  static_assert(!std::is_const_v<std::remove_pointer_t<decltype(buffer.data())>>,
                "the result needs a mutable buffer");
  return buffer.data();
}

void run(Communicator const& comm, Call const& call);

class Pending;
} // namespace detail

/// An operation in progress. A group may have many, and every rank may wait for them in any order. At most 512 operations of a group may be
/// open.
/// 16-bit sums, and calls by lists of rounds (comm/rounds.hpp), advance whenever such a request of this group, or of a group related by split,
/// is started, tested or waited for. They do not advance inside blocking calls.
/// The communicator must not move until the wait. Call wait(); otherwise the destructor waits, and an error in it terminates the job.
class [[nodiscard]] Request {
 public:
  Request() noexcept;
  explicit Request(std::unique_ptr<detail::Pending> pending) noexcept;
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;
  ~Request();

  /// Completes the operation: host buffers are then readable, and device buffers are ordered with the stream. Further calls do nothing.
  void wait(std::source_location where = std::source_location::current());
  /// True if the operation is complete. Makes progress and never blocks.
  [[nodiscard]] bool test();

 private:
  void complete_or_abandon() noexcept;
  std::unique_ptr<detail::Pending> pending_;
};

namespace detail {
[[nodiscard]] Request start(Communicator const& comm, Call const& call);

template<class Buffer>
Call all_reduce_call(Stream const& stream, Buffer&& data, Reduction reduction, Wire wire,
                     std::source_location where) {
  auto call = make_call(stream, Operation::all_reduce, data, where);
  call.reduction = reduction;
  call.wire = wire;
  call.receive = data_of(data);
  call.send_count = call.receive_count = count_of(data);
  return call;
}

template<class In, class Out>
Call exchange_call(Stream const& stream, Operation operation, In const& in, Out&& out, Wire wire,
                   std::source_location where) {
  static_assert(std::is_same_v<std::remove_const_t<element_of<In>>, element_of<std::remove_reference_t<Out>>>,
                "both buffers must hold one type");
  auto call = make_call(stream, operation, out, where);
  call.wire = wire;
  call.send = in.data();
  call.send_count = count_of(in);
  call.receive = data_of(out);
  call.receive_count = count_of(out);
  return call;
}

template<class Buffer>
Call one_buffer_call(Stream const& stream, Operation operation, Buffer const& data, int peer, int tag,
                     Wire wire, std::source_location where) {
  auto call = make_call(stream, operation, data, where);
  call.wire = wire;
  call.peer = peer;
  call.tag = tag;
  call.send_count = call.receive_count = count_of(data);
  if (operation == Operation::send)
    call.send = data.data();
  else
    call.receive = const_cast<std::remove_const_t<element_of<Buffer>>*>(data.data());
  return call;
}
} // namespace detail

/// True if MPI accesses device memory directly, as MPI itself reports. Otherwise device buffers are staged through host memory.
[[nodiscard]] bool mpi_is_device_aware();

using Here = std::source_location;
using Counts = std::span<std::int64_t const>;

/// data := reduction over ranks of data, in place, on every rank.
template<class Buffer>
void all_reduce(Stream const& stream, Communicator const& comm, Buffer&& data,
                Reduction reduction = Reduction::sum, Wire wire = Wire::native,
                Here where = Here::current()) {
  detail::run(comm, detail::all_reduce_call(stream, data, reduction, wire, where));
}
template<class Buffer>
Request start_all_reduce(Stream const& stream, Communicator const& comm, Buffer&& data,
                         Reduction reduction = Reduction::sum, Wire wire = Wire::native,
                         Here where = Here::current()) {
  return detail::start(comm, detail::all_reduce_call(stream, data, reduction, wire, where));
}

/// The same sum of floats with error feedback: what the wire has lost in earlier calls is added to `data` first, and `residuals` (as long as
/// `data`, in the same memory, 0 before the first call) keeps what it loses in this call. Over the ranks:
///
///   data + sum_r residuals_r (after)  =  sum_r data_r + sum_r residuals_r (before)        up to rounding in fp32
///
/// Leaves `residuals` unchanged in a group of one. Source: 1-bit SGD (Seide et al., Interspeech 2014, section 2).
template<class Buffer, class Residuals>
void all_reduce_with_feedback(Stream const& stream, Communicator const& comm, Buffer&& data,
                              Residuals&& residuals, Wire wire, Here where = Here::current()) {
  auto call = detail::all_reduce_call(stream, data, Reduction::sum, wire, where);
  call.residuals = residuals.data();
  detail::run(comm, call);
}
/// `residuals` must stay valid until wait().
template<class Buffer, class Residuals>
Request start_all_reduce_with_feedback(Stream const& stream, Communicator const& comm, Buffer&& data,
                                       Residuals&& residuals, Wire wire, Here where = Here::current()) {
  auto call = detail::all_reduce_call(stream, data, Reduction::sum, wire, where);
  call.residuals = residuals.data();
  return detail::start(comm, call);
}

/// data[i] := the pair with the largest value over the ranks; of equal values, the one with the smallest index. NaN never wins.
template<class Buffer>
void all_reduce_arg_max(Stream const& stream, Communicator const& comm, Buffer&& data,
                        Here where = Here::current()) {
  static_assert(
      requires(detail::element_of<std::remove_reference_t<Buffer>> x) { x.index; }, "a buffer of ValueIndex");
  detail::run(comm, detail::all_reduce_call(stream, data, Reduction::max, Wire::native, where));
}

/// out := the concatenation of the ranks' `in`. out.size() == size * in.size(), or the sum of `counts` (elements per rank, equal on all
/// ranks; counts[rank] == in.size()). `in` may be this rank's own part of `out`, on every rank or on none.
template<class In, class Out>
void all_gather(Stream const& stream, Communicator const& comm, In const& in, Out&& out,
                Wire wire = Wire::native, Here where = Here::current()) {
  detail::run(comm, detail::exchange_call(stream, Operation::all_gather, in, out, wire, where));
}
template<class In, class Out>
Request start_all_gather(Stream const& stream, Communicator const& comm, In const& in, Out&& out,
                         Wire wire = Wire::native, Here where = Here::current()) {
  return detail::start(comm, detail::exchange_call(stream, Operation::all_gather, in, out, wire, where));
}
template<class In, class Out>
void all_gatherv(Stream const& stream, Communicator const& comm, In const& in, Out&& out, Counts counts,
                 Wire wire = Wire::native, Here where = Here::current()) {
  auto call = detail::exchange_call(stream, Operation::all_gather, in, out, wire, where);
  call.receive_counts = counts;
  detail::run(comm, call);
}
/// `counts` must stay valid until wait().
template<class In, class Out>
Request start_all_gatherv(Stream const& stream, Communicator const& comm, In const& in, Out&& out,
                          Counts counts, Wire wire = Wire::native, Here where = Here::current()) {
  auto call = detail::exchange_call(stream, Operation::all_gather, in, out, wire, where);
  call.receive_counts = counts;
  return detail::start(comm, call);
}

/// out := this rank's part of the reduction of `in` over the ranks. in.size() == size * out.size(), or the sum of `counts` (elements per
/// rank, equal on all ranks; counts[rank] == out.size()). `in` and `out` must not overlap; `in` is not changed.
template<class In, class Out>
void reduce_scatter(Stream const& stream, Communicator const& comm, In const& in, Out&& out,
                    Reduction reduction = Reduction::sum, Wire wire = Wire::native,
                    Here where = Here::current()) {
  auto call = detail::exchange_call(stream, Operation::reduce_scatter, in, out, wire, where);
  call.reduction = reduction;
  detail::run(comm, call);
}
template<class In, class Out>
Request start_reduce_scatter(Stream const& stream, Communicator const& comm, In const& in, Out&& out,
                             Reduction reduction = Reduction::sum, Wire wire = Wire::native,
                             Here where = Here::current()) {
  auto call = detail::exchange_call(stream, Operation::reduce_scatter, in, out, wire, where);
  call.reduction = reduction;
  return detail::start(comm, call);
}
template<class In, class Out>
void reduce_scatterv(Stream const& stream, Communicator const& comm, In const& in, Out&& out, Counts counts,
                     Reduction reduction = Reduction::sum, Wire wire = Wire::native,
                     Here where = Here::current()) {
  auto call = detail::exchange_call(stream, Operation::reduce_scatter, in, out, wire, where);
  call.reduction = reduction;
  call.send_counts = counts;
  detail::run(comm, call);
}
/// `counts` must stay valid until wait().
template<class In, class Out>
Request start_reduce_scatterv(Stream const& stream, Communicator const& comm, In const& in, Out&& out,
                              Counts counts, Reduction reduction = Reduction::sum, Wire wire = Wire::native,
                              Here where = Here::current()) {
  auto call = detail::exchange_call(stream, Operation::reduce_scatter, in, out, wire, where);
  call.reduction = reduction;
  call.send_counts = counts;
  return detail::start(comm, call);
}

/// data := the elementwise sum of data over all lower ranks, in place; 0 on rank 0. Host buffers only. It gives a rank the position of its
/// items after those of lower ranks, without a list of all ranks' counts.
template<class Buffer>
void exclusive_scan(Communicator const& comm, Buffer&& data, Here where = Here::current()) {
  static_assert(!detail::is_device_buffer<std::remove_cvref_t<Buffer>>, "host buffers only");
  auto call = detail::all_reduce_call(host, data, Reduction::sum, Wire::native, where);
  call.operation = Operation::exclusive_scan;
  detail::run(comm, call);
}

/// data := root's data on every rank.
template<class Buffer>
void broadcast(Stream const& stream, Communicator const& comm, Buffer&& data, int root,
               Wire wire = Wire::native, Here where = Here::current()) {
  static_cast<void>(detail::data_of(data));
  detail::run(comm, detail::one_buffer_call(stream, Operation::broadcast, data, root, 0, wire, where));
}
template<class Buffer>
Request start_broadcast(Stream const& stream, Communicator const& comm, Buffer&& data, int root,
                        Wire wire = Wire::native, Here where = Here::current()) {
  static_cast<void>(detail::data_of(data));
  return detail::start(comm,
                       detail::one_buffer_call(stream, Operation::broadcast, data, root, 0, wire, where));
}

/// Part r of `in` goes to rank r; part r of `out` comes from rank r. All parts have in.size() / size elements.
template<class In, class Out>
void all_to_all(Stream const& stream, Communicator const& comm, In const& in, Out&& out,
                Wire wire = Wire::native, Here where = Here::current()) {
  detail::run(comm, detail::exchange_call(stream, Operation::all_to_all, in, out, wire, where));
}
template<class In, class Out>
Request start_all_to_all(Stream const& stream, Communicator const& comm, In const& in, Out&& out,
                         Wire wire = Wire::native, Here where = Here::current()) {
  return detail::start(comm, detail::exchange_call(stream, Operation::all_to_all, in, out, wire, where));
}
/// all_to_all with parts of any length, in rank order in both buffers: send_counts[r] elements go to rank r and receive_counts[r] come from
/// it.
/// On the native wire, a rank may set its send count to itself to 0 and its receive count to more: its part of `out` then stays unchanged.
template<class In, class Out>
void all_to_allv(Stream const& stream, Communicator const& comm, In const& in, Counts send_counts, Out&& out,
                 Counts receive_counts, Wire wire = Wire::native, Here where = Here::current()) {
  auto call = detail::exchange_call(stream, Operation::all_to_all, in, out, wire, where);
  call.send_counts = send_counts;
  call.receive_counts = receive_counts;
  detail::run(comm, call);
}
/// Both counts must stay valid until wait().
template<class In, class Out>
Request start_all_to_allv(Stream const& stream, Communicator const& comm, In const& in, Counts send_counts,
                          Out&& out, Counts receive_counts, Wire wire = Wire::native,
                          Here where = Here::current()) {
  auto call = detail::exchange_call(stream, Operation::all_to_all, in, out, wire, where);
  call.send_counts = send_counts;
  call.receive_counts = receive_counts;
  return detail::start(comm, call);
}

/// Point-to-point message between two ranks, matched by (group, ranks, tag), in order; tags are 0 to 32,000. Only the sender's ledger
/// counts bytes. send() may wait for the receiver, as MPI_Send may.
template<class Buffer>
void send(Stream const& stream, Communicator const& comm, Buffer const& data, int destination, int tag = 0,
          Here where = Here::current()) {
  detail::run(comm,
              detail::one_buffer_call(stream, Operation::send, data, destination, tag, Wire::native, where));
}
template<class Buffer>
Request start_send(Stream const& stream, Communicator const& comm, Buffer const& data, int destination,
                   int tag = 0, Here where = Here::current()) {
  return detail::start(
      comm, detail::one_buffer_call(stream, Operation::send, data, destination, tag, Wire::native, where));
}
template<class Buffer>
void receive(Stream const& stream, Communicator const& comm, Buffer&& data, int source, int tag = 0,
             Here where = Here::current()) {
  static_cast<void>(detail::data_of(data));
  detail::run(comm,
              detail::one_buffer_call(stream, Operation::receive, data, source, tag, Wire::native, where));
}
template<class Buffer>
Request start_receive(Stream const& stream, Communicator const& comm, Buffer&& data, int source, int tag = 0,
                      Here where = Here::current()) {
  static_cast<void>(detail::data_of(data));
  return detail::start(
      comm, detail::one_buffer_call(stream, Operation::receive, data, source, tag, Wire::native, where));
}

/// Returns when every rank of the group has called it. Waits for the device work on `stream` first.
void barrier(Stream const& stream, Communicator const& comm, Here where = Here::current());

/// The all-reduced value of one host scalar.
template<class T>
[[nodiscard]] T all_reduced(Communicator const& comm, T value, Reduction reduction = Reduction::sum,
                            Here where = Here::current()) {
  all_reduce(host, comm, std::span<T>(&value, 1), reduction, Wire::native, where);
  return value;
}

/// The sum of one host scalar over all lower ranks.
template<class T>
[[nodiscard]] T scanned(Communicator const& comm, T value, Here where = Here::current()) {
  exclusive_scan(comm, std::span<T>(&value, 1), where);
  return value;
}

} // namespace orthant::runtime
