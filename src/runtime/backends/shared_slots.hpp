#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Memory that the ranks of a group on one node share. Each rank has a slot, which it writes and the others read, step by step:
//
//   into = begin_step()      the ranks may still read this rank's slot of the step before, in its other half
//   .. write into[0, slot_bytes()) ..
//   publish()
//   .. read slot_of(r) ..    waits until rank r has published
//
// All ranks make the same steps. A rank that waits advances MPI, because others may wait for its messages.
//
// A rank may also read the private memory of another one (process_vm_readv of Linux, which MPI libraries use, too): one copy instead of
// two.

#include "runtime/comm/communicator.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <vector>

namespace orthant::runtime::detail {

class SharedSlots {
 public:
  /// Null on all ranks if one of them cannot map the memory. `may_read`: false leaves private memory alone. Collective over `comm`.
  [[nodiscard]] static std::unique_ptr<SharedSlots> make(Communicator const& comm, bool may_read);
  SharedSlots(SharedSlots const&) = delete;
  SharedSlots& operator=(SharedSlots const&) = delete;
  ~SharedSlots();

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] std::int64_t slot_bytes() const { return slot_bytes_; }
  /// True if all ranks may read each other's memory. Equal on all ranks.
  [[nodiscard]] bool can_read() const { return can_read_; }
  /// Reads private memory of another rank. Throws Error if the system refuses.
  void read(int rank, void* into, void const* from, std::int64_t num_bytes) const;

  std::byte* begin_step() {
    for (int r = 0; r < size_; ++r)
      wait_for(r, step_); // then it has read what was published in the step before that
    return half(rank_, ++step_);
  }
  void publish() const { flag(rank_).store(step_, std::memory_order_release); }
  /// Waits until all ranks have begun and published a step of their own.
  void wait_for_all() {
    begin_step();
    publish();
    for (int r = 0; r < size_; ++r)
      wait_for(r, step_);
  }
  /// What rank `rank` has published in this step.
  [[nodiscard]] std::byte const* slot_of(int rank) const {
    wait_for(rank, step_);
    return half(rank, step_);
  }

 private:
  SharedSlots(MPI_Comm comm, int rank, int size, std::byte* memory, std::int64_t slot_bytes)
      : comm_(comm),
        rank_(rank),
        size_(size),
        memory_(memory),
        slot_bytes_(slot_bytes) {}

  static constexpr std::int64_t line = 64; // of the cache
  [[nodiscard]] std::int64_t bytes_of_rank() const { return line + 2 * slot_bytes_; }
  [[nodiscard]] std::atomic<std::uint64_t>& flag(int rank) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(memory_ + rank * bytes_of_rank());
  }
  [[nodiscard]] std::byte* half(int rank, std::uint64_t step) const {
    return memory_ + rank * bytes_of_rank() + line + static_cast<std::int64_t>(step % 2) * slot_bytes_;
  }
  void wait_for(int rank, std::uint64_t step) const {
    if (flag(rank).load(std::memory_order_acquire) < step) wait_long_for(rank, step);
  }
  void wait_long_for(int rank, std::uint64_t step) const;
  void find_whether_ranks_can_read();

  MPI_Comm comm_;
  int rank_;
  int size_;
  std::byte* memory_;
  std::int64_t slot_bytes_;
  std::uint64_t step_ = 0;
  bool can_read_ = false;
  std::vector<pid_t> processes_;
};

} // namespace orthant::runtime::detail
