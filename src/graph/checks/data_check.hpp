#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Finds data from which a network learns little: labels of one class, empty parts of a split, features that are all equal.

#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"

#include <string>
#include <vector>

namespace orthant::graph {

/// One warning with counts for each finding, equal on all ranks. Reads labels and masks, and features up to the first difference.
/// Collective. Throws UserError if the store is damaged.
[[nodiscard]] std::vector<std::string> check_data(runtime::Communicator const& comm, GraphStore const& store);

} // namespace orthant::graph
