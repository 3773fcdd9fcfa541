#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Binding of a rank: host, cores that it may use, their NUMA nodes, and device. Wrong binding is the most common cause of a slow run, so
// `orthant info` prints it, and there is a warning if two ranks use the same device.

#include "runtime/comm/communicator.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::runtime {

// Cores that a process may use, and whether each rank has one of its own. A core is a hardware thread here.

/// Cores on which the calling thread may run, ascending; empty if the system does not report them.
[[nodiscard]] std::vector<int> allowed_cores();

/// Number of different cores that the ranks of `node`, a communicator within a node, may use together; 0 if the system does not report
/// them. Collective.
[[nodiscard]] std::int64_t num_cores_of(Communicator const& node);

/// True if a node has more ranks than cores that these may use: timings then depend on how the ranks share the cores. Collective.
[[nodiscard]] bool is_oversubscribed(Communicator const& comm);

/// Plain data of fixed size; texts that are too long are cut and end in "..".
struct Binding {
  int rank = 0;
  int node_rank = 0; // among the ranks on this node
  int device = -1;   // -1: none
  std::array<char, 64> host{};
  std::array<char, 96> cores{};     // "0-3,8"
  std::array<char, 32> numa{};      // "0", or "-" if the system does not report it
  std::array<char, 32> device_id{}; // PCI address: distinguishes devices that each process calls number 0
};

/// Number of devices that this process sees; 0 if Kokkos was built for the host only.
[[nodiscard]] int num_visible_devices();

/// The device that this thread uses, or -1 if there is none.
[[nodiscard]] int current_device();

/// Binding of this process. `device` is the one chosen for Kokkos.
[[nodiscard]] Binding find_binding(int rank, int node_rank, int device);

/// All ranks' bindings on rank 0; empty on other ranks. Collective.
[[nodiscard]] std::vector<Binding> gather_bindings(Communicator const& comm, Binding const& own);

/// True if every rank of this node can run one additional thread on a core of its own: each rank may use enough cores, and all ranks
/// together have enough. A core is a hardware thread on which the calling thread may run. Also true if the system does not report cores.
/// Equal on all ranks of a node. Collective.
[[nodiscard]] bool has_spare_cores(Communicator const& comm);

/// A table with a header and one line per rank.
[[nodiscard]] std::string format_bindings(std::span<Binding const> bindings);

/// One line for every device that several ranks share; empty if there is none.
[[nodiscard]] std::vector<std::string> find_shared_devices(std::span<Binding const> bindings);

/// Numbers of a list in the format of the Linux kernel: "0-2,8" is {0, 1, 2, 8}.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text);

} // namespace orthant::runtime
