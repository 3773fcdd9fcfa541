#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The rows of a matrix of vertices by original id, whatever its layout is: whole rows, brought to the ranks a
// slice of the ids at a time, so that beside its own block a rank holds a slice's rows: those it sends, and its share.

#include "graph/store/store_reader.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

namespace orthant::models {

template<class T>
class RowsById {
 public:
  /// Of `matrix`, whose rows are vertices in an order of the store; on a device its numbers are copied to the
  /// host. `grid` and `matrix` must outlive it. Collective over the grid's world. Throws UserError if the store
  /// cannot be read. Memory: 16 bytes per row of this rank's block.
  RowsById(pmm::ProcessGrid const& grid, graph::GraphStore const& store, pmm::DistMatrix<T> const& matrix);

  [[nodiscard]] std::int64_t width() const { return width_; }

  /// The rows of the vertices in this rank's balanced part of `ids`, [size of the part x width()], row-major.
  /// `ids` is the same on all ranks. Collective over the grid's world. Each number is sent once.
  [[nodiscard]] std::vector<T> bring(runtime::Range ids) const;

 private:
  struct Place {
    std::int64_t id;
    std::int64_t row; // of the block
  };
  [[nodiscard]] runtime::Range columns_of(int rank) const;

  pmm::ProcessGrid const& grid_;
  pmm::Placement placement_;
  std::int64_t width_;
  decltype(Kokkos::create_mirror_view(std::declval<runtime::Matrix<T> const&>())) numbers_; // of the block
  std::vector<Place> places_; // by id; empty if another rank has the same rows and sends them
};

extern template class RowsById<float>;
extern template class RowsById<double>;

// What a network says of every vertex, by original id, in a file (prediction_file.hpp).
//
//   one class       class_i = arg max_j z_ij, the smallest of equals      p_ij = exp(z_ij) / sum_k exp(z_ik)
//   several         i has class j where z_ij > 0                          p_ij = 1 / (1 + exp(-z_ij))

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
