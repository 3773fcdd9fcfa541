// SPDX-License-Identifier: Apache-2.0
#include "runtime/backends/mpi_exchange.hpp"

#include "runtime/error.hpp"

#include <cmath>
#include <cstring>
#include <utility>

namespace orthant::runtime::detail {
namespace {

MPI_Datatype mpi_type(DataType type) {
  switch (type) {
  case DataType::float32:
    return MPI_FLOAT;
  case DataType::float64:
    return MPI_DOUBLE;
  case DataType::int32:
    return MPI_INT32_T;
  case DataType::int64:
    return MPI_INT64_T;
  case DataType::byte:
    return MPI_BYTE;
  case DataType::float32_index:
  case DataType::float64_index:
    break;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_op(Reduction reduction) {
  switch (reduction) {
  case Reduction::sum:
    return MPI_SUM;
  case Reduction::max:
    return MPI_MAX;
  case Reduction::min:
    return MPI_MIN;
  }
  return MPI_OP_NULL;
}

/// best := the larger of (candidate, best); of equal values, the one with the smaller index. A NaN counts as smaller than every value.
template<class T>
void take_larger(void* candidates, void* best, int* count, MPI_Datatype*) {
  auto const* from = static_cast<ValueIndex<T> const*>(candidates);
  auto* into = static_cast<ValueIndex<T>*>(best);
  for (int i = 0; i < *count; ++i) {
    auto const challenger_wins = [&] {
      if (std::isnan(from[i].value) != std::isnan(into[i].value)) return std::isnan(into[i].value);
      if (from[i].value > into[i].value) return true;
      return !(from[i].value < into[i].value) && from[i].index < into[i].index;
    }();
    if (challenger_wins) into[i] = from[i];
  }
}

/// The MPI type and operation of an arg-max for one blocking call.
class ArgMax {
 public:
  explicit ArgMax(DataType type) {
    ORTHANT_MPI(MPI_Type_contiguous(static_cast<int>(size_of(type)), MPI_BYTE, &type_));
    ORTHANT_MPI(MPI_Type_commit(&type_));
    ORTHANT_MPI(
        MPI_Op_create(type == DataType::float32_index ? &take_larger<float> : &take_larger<double>, 1, &op_));
  }
  ArgMax(ArgMax const&) = delete;
  ArgMax& operator=(ArgMax const&) = delete;
  ~ArgMax() {
    MPI_Op_free(&op_);
    MPI_Type_free(&type_);
  }
  [[nodiscard]] MPI_Datatype type() const { return type_; }
  [[nodiscard]] MPI_Op op() const { return op_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MPI_Op op_ = MPI_OP_NULL;
};

/// Part of a send buffer, in elements.
struct Part {
  std::int64_t begin;
  std::int64_t count;
};

} // namespace

MpiExchange::~MpiExchange() {
  // Requests are open here only while an error unwinds: the job is ending, and waiting could hang it.
  comm_.give_back(std::move(scratch_));
}

MPI_Request* MpiExchange::next_request() {
  return &requests_.emplace_back(MPI_REQUEST_NULL);
}

int* MpiExchange::lend_ints(std::size_t count) {
  scratch_ = comm_.lend_scratch(count * sizeof(int));
  return reinterpret_cast<int*>(scratch_.data());
}

void MpiExchange::copy(Call const& call, void* into, void const* from, std::int64_t count) const {
  if (count == 0) return;
  auto const num_bytes = static_cast<std::size_t>(count) * element_bytes_;
  if (!call.on_device) {
    std::memmove(into, from, num_bytes);
    return;
  }
  call.stream.copy(into, from, num_bytes, CopyDirection::within_device);
  call.stream.fence("orthant::runtime::collectives/before MPI reads this rank's own part");
}

void MpiExchange::begin(Call const& call) {
  type_ = mpi_type(call.type);
  element_bytes_ = size_of(call.type);
  switch (call.operation) {
  case Operation::all_reduce:
    return all_reduce(call);
  case Operation::exclusive_scan:
    return exclusive_scan(call);
  case Operation::broadcast:
    return broadcast(call.receive, call.receive_count, call.peer);
  case Operation::all_gather:
    return all_gather(call);
  case Operation::reduce_scatter:
    return reduce_scatter(call);
  case Operation::all_to_all:
    return all_to_all(call);
  case Operation::send:
  case Operation::receive:
    return point_to_point(call);
  case Operation::barrier:
    ORTHANT_MPI(MPI_Barrier(comm_.mpi()));
    return;
  }
}

void MpiExchange::finish() {
  if (requests_.empty()) return;
  ORTHANT_MPI(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE));
  requests_.clear();
}

bool MpiExchange::test() {
  if (requests_.empty()) return true;
  int is_complete = 0;
  ORTHANT_MPI(
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &is_complete, MPI_STATUSES_IGNORE));
  return is_complete != 0;
}

void MpiExchange::all_reduce(Call const& call) {
  auto const limit = comm_.chunk_limit();
  if (type_ == MPI_DATATYPE_NULL) {
    ArgMax const arg_max(call.type);
    for_each_chunk(call.receive_count, limit, [&](std::int64_t offset, int length) {
      ORTHANT_MPI(MPI_Allreduce(MPI_IN_PLACE, at(call.receive, offset), length, arg_max.type(), arg_max.op(),
                                comm_.mpi()));
    });
    return;
  }
  auto const op = mpi_op(call.reduction);
  for_each_chunk(call.receive_count, limit, [&](std::int64_t offset, int length) {
    auto* const data = at(call.receive, offset);
    if (is_blocking())
      ORTHANT_MPI(MPI_Allreduce(MPI_IN_PLACE, data, length, type_, op, comm_.mpi()));
    else
      ORTHANT_MPI(MPI_Iallreduce(MPI_IN_PLACE, data, length, type_, op, comm_.mpi(), next_request()));
  });
}

void MpiExchange::exclusive_scan(Call const& call) {
  for_each_chunk(call.receive_count, comm_.chunk_limit(), [&](std::int64_t offset, int length) {
    auto* const data = at(call.receive, offset);
    ORTHANT_MPI(MPI_Exscan(MPI_IN_PLACE, data, length, type_, mpi_op(call.reduction), comm_.mpi()));
    // MPI_Exscan leaves the result of the first rank undefined.
    if (comm_.rank() == 0) std::memset(data, 0, static_cast<std::size_t>(length) * element_bytes_);
  });
}

void MpiExchange::broadcast(void* data, std::int64_t count, int root) {
  for_each_chunk(count, comm_.chunk_limit(), [&](std::int64_t offset, int length) {
    if (is_blocking())
      ORTHANT_MPI(MPI_Bcast(at(data, offset), length, type_, root, comm_.mpi()));
    else
      ORTHANT_MPI(MPI_Ibcast(at(data, offset), length, type_, root, comm_.mpi(), next_request()));
  });
}

void MpiExchange::all_gather(Call const& call) {
  if (call.tag > 0) // matched by tag, because ranks may begin in different orders
    return exchange_parts(call, first_gather_tag + call.tag, [&](int) { return Part{0, call.send_count}; });
  auto const size = comm_.size();
  auto const part = [&](int r) {
    return call.receive_counts.empty() ? call.send_count : call.receive_counts[static_cast<std::size_t>(r)];
  };
  auto own_offset = std::int64_t{0};
  for (int r = 0; r < comm_.rank(); ++r)
    own_offset += part(r);
  auto const is_in_place = call.send == at(call.receive, own_offset);

  if (call.receive_count > comm_.chunk_limit()) { // one broadcast per rank, cut into chunks
    if (!is_in_place) copy(call, at(call.receive, own_offset), call.send, call.send_count);
    auto offset = std::int64_t{0};
    for (int r = 0; r < size; ++r) {
      broadcast(at(call.receive, offset), part(r), r);
      offset += part(r);
    }
    return;
  }

  auto const* send = is_in_place ? MPI_IN_PLACE : call.send;
  auto const send_count = static_cast<int>(call.send_count);
  if (call.receive_counts.empty()) {
    if (is_blocking())
      ORTHANT_MPI(MPI_Allgather(send, send_count, type_, call.receive, send_count, type_, comm_.mpi()));
    else
      ORTHANT_MPI(MPI_Iallgather(send, send_count, type_, call.receive, send_count, type_, comm_.mpi(),
                                 next_request()));
    return;
  }
  auto* const counts = lend_ints(static_cast<std::size_t>(size) * 2);
  auto* const offsets = counts + size;
  for (int r = 0, offset = 0; r < size; ++r) {
    counts[r] = static_cast<int>(part(r));
    offsets[r] = offset;
    offset += counts[r];
  }
  if (is_blocking())
    ORTHANT_MPI(MPI_Allgatherv(send, send_count, type_, call.receive, counts, offsets, type_, comm_.mpi()));
  else
    ORTHANT_MPI(MPI_Iallgatherv(send, send_count, type_, call.receive, counts, offsets, type_, comm_.mpi(),
                                next_request()));
}

void MpiExchange::reduce_scatter(Call const& call) {
  auto const size = comm_.size();
  auto const op = mpi_op(call.reduction);
  auto const part = [&](int r) {
    return call.send_counts.empty() ? call.receive_count : call.send_counts[static_cast<std::size_t>(r)];
  };

  if (call.send_count > comm_.chunk_limit()) { // one reduction per rank, cut into chunks
    auto begin = std::int64_t{0};
    for (int r = 0; r < size; ++r) {
      for_each_chunk(part(r), comm_.chunk_limit(), [&](std::int64_t offset, int length) {
        auto const* const from = at(call.send, begin + offset);
        auto* const into = comm_.rank() == r ? at(call.receive, offset) : nullptr;
        if (is_blocking())
          ORTHANT_MPI(MPI_Reduce(from, into, length, type_, op, r, comm_.mpi()));
        else
          ORTHANT_MPI(MPI_Ireduce(from, into, length, type_, op, r, comm_.mpi(), next_request()));
      });
      begin += part(r);
    }
    return;
  }

  if (call.send_counts.empty()) {
    auto const count = static_cast<int>(call.receive_count);
    if (is_blocking())
      ORTHANT_MPI(MPI_Reduce_scatter_block(call.send, call.receive, count, type_, op, comm_.mpi()));
    else
      ORTHANT_MPI(
          MPI_Ireduce_scatter_block(call.send, call.receive, count, type_, op, comm_.mpi(), next_request()));
    return;
  }
  auto* const counts = lend_ints(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r)
    counts[r] = static_cast<int>(part(r));
  if (is_blocking())
    ORTHANT_MPI(MPI_Reduce_scatter(call.send, call.receive, counts, type_, op, comm_.mpi()));
  else
    ORTHANT_MPI(MPI_Ireduce_scatter(call.send, call.receive, counts, type_, op, comm_.mpi(), next_request()));
}

void MpiExchange::all_to_all(Call const& call) {
  // If counts are given, totals differ between ranks. Then only the two ranks of a pair know into which pieces their message is cut.
  if (!call.send_counts.empty() || call.send_count > comm_.chunk_limit()) return pairwise(call);
  auto const count = static_cast<int>(call.send_count / comm_.size());
  if (is_blocking())
    ORTHANT_MPI(MPI_Alltoall(call.send, count, type_, call.receive, count, type_, comm_.mpi()));
  else
    ORTHANT_MPI(
        MPI_Ialltoall(call.send, count, type_, call.receive, count, type_, comm_.mpi(), next_request()));
}

void MpiExchange::pairwise(Call const& call) {
  std::int64_t offset = 0;
  exchange_parts(call, pairwise_tag, [&](int r) {
    auto const count = call.send_counts.empty() ? call.send_count / comm_.size()
                                                : call.send_counts[static_cast<std::size_t>(r)];
    return Part{std::exchange(offset, offset + count), count};
  });
}

/// Calls send_part(r) once per rank in order and sends the result to rank r; part r of the receive buffer comes from rank r.
template<class SendPart>
void MpiExchange::exchange_parts(Call const& call, int tag, SendPart&& send_part) {
  auto const size = comm_.size();
  auto const limit = comm_.chunk_limit();
  std::int64_t own_offset = 0;
  for (std::int64_t r = 0, begin = 0; r < size; ++r) {
    auto const count = call.receive_counts.empty() ? call.receive_count / size
                                                   : call.receive_counts[static_cast<std::size_t>(r)];
    if (r == comm_.rank())
      own_offset = begin;
    else
      for_each_chunk(count, limit, [&](std::int64_t offset, int length) {
        ORTHANT_MPI(MPI_Irecv(at(call.receive, begin + offset), length, type_, static_cast<int>(r), tag,
                              comm_.mpi(), next_request()));
      });
    begin += count;
  }
  for (int r = 0; r < size; ++r) {
    auto const part = send_part(r);
    if (r == comm_.rank())
      copy(call, at(call.receive, own_offset), at(call.send, part.begin), part.count);
    else
      for_each_chunk(part.count, limit, [&](std::int64_t offset, int length) {
        ORTHANT_MPI(MPI_Isend(at(call.send, part.begin + offset), length, type_, r, tag, comm_.mpi(),
                              next_request()));
      });
  }
  if (is_blocking()) finish();
}

void MpiExchange::point_to_point(Call const& call) {
  auto const is_send = call.operation == Operation::send;
  for_each_chunk(call.send_count, comm_.chunk_limit(), [&](std::int64_t offset, int length) {
    if (is_send && is_blocking())
      ORTHANT_MPI(MPI_Send(at(call.send, offset), length, type_, call.peer, call.tag, comm_.mpi()));
    else if (is_send)
      ORTHANT_MPI(
          MPI_Isend(at(call.send, offset), length, type_, call.peer, call.tag, comm_.mpi(), next_request()));
    else if (is_blocking())
      ORTHANT_MPI(MPI_Recv(at(call.receive, offset), length, type_, call.peer, call.tag, comm_.mpi(),
                           MPI_STATUS_IGNORE));
    else
      ORTHANT_MPI(MPI_Irecv(at(call.receive, offset), length, type_, call.peer, call.tag, comm_.mpi(),
                            next_request()));
  });
}

} // namespace orthant::runtime::detail
