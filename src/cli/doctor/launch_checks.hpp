#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How the job was started: as one job of N ranks, with a core for each of their threads, near its memory.

#include "cli/doctor/finding.hpp"
#include "cli/doctor/rank_facts.hpp"

#include <functional>

namespace orthant::cli {

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

} // namespace orthant::cli
