#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What can be said against a store whose every checksum is right: that its arrays contradict each other.
//
// Two arrays that must hold the same things in different orders are compared by sums of 64-bit hashes over
// their elements, which any rank adds up in any order: original_ids hold every vertex once, positions lead to
// the same vertex, both orders say the same of a vertex, a symmetric matrix equals its transpose, the odd
// matrix equals the even one, and degrees count the entries of their rows. Equal sums of different things
// have probability 2^-64 unless somebody searched for them.

#include "graph/store/store_file.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"

namespace orthant::graph {

/// Compares the whole store, each rank a share, in memory of some 64 MiB. UserError, the same on all ranks,
/// names the file and what is wrong in it. Collective. Cost: each rank reads its share of all arrays, and the
/// original ids of all columns.
void verify_store(runtime::Communicator const& comm, StoreFile const& file, GraphStore const& store);

} // namespace orthant::graph
