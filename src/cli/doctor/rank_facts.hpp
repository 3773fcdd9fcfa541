#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where each rank runs, gathered on rank 0.

#include "runtime/job/environment.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

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

} // namespace orthant::cli
