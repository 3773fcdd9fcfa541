#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a network says of every vertex, by original id, in a file (prediction_file.hpp).
//
//   one class       class_i = arg max_j z_ij, the smallest of equals      p_ij = exp(z_ij) / sum_k exp(z_ik)
//   several         i has class j where z_ij > 0                          p_ij = 1 / (1 + exp(-z_ij))

#include "graph/store/store_reader.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <filesystem>

namespace orthant::models {

/// Writes the classes of `logits`, the probabilities if `has_probabilities`, and the rows of `embeddings`
/// unless it is null: both matrices have a row per vertex, in any layout and order of the store. Every rank
/// writes its share of each slice of the ids. Probabilities are computed in double. Collective over the grid's
/// world. Throws UserError if the file cannot be written, or its name does not fit (prediction_file.hpp).
/// Memory beside the matrices: about 100 MiB per rank, and 500 MiB on one that has all rows of a slice (the order
/// of the store is that of the ids). Sends each number once.
template<class T>
void write_predictions(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                       pmm::DistMatrix<T> const& logits, bool has_probabilities,
                       pmm::DistMatrix<T> const* embeddings, std::filesystem::path const& path);

} // namespace orthant::models
