#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Checks of `orthant doctor`: how the job was started (N ranks in one job, cores, memory nearby), the libraries, and the hosts (pages,
// clocks, file systems). Each check returns a fact and findings, each finding with its fix.

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
  std::string fact; // the observation
  std::vector<Finding> findings{};
};

/// Text of the checks: one line per check, and two per finding.
[[nodiscard]] std::string text_of(std::span<Diagnosis const> checks);
[[nodiscard]] int num_findings(std::span<Diagnosis const> checks);

// Placement of each rank, gathered on rank 0.

struct RankFacts {
  int rank = 0;
  std::string host;
  std::vector<int> cores;      // cores that it may use
  std::vector<int> numa_nodes; // NUMA nodes of these cores
  int num_threads = 1;         // compute threads
  int num_host_cores = 0;      // online cores of the host
};

/// Returns the facts of all ranks on rank 0, and an empty list on other ranks. Collective.
[[nodiscard]] std::vector<RankFacts> gather_facts(runtime::Environment const& environment);

// Bandwidth along each axis of a grid while all groups of the axis communicate, compared with a machine file.

struct AxisSpeed {
  std::string axis;
  pmm::GroupSpan span;
  double measured = 0; // bytes/s per rank
  double expected = 0; // by the machine file
};

/// Times an all_reduce of 8 MiB along each axis of more than one rank. Collective over the grid's ranks.
[[nodiscard]] std::vector<AxisSpeed> measure_axes(pmm::ProcessGrid const& grid, pmm::Machine const& machine);
/// Finds axes that reach less than half of the bandwidth in the machine file.
[[nodiscard]] Diagnosis check_axes(std::vector<AxisSpeed> const& speeds, std::string const& machine);

/// Returns the value of an environment variable, nullptr if it is not set.
using Variable = std::function<char const*(char const*)>;

/// Compares the number of ranks with the number in the launcher's environment variables.
[[nodiscard]] Diagnosis check_launcher(int num_ranks, int num_hosts, Variable const& variable);
/// Finds hosts on which more threads compute than they have cores for.
[[nodiscard]] Diagnosis check_cores(std::vector<RankFacts> const& facts);
/// Finds ranks whose cores belong to several NUMA nodes while other ranks share the host.
[[nodiscard]] Diagnosis check_numa(std::vector<RankFacts> const& facts);

/// True if this process is the first one that the launcher has started, by its environment variables: only one process prints.
[[nodiscard]] bool is_first_process(Variable const& variable);

// Libraries for products and communication, and the files that configure them.

/// Checks whether OpenBLAS's kernels use narrower vectors than the processor has.
[[nodiscard]] Diagnosis check_blas(pmm::BlasLibrary const& library, runtime::Processor const& processor,
                                   Variable const& variable);
/// Checks whether MPI reads device memory directly. Host processors do not need it.
[[nodiscard]] Diagnosis check_device_mpi(bool has_devices, bool is_device_aware);
/// Checks whether the NCCL network plug-in that the environment names, or that a Slingshot network needs, can be loaded.
[[nodiscard]] Diagnosis check_nccl(bool has_nccl, int num_hosts, bool has_slingshot, Variable const& variable,
                                   std::function<bool(std::string const&)> const& can_load);
/// Checks whether the machine and network files that the environment and `machine` name exist.
[[nodiscard]] Diagnosis check_fabric_files(std::string const& machine, Variable const& variable);

/// True if `name_or_path` is a machine that comes with Orthant or a file that exists.
[[nodiscard]] bool is_known_machine(std::string const& name_or_path);

/// `setting` as in /sys/kernel/mm/transparent_hugepage/enabled: "always [madvise] never".
[[nodiscard]] Diagnosis check_huge_pages(std::string_view setting);

/// Difference of a host's clock to rank 0's clock, and the error of this measurement.
struct ClockOffset {
  int rank = 0;
  double seconds = 0;
  double error_seconds = 0; // half of the shortest round trip
};
/// Measures the offsets of the first rank of every host. Returns them on rank 0. Collective. `is_first`: this rank is the first of its
/// host.
[[nodiscard]] std::vector<ClockOffset> measure_clocks(runtime::Communicator const& world, bool is_first);
[[nodiscard]] Diagnosis check_clocks(std::vector<ClockOffset> const& offsets);

/// Checks whether checkpoints can be written to `folder` and how fast. The folder need not exist yet. An empty path means the working
/// folder, which need not be writable. Call it on one rank.
[[nodiscard]] Diagnosis check_storage(std::filesystem::path const& folder);

} // namespace orthant::cli
