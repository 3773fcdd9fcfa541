#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Who carries out the operations of a communicator: a library such as MPI or NCCL, or a scheme on top of others.
// A communicator has several and gives each call to the first that takes it (Communicator::use_backend puts
// another before them):
//
//   NCCL     device memory; enqueued on the call's stream, so that the host does not wait
//   MPI      host memory, and device memory if MPI is built for it
//   staged   device memory by way of pinned host memory, and MPI
//
// Numbers that travel encoded (numbers/formats.hpp) are no concern of a backend: it moves their bytes
// (encoded_exchange.hpp).

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
namespace detail {

class MatchTags;
class Progress;

enum class Mode : std::uint8_t { blocking, asynchronous };

/// A call under way. Its buffers and counts are lent until finish(). Destroyed without finish() only while an
/// error unwinds: the job is ending, and waiting could hang it.
class Exchange {
 public:
  Exchange() = default;
  Exchange(Exchange const&) = delete;
  Exchange& operator=(Exchange const&) = delete;
  virtual ~Exchange() = default;

  /// Returns when the result is in the receive buffer and the send buffer is free.
  virtual void finish() = 0;
  /// True once finish() would return at once. Makes what progress it can, and never waits.
  [[nodiscard]] virtual bool test() = 0;
  /// Nobody will wait, and the caller's buffers may be gone: what is under way is left to the backend.
  virtual void abandon() noexcept {}
};

class Backend {
 public:
  Backend() = default;
  Backend(Backend const&) = delete;
  Backend& operator=(Backend const&) = delete;
  virtual ~Backend() = default;

  /// Whether it carries out such a call: its operation, types and wire, in the memory of its buffers. The same
  /// on all ranks.
  [[nodiscard]] virtual bool takes(Call const& call, Mode mode) const = 0;

  /// Whether calls are enqueued on their stream. Each is then over, for the host, once it has begun; and what is
  /// enqueued behind it finds its result.
  [[nodiscard]] virtual bool is_ordered_by_stream() const = 0;

  /// Begins a call that it takes. Returns what remains to be waited for: null if nothing does, as in blocking
  /// mode (unless the backend still has something to do) and on a stream. Calls of one group match in the order
  /// in which ranks begin them; but an all_gather with a tag matches those with the same tag, in whatever order
  /// ranks begin them (MatchTags). Backends that are ordered by a stream are given none.
  [[nodiscard]] virtual std::unique_ptr<Exchange> begin(Communicator const& comm, Call const& call,
                                                        Mode mode) = 0;

  /// What a wait for one of its calls must advance; null if nothing ever has several phases that ranks may come
  /// to in different orders.
  [[nodiscard]] virtual std::shared_ptr<Progress> progress() const { return nullptr; }
  /// Null if all_gathers may not have tags: ranks must then wait for sums of encoded numbers in one order.
  [[nodiscard]] virtual MatchTags* tags() { return nullptr; }

  /// Device memory for encoded numbers, of a backend that is ordered by a stream and takes device buffers: what
  /// was lent under this slot (0 to 2) before is lent again, larger if need be.
  [[nodiscard]] virtual std::byte* device_scratch([[maybe_unused]] int slot,
                                                  [[maybe_unused]] std::int64_t num_bytes) {
    return nullptr;
  }
  /// Raised by the device if a number does not fit its encoding; the backend's next call throws.
  [[nodiscard]] virtual int* overflow_flag() { return nullptr; }
};

/// Whether, in this all_to_all, `rank` sends nothing to itself because its own part is in the receive buffer already.
[[nodiscard]] inline bool keeps_own_part(Call const& call, int rank) {
  auto const own = static_cast<std::size_t>(rank);
  return call.operation == Operation::all_to_all && !call.send_counts.empty() && call.send_counts[own] == 0 &&
         call.receive_counts[own] > 0;
}

/// For host memory; for device memory if MPI is aware of it and no processor of the host reduces there.
/// `progress`: of the communicator that this one is split from; null: one of its own.
[[nodiscard]] std::unique_ptr<Backend> make_mpi_backend(std::shared_ptr<Progress> progress = nullptr);
/// For device buffers: copies to pinned host memory, lets `of_host` do the work there, and copies back.
[[nodiscard]] std::unique_ptr<Backend> make_staged_backend(Backend& of_host);
/// Null if NCCL is not built in, no device is visible, or two ranks share a device (NCCL refuses that). A build
/// without NCCL has no_nccl_backend.cpp for nccl_backend.cpp. Collective over `comm`.
[[nodiscard]] std::unique_ptr<Backend> make_nccl_backend(MPI_Comm comm);

} // namespace detail
} // namespace orthant::runtime

namespace orthant::runtime::detail {

// Sums of encoded numbers go through several phases, and MPI does not take them from one to the next. So whoever
// waits or tests takes all open ones along: no rank holds another one up by the order of its waits.

/// The exchanges of several phases that are open in a communicator and in those that are split from it.
class Progress {
 public:
  void add(Exchange& exchange) { open_.push_back(&exchange); }
  void remove(Exchange& exchange) noexcept { std::erase(open_, &exchange); }
  [[nodiscard]] bool is_needed() const { return !open_.empty(); }
  /// Never waits.
  void advance() const {
    for (auto* const exchange : open_)
      static_cast<void>(exchange->test());
  }

 private:
  std::vector<Exchange*> open_;
};

/// Tags of calls that ranks may begin in different orders (Backend::begin). The k-th tag that is lent is the
/// same on all ranks.
class MatchTags {
 public:
  static constexpr int num_tags = 512;

  /// Throws Error if the last call but num_tags is not over.
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
