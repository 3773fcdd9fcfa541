#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Memory of this process: resident bytes, as the kernel counts them, what the allocator retains, and what can still be allocated.

#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace orthant::runtime {

/// Resident bytes now, and their maximum so far. 0 if the system does not report them.
[[nodiscard]] std::int64_t resident_bytes();
[[nodiscard]] std::int64_t peak_resident_bytes();

/// While an object exists, arrays of 128 KiB and more are mapped one by one, so that the system gets their memory back when they are freed.
/// Otherwise glibc's allocator retains the memory of large arrays that were freed, between arrays that stay, while a graph is read. After
/// the last object is gone, the allocator retains freed memory again, so that message buffers are not mapped anew in each step.
/// Does nothing with other allocators, nor if the user has set malloc's environment variables. Scopes may nest, and may overlap between
/// threads.
class MappedArrays {
 public:
  MappedArrays();
  ~MappedArrays();
  MappedArrays(MappedArrays const&) = delete;
  MappedArrays& operator=(MappedArrays const&) = delete;
};

// Large host arrays use huge pages: kernels that read random rows of a matrix of many megabytes then need fewer page table walks.
// Measured with the SpMM of 100,000 vertices, 2M edges and 128 floats per row: 10 to 20 % faster on Zen 4, 1.3 to 1.7 times faster on
// Sapphire Rapids, both in virtual machines.

/// Requests huge pages for [address, address + num_bytes), which must not have been written yet. This is a hint: it does nothing if the
/// system has no huge pages or the range is too small to hold one.
void advise_huge_pages(void* address, std::size_t num_bytes);

// Memory that can still be allocated on this node, so that a job too large for it is refused before the work and not killed during it.
// Three limits apply: the node's free memory (MemAvailable of /proc/meminfo), the limits of control groups (version 2: memory.max, version
// 1: memory.limit_in_bytes; of the process's group and all groups above it), and the address space of the process (ulimit -v). File pages
// that a group may drop count as free.

/// Files that hold the limits. Tests use their own files; a file that does not exist sets no limit.
struct MemorySources {
  std::filesystem::path meminfo = "/proc/meminfo";
  std::filesystem::path group_of_process = "/proc/self/cgroup";
  std::filesystem::path groups = "/sys/fs/cgroup";
  std::filesystem::path status = "/proc/self/status";
  std::optional<std::int64_t> address_space; // empty: the limit from getrlimit()
};

/// Bytes that can still be allocated, and the source of that limit. If no limit is known: the largest number and an empty source.
struct MemoryLimit {
  std::int64_t bytes;
  std::string source;
};
/// Limit for all processes of the node together.
[[nodiscard]] MemoryLimit memory_of_node(MemorySources const& sources = {});
/// Limit for all processes of this process's control group together.
[[nodiscard]] MemoryLimit memory_of_group(MemorySources const& sources = {});
/// Limit for this process.
[[nodiscard]] MemoryLimit memory_of_process(MemorySources const& sources = {});

/// Throws UserError on all ranks, with the figures, if the ranks that share a limit need more than it allows. `needed` is in bytes per
/// rank; `what` names the purpose: "train". Collective.
void require_memory(Communicator const& comm, std::string_view what, std::int64_t needed,
                    MemorySources const& sources = {});

/// Bytes that every rank can allocate if all ranks allocate the same amount. Equal on all ranks. Collective.
[[nodiscard]] std::int64_t memory_of_rank(Communicator const& comm, MemorySources const& sources = {});

} // namespace orthant::runtime
