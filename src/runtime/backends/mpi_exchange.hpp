#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The MPI calls of one operation. MPI's counts are 32-bit: an operation on more elements than the communicator's chunk limit is cut into
// several calls. All ranks derive the order and lengths of these calls from the same numbers.

#include "runtime/comm/backend.hpp"
#include "runtime/comm/communicator.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <vector>

namespace orthant::runtime::detail {

// Tags that separate the messages of different operations.
inline constexpr int pairwise_tag = max_user_tag + 1;
inline constexpr int first_gather_tag = pairwise_tag + 1;
static_assert(first_gather_tag + MatchTags::num_tags <= 32'767, "what MPI promises");

/// Calls work(offset, length) for consecutive pieces of [0, count) of at most `limit` elements.
template<class Work>
void for_each_chunk(std::int64_t count, std::int64_t limit, Work&& work) {
  for (std::int64_t offset = 0; offset < count; offset += limit)
    work(offset, static_cast<int>(std::min(limit, count - offset)));
}

/// MPI calls of one operation on host (or device-aware) memory. `begin` issues the calls, and in blocking mode also completes them;
/// `finish` waits. The buffers and counts of `call` must stay valid until then.
class MpiExchange final : public Exchange {
 public:
  MpiExchange(Communicator const& comm, Mode mode) : comm_(comm), mode_(mode) {}
  ~MpiExchange() override;

  void begin(Call const& call);
  void finish() override;
  [[nodiscard]] bool test() override;

 private:
  void all_reduce(Call const& call);
  void exclusive_scan(Call const& call);
  void broadcast(void* data, std::int64_t count, int root);
  void all_gather(Call const& call);
  void reduce_scatter(Call const& call);
  void all_to_all(Call const& call);
  void point_to_point(Call const& call);
  void pairwise(Call const& call);
  template<class SendPart>
  void exchange_parts(Call const& call, int tag, SendPart&& send_part);

  /// Copies this rank's own part, which needs no MPI call.
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
  std::vector<std::byte> scratch_; // counts and displacements, which MPI reads until the end
};

} // namespace orthant::runtime::detail
