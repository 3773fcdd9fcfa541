#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What partitioning a graph will take, before it starts, and whether the disk has room.

#include "graph/graph_source.hpp"
#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace orthant::graph {

struct Estimate {
  std::int64_t num_edges = 0;    // -1: not known before they are read
  std::int64_t memory_bytes = 0; // peak, summed over ranks
  std::int64_t disk_bytes = 0;   // of the store
  double seconds = 0;
};

/// Upper figures: repeats merge and make all of them smaller. Seconds on cores of 2025. Collective.
[[nodiscard]] Estimate estimate_partition(runtime::Communicator const& comm, GraphSource const& source,
                                          PermutationKind permutation);

/// UserError, the same on all ranks, where the file system of `output` has less than `needed` bytes free.
/// Collective.
void require_disk_space(runtime::Communicator const& comm, std::filesystem::path const& output,
                        std::int64_t needed);

/// "1.5 GiB", "312 KiB".
[[nodiscard]] std::string bytes_text(std::int64_t bytes);

} // namespace orthant::graph
