#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which cores a process may use, and whether ranks have one each. A core is a hardware thread here.

#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <vector>

namespace orthant::runtime {

/// Those that the calling thread may run on, ascending; empty if the system does not say.
[[nodiscard]] std::vector<int> allowed_cores();

/// How many cores the ranks of a communicator within a node may use together; 0 if the system does not say. Collective.
[[nodiscard]] std::int64_t num_cores_of(Communicator const& node);

/// Whether a node has more ranks than cores that they may use: what is timed then measures how they take turns. Collective.
[[nodiscard]] bool is_oversubscribed(Communicator const& comm);

} // namespace orthant::runtime
