#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The class of every vertex, by original id, in an HDF5 file: /predictions int32 [N].

#include "models/gnn/gcn.hpp"

#include <filesystem>

namespace orthant::models {

/// Writes the arg-max class of each row of `logits` (ties: the smallest class). Collective over the grid's
/// world. Throws UserError where the file cannot be written.
template<class T>
void write_predictions(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                       pmm::DistMatrix<T> const& logits, std::filesystem::path const& path);

} // namespace orthant::models
