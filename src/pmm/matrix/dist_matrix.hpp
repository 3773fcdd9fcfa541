#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A dense matrix over the grid: a placement, and this rank's piece in one contiguous array. A copy shares
// the numbers, as Views do.

#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/huge_pages.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/error.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace orthant::pmm {

using runtime::DefaultExec;
using runtime::Matrix;
using runtime::Vector;

/// The first rows x columns numbers of `numbers` as a matrix. Shares the memory, and does not keep it alive.
template<class T>
[[nodiscard]] Matrix<T> as_matrix(Vector<T> const& numbers, std::int64_t num_rows, std::int64_t num_columns) {
  ORTHANT_REQUIRE(num_rows * num_columns <= static_cast<std::int64_t>(numbers.extent(0)), num_rows, " x ",
                  num_columns, " in ", numbers.extent(0));
  return Matrix<T>(numbers.data(), static_cast<std::size_t>(num_rows), static_cast<std::size_t>(num_columns));
}

template<class T>
class DistMatrix {
 public:
  DistMatrix() = default;

  /// Zero. Local, but every rank of the grid builds its own. `grid` must outlive the matrix.
  DistMatrix(ProcessGrid const& grid, Placement const& placement, std::string const& label)
      : DistMatrix(grid, placement,
                   runtime::make_zeros<T>(
                       label, static_cast<std::size_t>(pmm::block_of(grid, placement).num_padded))) {}

  /// On lent memory: the first block().num_padded numbers of `storage`, which is at least that long (Error)
  /// and is left as it is.
  DistMatrix(ProcessGrid const& grid, Placement const& placement, Vector<T> storage)
      : grid_(&grid),
        placement_(placement),
        block_(pmm::block_of(grid, placement)) {
    ORTHANT_REQUIRE(block_.num_padded <= static_cast<std::int64_t>(storage.extent(0)), "storage of ",
                    storage.extent(0), " for ", placement.to_string());
    storage_ = Kokkos::subview(std::move(storage),
                               std::pair(std::size_t{0}, static_cast<std::size_t>(block_.num_padded)));
  }

  DistMatrix(DistMatrix const&) = default;
  DistMatrix& operator=(DistMatrix const&) = default;
  // Moved from, it holds no memory: a View that was moved from still does.
  DistMatrix(DistMatrix&& other) noexcept { *this = std::move(other); }
  DistMatrix& operator=(DistMatrix&& other) noexcept {
    grid_ = other.grid_;
    placement_ = other.placement_;
    block_ = other.block_;
    storage_ = std::exchange(other.storage_, {});
    return *this;
  }
  ~DistMatrix() = default;

  [[nodiscard]] ProcessGrid const& grid() const { return *grid_; }
  [[nodiscard]] Placement const& placement() const { return placement_; }
  [[nodiscard]] Layout const& layout() const { return placement_.layout; }
  [[nodiscard]] Extents const& extents() const { return placement_.extents; }
  /// Global ranges of rows and columns, and which of the block's elements this rank stores.
  [[nodiscard]] Block const& block() const { return block_; }
  /// Whether this rank's piece is the one that counts among equal copies along the third axis.
  [[nodiscard]] bool is_first_replica() const {
    return layout().storage != Storage::replicated || grid_->coordinate(layout().third()) == 0;
  }

  /// This rank's piece, [num_padded], padding at its end: zero, in lent memory any value.
  [[nodiscard]] Vector<T> const& storage() const { return storage_; }
  /// The piece as a matrix, [stored_rows x columns of the block]. A flat shard must be the whole block (Error).
  /// Shares the memory, and does not keep it alive.
  [[nodiscard]] Matrix<T> local() const {
    ORTHANT_REQUIRE(layout().storage != Storage::flat_sharded || grid_->size(layout().third()) == 1,
                    "a flat shard is no matrix: ", placement_.to_string());
    return as_matrix(storage_, block_.stored_rows.size(), block_.columns.size());
  }

 private:
  ProcessGrid const* grid_ = nullptr;
  Placement placement_;
  Block block_;
  Vector<T> storage_;
};

/// Lists the array of a matrix of that placement. `format`: of its numbers; native is the scalar of training.
inline void plan_matrix(StepPlan& step, Placement const& placement, std::string label,
                        Lifetime lifetime = Lifetime::training, Wire format = Wire::native) {
  step.add_array(std::move(label), step.wire_bytes(step.block(placement).num_padded, format), lifetime);
}

/// to := from, of as many numbers with padding. A pass. Enqueues on exec; does not fence.
template<class T>
void copy_numbers(DefaultExec const& exec, DistMatrix<T> const& from, DistMatrix<T> const& to) {
  auto const bytes = runtime::array_bytes(from.storage());
  from.grid().passes().add({"copy", bytes, bytes});
  Kokkos::deep_copy(exec, to.storage(), from.storage());
}
/// Lists it.
inline void plan_copy(StepPlan& step, Placement const& placement) {
  auto const bytes = step.scalar_bytes(step.block(placement).num_padded);
  step.add_pass({"copy", bytes, bytes});
}

/// matrix(row, column) := value_at(row, column), global indices; `value_at` runs in kernels. Padding stays
/// zero. Enqueues on exec; does not fence.
template<class T, class Function>
void fill(DefaultExec const& exec, DistMatrix<T> const& matrix, Function const& value_at) {
  auto const block = matrix.block();
  auto const data = matrix.storage();
  auto const num_columns = block.columns.size();
  Kokkos::parallel_for(
      "orthant::pmm::fill", Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, block.num_stored),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto const place = block.first + i;
        data(static_cast<std::size_t>(i)) =
            value_at(block.rows.begin + place / num_columns, block.columns.begin + place % num_columns);
      });
}

} // namespace orthant::pmm
