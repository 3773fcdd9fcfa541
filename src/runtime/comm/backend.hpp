#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Backends carry out the operations of a communicator: libraries such as MPI or NCCL, or schemes on top of other backends. A communicator
// has several and gives each call to the first backend that accepts it. Communicator::use_backend adds a backend in front of them.
//
//   NCCL     device memory; enqueued on the call's stream, so that the host does not wait
//   rounds   host memory, with --collectives: lists of messages (comm/rounds.hpp)
//   shared   host memory within a node, blocking calls
//   MPI      host memory, and device memory if MPI is built for it
//   staged   device memory, copied through pinned host memory and sent with MPI
//
// Backends do not encode numbers (numbers/formats.hpp): they move the encoded bytes (encoded_exchange.hpp).

#include "runtime/comm/call.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mpi.h>
#include <vector>

namespace orthant::runtime {
class Communicator;
struct JobAlgorithms;
namespace detail {

class MatchTags;
class Progress;

enum class Mode : std::uint8_t { blocking, asynchronous };

/// An operation in progress. Its buffers and counts must stay valid until finish() returns. It is destroyed without finish() only while an
/// error unwinds: the job is then ending, and waiting could hang it.
class Exchange {
 public:
  Exchange() = default;
  Exchange(Exchange const&) = delete;
  Exchange& operator=(Exchange const&) = delete;
  virtual ~Exchange() = default;

  /// Returns when the result is in the receive buffer and the send buffer is free.
  virtual void finish() = 0;
  /// True if finish() would return at once. Makes progress if it can, and never waits.
  [[nodiscard]] virtual bool test() = 0;
  /// Called if nobody will wait and the caller's buffers may be gone. The backend then owns the operation in progress.
  virtual void abandon() noexcept {}
};

class Backend {
 public:
  Backend() = default;
  Backend(Backend const&) = delete;
  Backend& operator=(Backend const&) = delete;
  virtual ~Backend() = default;

  /// True if this backend can carry out the call: its operation, types and wire format, in the memory of its buffers. The same on all
  /// ranks.
  [[nodiscard]] virtual bool takes(Call const& call, Mode mode) const = 0;

  /// True if calls are enqueued on their stream. The host then never waits for a call, and work enqueued after the call sees its result.
  [[nodiscard]] virtual bool is_ordered_by_stream() const = 0;

  /// Begins a call for which takes() is true. Returns the exchange to wait for, or null if there is nothing to wait for: in blocking mode
  /// (unless the backend still has work to do) and on a stream.
  /// Calls of one group match in the order in which ranks begin them. An all_gather with a tag instead matches the all_gathers with the
  /// same tag, and ranks may begin them in any order (MatchTags). Backends that are ordered by a stream get no tags.
  [[nodiscard]] virtual std::unique_ptr<Exchange> begin(Communicator const& comm, Call const& call,
                                                        Mode mode) = 0;

  /// Exchanges that a wait for any call of this backend must advance. Null if the backend has no exchanges of several phases, which ranks
  /// may reach in different orders.
  [[nodiscard]] virtual std::shared_ptr<Progress> progress() const { return nullptr; }
  /// Null if all_gathers cannot have tags: ranks must then wait for sums of encoded numbers in the same order.
  [[nodiscard]] virtual MatchTags* tags() { return nullptr; }

  /// Device memory for encoded numbers. Only for backends that are ordered by a stream and accept device buffers. A later call with the
  /// same `slot` (0 to 2) returns the same memory, or larger memory if needed.
  [[nodiscard]] virtual std::byte* device_scratch([[maybe_unused]] int slot,
                                                  [[maybe_unused]] std::int64_t num_bytes) {
    return nullptr;
  }
  /// Flag that the device sets if a number does not fit its encoding; the backend's next call then throws.
  [[nodiscard]] virtual int* overflow_flag() { return nullptr; }
};

/// True if, in this all_to_all, `rank` sends nothing to itself because its own part is already in the receive buffer.
[[nodiscard]] inline bool keeps_own_part(Call const& call, int rank) {
  auto const own = static_cast<std::size_t>(rank);
  return call.operation == Operation::all_to_all && !call.send_counts.empty() && call.send_counts[own] == 0 &&
         call.receive_counts[own] > 0;
}

/// Backend for host memory, and for device memory if MPI is device-aware and the operation does not reduce on the host. `progress` is the
/// Progress of the communicator that this one was split from; null: creates a new one.
[[nodiscard]] std::unique_ptr<Backend> make_mpi_backend(std::shared_ptr<Progress> progress = nullptr);
/// Backend for blocking calls on host memory that the ranks share. Null if they are on several nodes, or if a rank cannot map the memory.
/// `may_read`: false leaves long messages to other backends, as where ranks cannot read each other's memory.
/// Collective over `comm`.
[[nodiscard]] std::unique_ptr<Backend> make_shared_memory_backend(Communicator const& comm,
                                                                  bool may_read = true);
/// Backend for host memory that follows the choice of the job (comm/algorithm_choice.hpp). Null if all calls of this group are the library's.
/// `progress`: as in make_mpi_backend(). Collective over `comm`.
[[nodiscard]] std::unique_ptr<Backend> make_round_backend(Communicator const& comm,
                                                          std::shared_ptr<JobAlgorithms const> algorithms,
                                                          std::shared_ptr<Progress> progress);
/// Backend for device buffers: copies them to pinned host memory, lets `of_host` carry out the call there, and copies the result back.
[[nodiscard]] std::unique_ptr<Backend> make_staged_backend(Backend& of_host);
/// NCCL backend. Null if NCCL is not built in, no device is visible, or two ranks share a device (NCCL refuses that). A build without NCCL
/// compiles no_nccl_backend.cpp in place of nccl_backend.cpp. Collective over `comm`.
[[nodiscard]] std::unique_ptr<Backend> make_nccl_backend(MPI_Comm comm);

} // namespace detail
} // namespace orthant::runtime

namespace orthant::runtime::detail {

// Sums of encoded numbers have several phases, and MPI does not start the next phase on its own. Therefore every wait or test advances all
// open exchanges: no rank delays another one by the order of its waits.

/// The open exchanges with several phases of a communicator and of all communicators split from it.
class Progress {
 public:
  void add(Exchange& exchange) { open_.push_back(&exchange); }
  void remove(Exchange& exchange) noexcept { std::erase(open_, &exchange); }
  [[nodiscard]] bool is_needed() const { return !open_.empty(); }
  /// Advances every open exchange. Never waits.
  void advance() const {
    for (std::size_t i = 0; i < open_.size(); ++i) // a test may add or remove exchanges of the next phase
      static_cast<void>(open_[i]->test());
  }

 private:
  std::vector<Exchange*> open_;
};

/// Tags of calls that ranks may begin in different orders (Backend::begin). The k-th tag that lend() returns is the same on all ranks.
class MatchTags {
 public:
  static constexpr int num_tags = 512;

  /// The next tag. Throws Error if the call that had this tag before, num_tags calls ago, is still open.
  int lend() {
    auto const tag = 1 + static_cast<int>(num_lent_++ % num_tags);
    ORTHANT_REQUIRE(std::ranges::find(lent_, tag) == lent_.end(), "no more than ", num_tags,
                    " sums of encoded numbers may be open between the oldest and the newest");
    lent_.push_back(tag);
    return tag;
  }
  void give_back(int tag) noexcept { std::erase(lent_, tag); }

 private:
  std::int64_t num_lent_ = 0;
  std::vector<int> lent_;
};

} // namespace orthant::runtime::detail
