#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A name for the data set in a store, the same for every permutation of its vertices.

#include "graph/store/store_reader.hpp"

#include <string>

namespace orthant::graph {

/// 16 hexadecimal digits that depend on the facts but the permutation, the name and the seed, and for every
/// original vertex on its degree, its label, its parts of the split, and its first and last dense feature. Two
/// data sets that differ in one of these have different fingerprints; other features and the ends of edges
/// are not read. Reads N / P positions per rank. Collective. Throws UserError if the store is damaged.
[[nodiscard]] std::string fingerprint_of(runtime::Communicator const& comm, GraphStore const& store);

/// The same of which vertices are in which of the store's clusters. Collective.
[[nodiscard]] std::string fingerprint_of_clusters(runtime::Communicator const& comm, GraphStore const& store);

} // namespace orthant::graph
