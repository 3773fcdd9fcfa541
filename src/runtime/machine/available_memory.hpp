#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How much memory may still be taken on this node, so that what cannot fit is refused before the work and not
// killed in the middle of it. Three things limit it: the node's free memory (MemAvailable of /proc/meminfo),
// the limits of control groups (version 2: memory.max, version 1: memory.limit_in_bytes; of the process's
// group and of all above it), and the address space of the process (ulimit -v). Pages of files that a group
// may drop count as free.

#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace orthant::runtime {

/// Where the figures come from. Tests give their own; a file that is not there limits nothing.
struct MemorySources {
  std::filesystem::path meminfo = "/proc/meminfo";
  std::filesystem::path group_of_process = "/proc/self/cgroup";
  std::filesystem::path groups = "/sys/fs/cgroup";
  std::filesystem::path status = "/proc/self/status";
  std::optional<std::int64_t> address_space; // none: as getrlimit() says
};

/// Bytes that may still be taken, and what sets that limit; the largest number and nothing where no limit is
/// known.
struct MemoryLimit {
  std::int64_t bytes;
  std::string source;
};
/// For all processes of the node together.
[[nodiscard]] MemoryLimit memory_of_node(MemorySources const& sources = {});
/// For all processes of this process's control group together.
[[nodiscard]] MemoryLimit memory_of_group(MemorySources const& sources = {});
/// For this process.
[[nodiscard]] MemoryLimit memory_of_process(MemorySources const& sources = {});

/// Throws UserError on all ranks, with the figures, where `needed` bytes of each rank, summed over the ranks
/// that share a limit, are more than it leaves. `what` needs it: "train". Collective.
void require_memory(Communicator const& comm, std::string_view what, std::int64_t needed,
                    MemorySources const& sources = {});

/// The bytes that every rank may take if all take as many. The same on all ranks. Collective.
[[nodiscard]] std::int64_t memory_of_rank(Communicator const& comm, MemorySources const& sources = {});

} // namespace orthant::runtime
