#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The hosts: pages, clocks, and file systems.

#include "cli/doctor/finding.hpp"
#include "runtime/comm/communicator.hpp"

#include <filesystem>
#include <string_view>

namespace orthant::cli {

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
