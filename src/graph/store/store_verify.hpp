#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Checks a store whose checksums are all right for contradictions between its arrays.
//
// Two arrays that must have the same content in different orders are compared by sums of 64-bit hashes of their elements, which ranks can
// add in any order. The checks are: original_ids contain every vertex once, positions lead to the same vertex, both orders have the same
// data of a vertex, a symmetric matrix equals its transpose, the odd matrix equals the even one, and degrees count the entries of their
// rows. Equal sums of different content have probability 2^-64 unless someone constructed them on purpose.

#include "graph/store/store_file.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"

namespace orthant::graph {

/// Verifies the whole store, each rank a share, in about 64 MiB of memory. Throws a UserError on all ranks with the file and the
/// contradiction. Cost: each rank reads its share of all arrays, and the original ids of all columns. Collective.
void verify_store(runtime::Communicator const& comm, StoreFile const& file, GraphStore const& store);

} // namespace orthant::graph
