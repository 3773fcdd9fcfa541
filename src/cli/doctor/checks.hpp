#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What `doctor` says: each check has a fact, and findings if something is wrong, each with its fix.
//
// How the job was started: as one job of N ranks, with a core for each of their threads, near its memory.
//
// The hosts: pages, clocks, and file systems.

#include "pmm/cost/machine.hpp"
#include "pmm/gemm/blas_library.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/job/environment.hpp"

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

struct Finding {
  std::string what;
  std::string fix;
};

struct Diagnosis {
  std::string name;
  std::string fact; // what was seen
  std::vector<Finding> findings{};
};

/// One line per check, and two per finding.
[[nodiscard]] std::string text_of(std::span<Diagnosis const> checks);
[[nodiscard]] int num_findings(std::span<Diagnosis const> checks);

// Where each rank runs, gathered on rank 0.

struct RankFacts {
  int rank = 0;
  std::string host;
  std::vector<int> cores;      // that it may use
  std::vector<int> numa_nodes; // of these
  int num_threads = 1;         // that compute
  int num_host_cores = 0;      // of the host, online
};

/// Of all ranks on rank 0, elsewhere nothing. Collective.
[[nodiscard]] std::vector<RankFacts> gather_facts(runtime::Environment const& environment);

// How fast the ranks of each axis of a grid send while all groups of that axis do, beside what a machine file says of it.

struct AxisSpeed {
  std::string axis;
  pmm::GroupSpan span;
  double measured = 0; // bytes per second and rank
  double expected = 0; // of the machine
};

/// Collective over the grid's ranks: an all_reduce of 8 MiB along each axis of more than one rank.
[[nodiscard]] std::vector<AxisSpeed> measure_axes(pmm::ProcessGrid const& grid, pmm::Machine const& machine);
/// Finds axes that reach less than half of what the machine's file says.
[[nodiscard]] Diagnosis check_axes(std::vector<AxisSpeed> const& speeds, std::string const& machine);

/// Value of an environment variable, nullptr if it is not set.
using Variable = std::function<char const*(char const*)>;

/// Compares the number of ranks with what the launcher's variables say of it.
[[nodiscard]] Diagnosis check_launcher(int num_ranks, int num_hosts, Variable const& variable);
/// Whether more threads compute than there are cores for them.
[[nodiscard]] Diagnosis check_cores(std::vector<RankFacts> const& facts);
/// Whether a rank's cores are of several NUMA nodes while other ranks share the host.
[[nodiscard]] Diagnosis check_numa(std::vector<RankFacts> const& facts);

/// Whether this process is the first of those that the launcher has started, by its variables: one process of many prints.
[[nodiscard]] bool is_first_process(Variable const& variable);

// The libraries that multiply and communicate, and the files that configure them.

/// Whether the kernels of OpenBLAS have narrower vectors than the processor.
[[nodiscard]] Diagnosis check_blas(pmm::BlasLibrary const& library, runtime::Processor const& processor,
                                   Variable const& variable);
/// Whether MPI reads device memory itself. On host processors it need not.
[[nodiscard]] Diagnosis check_device_mpi(bool has_devices, bool is_device_aware);
/// Whether the network plug-in of NCCL that the environment names, or a Slingshot network needs, can be loaded.
[[nodiscard]] Diagnosis check_nccl(bool has_nccl, int num_hosts, bool has_slingshot, Variable const& variable,
                                   std::function<bool(std::string const&)> const& can_load);
/// Whether the files are there that the environment and `machine` name for machine and network.
[[nodiscard]] Diagnosis check_fabric_files(std::string const& machine, Variable const& variable);

/// Whether a machine of that name comes with Orthant or its file is there.
[[nodiscard]] bool is_known_machine(std::string const& name_or_path);

/// `setting` as in /sys/kernel/mm/transparent_hugepage/enabled: "always [madvise] never".
[[nodiscard]] Diagnosis check_huge_pages(std::string_view setting);

/// How far a host's clock is ahead of rank 0's, and how exactly that is known.
struct ClockOffset {
  int rank = 0;
  double seconds = 0;
  double error_seconds = 0; // half of the shortest round trip
};
/// Of the first rank of every host, on rank 0. Collective. `is_first`: whether this rank is one.
[[nodiscard]] std::vector<ClockOffset> measure_clocks(runtime::Communicator const& world, bool is_first);
[[nodiscard]] Diagnosis check_clocks(std::vector<ClockOffset> const& offsets);

/// Whether checkpoints can be written to `folder`, which need not be there yet, and how fast. An empty one stands for the working
/// folder, which need not be writable. On one rank.
[[nodiscard]] Diagnosis check_storage(std::filesystem::path const& folder);

} // namespace orthant::cli
