#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where a rank runs: host, cores it may use, NUMA nodes of those, device. Wrong binding is the commonest
// cause of a slow run, so it can be printed (`orthant info`), and two ranks on one device are warned of.

#include "runtime/comm/communicator.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::runtime {

// Which cores a process may use, and whether ranks have one each. A core is a hardware thread here.

/// Those that the calling thread may run on, ascending; empty if the system does not say.
[[nodiscard]] std::vector<int> allowed_cores();

/// How many cores the ranks of a communicator within a node may use together; 0 if the system does not say. Collective.
[[nodiscard]] std::int64_t num_cores_of(Communicator const& node);

/// Whether a node has more ranks than cores that they may use: what is timed then measures how they take turns. Collective.
[[nodiscard]] bool is_oversubscribed(Communicator const& comm);

/// Plain data of fixed size; texts that are too long end in "..".
struct Binding {
  int rank = 0;
  int node_rank = 0; // among the ranks of this node
  int device = -1;   // -1: none
  std::array<char, 64> host{};
  std::array<char, 96> cores{};     // "0-3,8"
  std::array<char, 32> numa{};      // "0", or "-" where the machine does not say
  std::array<char, 32> device_id{}; // PCI address: tells devices apart that every process calls number 0
};

/// Devices that this process sees, 0 where Kokkos was built for the host only.
[[nodiscard]] int num_visible_devices();

/// The device that this thread uses, -1 where there is none.
[[nodiscard]] int current_device();

/// This process's place. `device` as chosen for Kokkos.
[[nodiscard]] Binding find_binding(int rank, int node_rank, int device);

/// All ranks' bindings on rank 0, elsewhere nothing. Collective.
[[nodiscard]] std::vector<Binding> gather_bindings(Communicator const& comm, Binding const& own);

/// Whether every rank of this node may run one thread beside those that compute, each thread on a core of its own: each rank may use enough
/// cores, and so may all ranks together. A core is a hardware thread that the calling thread may run on. True where the system does not
/// say. Equal on all ranks of a node. Collective.
[[nodiscard]] bool has_spare_cores(Communicator const& comm);

/// A table, a rank a line, with a header.
[[nodiscard]] std::string format_bindings(std::span<Binding const> bindings);

/// One line for every device that several ranks share; empty where there is none.
[[nodiscard]] std::vector<std::string> find_shared_devices(std::span<Binding const> bindings);

/// Numbers of a list as the kernel writes it: "0-2,8" is {0, 1, 2, 8}.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text);

} // namespace orthant::runtime
