// SPDX-License-Identifier: Apache-2.0
#include "runtime/backends/shared_slots.hpp"

#include "runtime/error.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace orthant::runtime::detail {
namespace {

/// Where the first rank has memory without a name, which disappears with the last process that has mapped it.
struct SharedFile {
  std::array<char, 64> path{}; // empty if there is not enough memory
  std::uint64_t number =
      0; // written at its end, because in another container this path may lead to other memory
};

/// A number that no other process has at this time.
std::uint64_t new_number() {
  return (static_cast<std::uint64_t>(getpid()) << 32U) ^
         static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// Maps shared memory of this size, or returns null on all ranks.
std::byte* map_shared(Communicator const& comm, std::int64_t num_bytes) {
  SharedFile shared;
  int file = -1;
  if (comm.is_root()) {
    file = memfd_create("orthant", MFD_CLOEXEC);
    shared.number = new_number();
    // Memory that is only promised would end the job at the first access.
    if (file >= 0 && posix_fallocate(file, 0, num_bytes) == 0)
      std::snprintf(shared.path.data(), shared.path.size(), "/proc/%d/fd/%d", static_cast<int>(getpid()),
                    file);
  }
  ORTHANT_MPI(MPI_Bcast(&shared, static_cast<int>(sizeof shared), MPI_BYTE, 0, comm.mpi()));
  auto const exists = shared.path[0] != '\0';
  if (exists && !comm.is_root()) file = open(shared.path.data(), O_RDWR | O_CLOEXEC);
  struct stat facts {};
  auto const size = static_cast<std::size_t>(num_bytes);
  auto const is_large_enough = exists && file >= 0 && fstat(file, &facts) == 0 && facts.st_size == num_bytes;
  auto* const memory =
      is_large_enough ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  auto const is_mapped = memory != MAP_FAILED;
  auto* const bytes = static_cast<std::byte*>(memory);
  auto const last = size - sizeof shared.number;
  if (is_mapped && comm.is_root()) std::memcpy(bytes + last, &shared.number, sizeof shared.number);
  ORTHANT_MPI(MPI_Barrier(comm.mpi()));
  auto const is_same = is_mapped && std::memcmp(bytes + last, &shared.number, sizeof shared.number) == 0;
  int all_have_mapped = is_same ? 1 : 0;
  ORTHANT_MPI(MPI_Allreduce(MPI_IN_PLACE, &all_have_mapped, 1, MPI_INT, MPI_MIN, comm.mpi()));
  if (file >= 0) close(file);
  if (all_have_mapped == 1) return bytes;
  if (is_mapped) munmap(memory, size);
  return nullptr;
}

} // namespace

std::unique_ptr<SharedSlots> SharedSlots::make(Communicator const& comm, bool may_read) {
  constexpr std::int64_t slot_bytes = std::int64_t{64} << 10; // longer messages are read from where they are
  auto* const memory = map_shared(comm, comm.size() * (line + 2 * slot_bytes));
  if (memory == nullptr) return nullptr;
  std::unique_ptr<SharedSlots> slots(
      new SharedSlots(comm.mpi(), comm.rank(), comm.size(), memory, slot_bytes));
  if (may_read) slots->find_whether_ranks_can_read();
  return slots;
}

SharedSlots::~SharedSlots() {
  munmap(memory_, static_cast<std::size_t>(size_ * bytes_of_rank()));
}

void SharedSlots::wait_long_for(int rank, std::uint64_t step) const {
  constexpr int num_spins = 20; // about a microsecond, before other processes of this core get it
  constexpr int turns_between_probes = 8;
  for (int turn = 1;; ++turn) {
    for (int i = 0; i < num_spins; ++i) {
      if (flag(rank).load(std::memory_order_acquire) >= step) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    int has_arrived = 0;
    if (turn % turns_between_probes == 0)
      ORTHANT_MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &has_arrived, MPI_STATUS_IGNORE));
    sched_yield();
  }
}

/// Each rank publishes the address and the value of a number in its private memory, and the others try to read it there. This fails if the
/// system forbids it, or if the process with this number is another one, as in containers.
void SharedSlots::find_whether_ranks_can_read() {
  struct Card {
    pid_t process;
    std::uint64_t const* number;
    std::uint64_t value;
  };
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); // else some systems let only parents read
  auto const number = new_number();
  Card const own{getpid(), &number, number};
  std::memcpy(begin_step(), &own, sizeof own);
  publish();
  auto reads_all = 1;
  for (int r = 0; r < size_; ++r) {
    Card card{};
    std::memcpy(&card, slot_of(r), sizeof card);
    processes_.push_back(card.process);
    std::uint64_t value = 0;
    iovec const into{&value, sizeof value};
    iovec const from{const_cast<std::uint64_t*>(card.number), sizeof value};
    if (process_vm_readv(card.process, &into, 1, &from, 1, 0) != sizeof value || value != card.value)
      reads_all = 0;
  }
  ORTHANT_MPI(MPI_Allreduce(MPI_IN_PLACE, &reads_all, 1, MPI_INT, MPI_MIN, comm_));
  can_read_ = reads_all == 1;
}

void SharedSlots::read(int rank, void* into, void const* from, std::int64_t num_bytes) const {
  for (std::int64_t done = 0; done < num_bytes;) {
    constexpr std::int64_t most = std::int64_t{1} << 30;
    auto const length = static_cast<std::size_t>(std::min(most, num_bytes - done));
    iovec const here{static_cast<std::byte*>(into) + done, length};
    iovec const there{const_cast<std::byte*>(static_cast<std::byte const*>(from)) + done, length};
    auto const got = process_vm_readv(processes_[static_cast<std::size_t>(rank)], &here, 1, &there, 1, 0);
    if (got <= 0) {
      if (got < 0 && errno == EINTR) continue;
      throw Error("cannot read the memory of rank " + std::to_string(rank) + ": " + std::strerror(errno));
    }
    done += got;
  }
}

} // namespace orthant::runtime::detail
