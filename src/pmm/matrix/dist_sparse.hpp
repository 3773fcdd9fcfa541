#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A sparse matrix over the grid: this rank's block in CSR, replicated over the third axis, and its transpose
// if adjoints need it. It is always a left operand: C := A B, and dB := A^T dC.

#include "pmm/grid/layout.hpp"
#include "pmm/spmm/local_spmm.hpp"
#include "runtime/error.hpp"

#include <utility>

namespace orthant::pmm {

/// Whether A^T is kept too, which takes 4 bytes more per non-zero of a pattern.
enum class Adjoint : std::uint8_t { none, kept };

template<class T>
class DistSparse {
 public:
  DistSparse() = default;

  /// `block`: this rank's rows and columns, local indices; its numbers must not change. Builds the transpose
  /// if it is kept. Throws Error if the block does not have the placement's extents or the layout is sharded.
  /// Not collective.
  DistSparse(ProcessGrid const& grid, Placement const& placement, SparseBlock<T> const& block,
             Adjoint adjoint)
      : DistSparse(grid, placement, LocalSpmm<T>(block, Contents::fixed),
                   adjoint == Adjoint::kept ? LocalSpmm<T>(transposed(block), Contents::fixed)
                                            : LocalSpmm<T>()) {}

  /// The same with a transpose that is there already: A_odd = A_even^T shares both.
  DistSparse(ProcessGrid const& grid, Placement const& placement, LocalSpmm<T> forward, LocalSpmm<T> adjoint)
      : grid_(&grid),
        placement_(placement),
        block_(pmm::block_of(grid, placement)),
        forward_(std::move(forward)),
        adjoint_(std::move(adjoint)) {
    ORTHANT_REQUIRE(placement.layout.storage == Storage::replicated, "a sparse matrix is replicated, not ",
                    placement.to_string());
    auto const& csr = forward_.block().csr;
    ORTHANT_REQUIRE(csr.num_rows == block_.rows.size() && csr.num_columns == block_.columns.size(),
                    "a block of ", csr.num_rows, " x ", csr.num_columns, " for ", block_.rows.size(), " x ",
                    block_.columns.size(), " of ", placement.to_string());
  }

  [[nodiscard]] ProcessGrid const& grid() const { return *grid_; }
  [[nodiscard]] Placement const& placement() const { return placement_; }
  [[nodiscard]] Block const& block() const { return block_; }
  [[nodiscard]] LocalSpmm<T> const& forward() const { return forward_; }
  /// Throws Error if it was not kept.
  [[nodiscard]] LocalSpmm<T> const& adjoint() const {
    ORTHANT_REQUIRE(adjoint_.block().csr.num_rows == block_.columns.size() &&
                        adjoint_.block().csr.num_columns == block_.rows.size(),
                    "the transpose was not kept: ", placement_.to_string());
    return adjoint_;
  }

 private:
  ProcessGrid const* grid_ = nullptr;
  Placement placement_;
  Block block_;
  LocalSpmm<T> forward_;
  LocalSpmm<T> adjoint_;
};

} // namespace orthant::pmm
