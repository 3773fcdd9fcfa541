// SPDX-License-Identifier: Apache-2.0
//
// The NCCL (RCCL) backend: operations on device buffers, enqueued on the caller's stream. NCCL's counts are 64-bit, so that nothing is cut
// into chunks. Operations that NCCL lacks (parts of unequal length, all_to_all) are groups of NCCL calls.
#include "runtime/comm/backend.hpp"
#include "runtime/device/device_runtime.hpp"
#include "runtime/error.hpp"
#include "runtime/unique_handle.hpp"
#if defined(ORTHANT_ENABLE_HIP)
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif

#include <algorithm>
#include <array>
#include <vector>

namespace orthant::runtime::detail {
namespace {

void check_nccl(ncclResult_t code, char const* call,
                std::source_location where = std::source_location::current()) {
  if (code != ncclSuccess)
    throw_internal(fmt::format("{} failed: {}", call, ncclGetErrorString(code)), where);
}
#define ORTHANT_NCCL(call) check_nccl((call), #call)

struct DestroyNcclComm {
  void operator()(ncclComm_t comm) const noexcept { ncclCommDestroy(comm); }
};
using NcclComm = UniqueHandle<ncclComm_t, nullptr, DestroyNcclComm>;

ncclDataType_t nccl_type(DataType type) {
  switch (type) {
  case DataType::byte:
    return ncclUint8;
  case DataType::float32:
    return ncclFloat32;
  case DataType::float64:
    return ncclFloat64;
  case DataType::int32:
    return ncclInt32;
  default:
    return ncclInt64;
  }
}

ncclRedOp_t nccl_op(Reduction reduction) {
  return reduction == Reduction::sum ? ncclSum : reduction == Reduction::max ? ncclMax : ncclMin;
}

/// Identifies a device among all nodes: host name and PCI address.
std::array<char, 128> device_identity() {
  std::array<char, 128> identity{};
  int device = 0;
  int length = 0;
  if (ORTHANT_DEVICE_API(GetDevice)(&device) != device::success) return identity;
  std::array<char, MPI_MAX_PROCESSOR_NAME> host_name{};
  MPI_Get_processor_name(host_name.data(), &length);
  std::array<char, 32> address{};
  if (ORTHANT_DEVICE_API(DeviceGetPCIBusId)(address.data(), static_cast<int>(address.size()), device) !=
      device::success)
    return identity;
  std::snprintf(identity.data(), identity.size(), "%.90s %.30s", host_name.data(), address.data());
  return identity;
}

/// Device memory that grows and is kept: it allocates nothing once the largest message has been sent.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer const&) = delete;
  DeviceBuffer& operator=(DeviceBuffer const&) = delete;
  ~DeviceBuffer() {
    if (data_ != nullptr) static_cast<void>(ORTHANT_DEVICE_API(Free)(data_));
  }
  std::byte* of(std::int64_t count) {
    auto const num_bytes = static_cast<std::size_t>(count);
    if (num_bytes > num_bytes_) {
      if (data_ != nullptr) ORTHANT_DEVICE(Free(data_)); // waits for the work that still uses it
      data_ = nullptr;
      ORTHANT_DEVICE(Malloc(&data_, num_bytes));
      num_bytes_ = num_bytes;
    }
    return static_cast<std::byte*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t num_bytes_ = 0;
};

/// A flag that kernels set and the host reads without waiting for them.
class OverflowFlag {
 public:
  OverflowFlag() {
    void* memory = nullptr;
    ORTHANT_DEVICE(HostAlloc(&memory, sizeof(int), device::host_mapped));
    flag_ = static_cast<int*>(memory);
    *flag_ = 0;
  }
  OverflowFlag(OverflowFlag const&) = delete;
  OverflowFlag& operator=(OverflowFlag const&) = delete;
  ~OverflowFlag() { static_cast<void>(ORTHANT_DEVICE_API(FreeHost)(flag_)); }
  [[nodiscard]] int* device_pointer() const {
    return flag_;
  } // unified addressing: one pointer for both sides
  [[nodiscard]] bool is_raised() const { return *static_cast<int volatile*>(flag_) != 0; }

 private:
  int* flag_ = nullptr;
};

class NcclBackend final : public Backend {
 public:
  explicit NcclBackend(MPI_Comm mpi) {
    ORTHANT_MPI(MPI_Comm_rank(mpi, &rank_));
    ORTHANT_MPI(MPI_Comm_size(mpi, &size_));
    ncclUniqueId id{};
    if (rank_ == 0) ORTHANT_NCCL(ncclGetUniqueId(&id));
    ORTHANT_MPI(MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, mpi));
    ncclComm_t comm = nullptr;
    ORTHANT_NCCL(ncclCommInitRank(&comm, size_, id, rank_));
    comm_ = NcclComm(comm);
  }

  bool takes(Call const& call, Mode) const override {
    return call.on_device && call.wire == Wire::native && call.operation != Operation::barrier &&
           call.operation != Operation::exclusive_scan && !is_arg_max(call);
  }
  bool is_ordered_by_stream() const override { return true; }

