#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The rows of a matrix of vertices by original id, whatever its layout is: whole rows, brought to the ranks a
// slice of the ids at a time, so that beside its own block a rank holds a slice's rows: those it sends, and its share.

#include "graph/store/store_reader.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>
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

} // namespace orthant::models
