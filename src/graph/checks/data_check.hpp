#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Data that a network learns little from: labels of one class, empty parts of a split, features that are all equal.

#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"

#include <string>
#include <vector>

namespace orthant::graph {

/// A warning each, with counts, the same on all ranks. Reads labels and masks, and features as far as they are equal.
/// Collective; throws as the store does.
[[nodiscard]] std::vector<std::string> check_data(runtime::Communicator const& comm, GraphStore const& store);

} // namespace orthant::graph