  std::unique_ptr<Exchange> begin(Communicator const&, Call const& call, Mode) override {
    ORTHANT_REQUIRE(!overflow_.is_raised(),
                    "a value did not fit the fp16 wire (largest 65504); use bf16 or the native wire");
    enqueue(call);
    return nullptr;
  }

  std::byte* device_scratch(int slot, std::int64_t num_bytes) override {
    return scratch_[static_cast<std::size_t>(slot)].of(num_bytes);
  }
  int* overflow_flag() override { return overflow_.device_pointer(); }

 private:
  using Counts = std::span<std::int64_t const>;

  void enqueue(Call const& call) {
    auto const type = nccl_type(call.type);
    auto const element_bytes = size_of(call.type);
    auto* const stream = static_cast<device::NativeStream>(call.stream.native());
    auto const count = static_cast<std::size_t>(call.receive_count);
    auto const op = nccl_op(call.reduction);
    auto const part = [](Counts counts, std::int64_t equal, int r) {
      return static_cast<std::size_t>(counts.empty() ? equal : counts[static_cast<std::size_t>(r)]);
    };
    auto const* send = static_cast<char const*>(call.send);
    auto* receive = static_cast<char*>(call.receive);

    switch (call.operation) {
    case Operation::all_reduce:
      ORTHANT_NCCL(ncclAllReduce(receive, receive, count, type, op, comm_.get(), stream));
      return;
    case Operation::broadcast:
      ORTHANT_NCCL(ncclBroadcast(receive, receive, count, type, call.peer, comm_.get(), stream));
      return;
    case Operation::send:
      ORTHANT_NCCL(
          ncclSend(send, static_cast<std::size_t>(call.send_count), type, call.peer, comm_.get(), stream));
      return;
    case Operation::receive:
      ORTHANT_NCCL(ncclRecv(receive, count, type, call.peer, comm_.get(), stream));
      return;
    case Operation::all_gather:
      if (call.receive_counts.empty()) {
        ORTHANT_NCCL(ncclAllGather(send, receive, static_cast<std::size_t>(call.send_count), type,
                                   comm_.get(), stream));
        return;
      }
      ORTHANT_NCCL(ncclGroupStart());
      for (int r = 0; r < size_; ++r) {
        auto const length = part(call.receive_counts, 0, r);
        ORTHANT_NCCL(
            ncclBroadcast(r == rank_ ? send : receive, receive, length, type, r, comm_.get(), stream));
        receive += length * element_bytes;
      }
      ORTHANT_NCCL(ncclGroupEnd());
      return;
    case Operation::reduce_scatter:
      if (call.send_counts.empty()) {
        ORTHANT_NCCL(ncclReduceScatter(send, receive, count, type, op, comm_.get(), stream));
        return;
      }
      ORTHANT_NCCL(ncclGroupStart());
      for (int r = 0; r < size_; ++r) {
        auto const length = part(call.send_counts, 0, r);
        ORTHANT_NCCL(ncclReduce(send, receive, length, type, op, r, comm_.get(), stream));
        send += length * element_bytes;
      }
      ORTHANT_NCCL(ncclGroupEnd());
      return;
    case Operation::all_to_all:
      ORTHANT_NCCL(ncclGroupStart());
      for (int r = 0; r < size_; ++r) {
        auto const num_sent = part(call.send_counts, call.send_count / size_, r);
        auto const num_received = part(call.receive_counts, call.receive_count / size_, r);
        if (num_sent > 0) ORTHANT_NCCL(ncclSend(send, num_sent, type, r, comm_.get(), stream));
        auto const stays = r == rank_ && keeps_own_part(call, r);
        if (num_received > 0 && !stays)
          ORTHANT_NCCL(ncclRecv(receive, num_received, type, r, comm_.get(), stream));
        send += num_sent * element_bytes;
        receive += num_received * element_bytes;
      }
      ORTHANT_NCCL(ncclGroupEnd());
      return;
    case Operation::exclusive_scan:
    case Operation::barrier:
      ORTHANT_REQUIRE(false, "NCCL has no ", name_of(call.operation));
    }
  }

  NcclComm comm_;
  int rank_ = 0;
  int size_ = 1;
  std::array<DeviceBuffer, 3> scratch_;
  OverflowFlag overflow_;
};

} // namespace

std::unique_ptr<Backend> make_nccl_backend(MPI_Comm comm) {
  int size = 0;
  ORTHANT_MPI(MPI_Comm_size(comm, &size));
  auto const mine = device_identity();
  std::vector<std::array<char, 128>> all(static_cast<std::size_t>(size));
  ORTHANT_MPI(MPI_Allgather(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, all.data(),
                            static_cast<int>(mine.size()), MPI_CHAR, comm));
  std::ranges::sort(all);
  auto const has_rank_without_device = all.front()[0] == '\0';
  auto const shares_a_device = std::ranges::adjacent_find(all) != all.end();
  return has_rank_without_device || shares_a_device ? nullptr : std::make_unique<NcclBackend>(comm);
}

} // namespace orthant::runtime::detail
