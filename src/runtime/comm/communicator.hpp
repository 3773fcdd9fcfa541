#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One process group: a duplicated MPI communicator, the name of the grid axis it runs along, and its ledger.

#include "runtime/comm/algorithm_choice.hpp"
#include "runtime/observe/ledger.hpp"
#include "runtime/observe/trace.hpp"
#include "runtime/unique_handle.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mpi.h>
#include <span>
#include <string>
#include <vector>

namespace orthant::runtime {

namespace detail {
struct FreeMpiComm {
  void operator()(MPI_Comm comm) const noexcept;
};
inline MPI_Comm null_mpi_comm() noexcept {
  return MPI_COMM_NULL;
}
using MpiComm = UniqueHandle<MPI_Comm, &null_mpi_comm, FreeMpiComm>;

struct FreeMpiGroup {
  void operator()(MPI_Group group) const noexcept;
};
inline MPI_Group null_mpi_group() noexcept {
  return MPI_GROUP_NULL;
}
using MpiGroup = UniqueHandle<MPI_Group, &null_mpi_group, FreeMpiGroup>;
class Backend;
class VirtualCalls;
} // namespace detail

/// Owns a duplicate of an MPI communicator, so that messages of this library cannot match the caller's. Construction, split and destruction
/// are collective over its ranks. Movable; the ledger moves along.
class Communicator {
 public:
  /// Duplicates `parent`. Collective over `parent`. `axis` names the group in ledgers, traces and the watchdog. `instruments` observe its
  /// calls: Environment passes its own; the default ones neither watch nor trace.
  explicit Communicator(MPI_Comm parent, std::string axis,
                        std::shared_ptr<Instruments> instruments = std::make_shared<Instruments>());
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  /// Communicator of the ranks with equal `color`, ordered by `key`. Collective over this communicator.
  [[nodiscard]] Communicator split(int color, int key, std::string axis) const;
  /// Communicator of these ranks of this communicator, in this order; `ranks` must contain this rank. Collective over `ranks` only.
  [[nodiscard]] Communicator subgroup(std::vector<int> const& ranks, std::string axis) const;
  /// Communicator of the ranks on this rank's node. Collective over this communicator.
  [[nodiscard]] Communicator split_by_node() const;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] bool is_root() const { return rank_ == 0; }
  /// True if all ranks share one node, where messages move through memory; algorithms are chosen by it. Equal on all ranks. On an emulated
  /// machine (observe/run_clock.hpp) nodes are the emulated ones.
  [[nodiscard]] bool is_on_one_node() const;
  /// True if all ranks really share memory, even if the run emulates another machine.
  [[nodiscard]] bool shares_memory() const { return shares_memory_; }
  /// The MPI_COMM_WORLD ranks of this group.
  [[nodiscard]] std::span<int const> job_ranks() const;
  [[nodiscard]] std::string const& axis() const { return axis_; }
  [[nodiscard]] MPI_Comm mpi() const { return comm_.get(); }

  /// Calls and bytes that this rank has communicated over this group. Counting does not change the group, so the ledger is mutable through
  /// a const communicator.
  [[nodiscard]] Ledger& ledger() const { return state_->ledger; }

  /// Largest number of elements per MPI call (its counts are 32-bit); longer messages are cut. Tests set it to 1,000. All ranks of the
  /// group must use the same limit.
  [[nodiscard]] std::int64_t chunk_limit() const { return state_->chunk_limit; }
  void set_chunk_limit(std::int64_t num_elements) const;

  /// Number of collectives started so far. Equal on all ranks that have made the same calls.
  [[nodiscard]] std::int64_t next_sequence() const { return state_->sequence++; }

  [[nodiscard]] Instruments& instruments() const { return *instruments_; }

  /// End times of calls on an emulated machine.
  [[nodiscard]] detail::VirtualCalls& virtual_calls() const { return *state_->virtual_calls; }

  /// Borrows host scratch memory of at least `num_bytes` from a pool. Return it with `give_back`. A training step allocates nothing once
  /// the largest sizes have been used.
  [[nodiscard]] std::vector<std::byte> lend_scratch(std::size_t num_bytes) const;
  void give_back(std::vector<std::byte> scratch) const;

  /// Collectives of this communicator, and of those that are split from it later, follow this choice (comm/algorithm_choice.hpp).
  /// `node_of_rank`: the node of each rank of the job. Collective; all ranks must choose alike, and none may have an operation in progress.
  void use_algorithms(AlgorithmChoice choice, std::vector<int> node_of_rank) const;
  /// Null before use_algorithms().
  [[nodiscard]] JobAlgorithms const* algorithms() const { return state_->algorithms.get(); }

  /// Adds `backend` in front: it gets the calls that it accepts, and the others go to the existing backends. All ranks must do the same,
  /// and none may have an operation in progress. Communicators split from this one do not have the backend.
  void use_backend(std::unique_ptr<detail::Backend> backend) const;
  /// The backends in the order of preference. The first call for a device is collective.
  [[nodiscard]] std::span<std::unique_ptr<detail::Backend> const> backends(bool for_device) const;
  /// Before the first blocking collective on host memory: adds the backend of shared memory, if the ranks share a node. Collective.
  void prepare_shared_memory() const;
  /// True if operations on device buffers run in the order of their stream, without the host. The first call is collective.
  [[nodiscard]] bool works_on_streams() const;

 private:
  struct State {
    Ledger ledger;
    std::int64_t chunk_limit = std::int64_t{1} << 30;
    std::int64_t sequence = 0;
    std::vector<std::vector<std::byte>> scratch; // the pool
    std::vector<int> job_ranks;                  // empty until the first call of job_ranks()
    std::unique_ptr<detail::VirtualCalls> virtual_calls;
    std::shared_ptr<JobAlgorithms const> algorithms;
    bool has_tried_nccl = false;
    bool has_tried_shared_memory = false;
    std::vector<std::unique_ptr<detail::Backend>> backends; // the last two: MPI and the staged backend
  };
  Communicator(detail::MpiComm comm, std::string axis, std::shared_ptr<Instruments> instruments);
  [[nodiscard]] Communicator make_part(MPI_Comm comm, std::string axis) const;
  void add_round_backend() const;

  detail::MpiComm comm_;
  std::string axis_;
  int rank_ = 0;
  int size_ = 1;
  bool shares_memory_ = true;
  std::unique_ptr<State> state_;
  std::shared_ptr<Instruments> instruments_;
};

} // namespace orthant::runtime
