#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A host operation between its start and its end. Internal to the collectives.

#include "runtime/comm/collectives.hpp"

#include <chrono>
#include <mpi.h>
#include <vector>

namespace orthant::runtime::detail {

/// Tags above are ours; MPI promises 32,767.
inline constexpr int max_user_tag = 32'000;

enum class Mode : std::uint8_t { blocking, asynchronous };

/// MPI calls of one operation on host (or device-aware) memory. `begin` issues them, in blocking mode to
/// their end; `finish` waits. Buffers and counts of `call` are lent until then.
class MpiExchange {
 public:
  MpiExchange(Communicator const& comm, Mode mode) : comm_(comm), mode_(mode) {}
  MpiExchange(MpiExchange const&) = delete;
  MpiExchange& operator=(MpiExchange const&) = delete;
  ~MpiExchange();

  /// `type` overrides the element type (16-bit wire), else MPI_DATATYPE_NULL.
  void begin(Call const& call, MPI_Datatype type = MPI_DATATYPE_NULL);
  void finish();
  [[nodiscard]] bool test();

 private:
  [[nodiscard]] std::int64_t cached_piece() const;
  void all_reduce(Call const& call);
  void exclusive_scan(Call const& call);
  void broadcast(void* data, std::int64_t count, int root);
  void all_gather(Call const& call);
  void reduce_scatter(Call const& call);
  void all_to_all(Call const& call);
  void point_to_point(Call const& call);
  void pairwise(Call const& call);

  /// This rank's own part, which MPI does not carry.
  void copy(Call const& call, void* into, void const* from, std::int64_t count) const;
  MPI_Request* next_request();
  int* lend_ints(std::size_t count);
  [[nodiscard]] bool is_blocking() const { return mode_ == Mode::blocking; }
  [[nodiscard]] std::byte* at(void* base, std::int64_t index) const {
    return static_cast<std::byte*>(base) + static_cast<std::size_t>(index) * element_bytes_;
  }
  [[nodiscard]] std::byte const* at(void const* base, std::int64_t index) const {
    return static_cast<std::byte const*>(base) + static_cast<std::size_t>(index) * element_bytes_;
  }

  Communicator const& comm_;
  Mode mode_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  std::size_t element_bytes_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<std::byte> ints_; // 32-bit counts and displacements that MPI reads until the end
};

/// One operation as the caller sees it: staging of device buffers, 16-bit wire, then MpiExchange.
struct Pending {
  Pending(Communicator const& comm, Call const& call, Mode mode);
  Pending(Pending const&) = delete;
  Pending& operator=(Pending const&) = delete;
  ~Pending();

  void begin();
  void finish(std::source_location where);
  [[nodiscard]] bool test();

  bool is_done = false;

 private:
  [[nodiscard]] bool can_pass_device_memory() const;
  void stage_to_host();
  void stage_to_device();
  void begin_wire();
  void finish_wire();
  void finish_wire_sum();
  std::span<std::uint16_t> lend_halves(std::vector<std::byte>& buffer, std::int64_t count);
  [[nodiscard]] std::int64_t logical_bytes() const;

  Communicator const& comm_;
  Call call_; // as asked for
  Call host_; // the same on host memory
  MpiExchange exchange_;
  Mode mode_;
  std::int64_t sequence_;
  std::span<std::byte> staged_send_, staged_receive_; // pinned
  std::vector<std::byte> halves_send_, halves_receive_;
  std::vector<std::int64_t> parts_; // wire all_reduce: elements owned by each rank
  std::chrono::steady_clock::time_point began_;
};

} // namespace orthant::runtime::detail
