#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Matrices and vectors distributed over the grid. A dense matrix has a placement and this rank's piece in one contiguous array; copies of
// the object share the memory, as Views do. Sparse matrices and vectors follow below.

#include "pmm/cost/step_plan.hpp"
#include "pmm/grid/layout.hpp"
#include "pmm/spmm/local_spmm.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/error.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace orthant::pmm {

using runtime::DefaultExec;
using runtime::Matrix;
using runtime::Vector;

/// Returns the first num_rows x num_columns numbers as a matrix, which borrows the memory: `numbers` must outlive it. Throws Error if
/// `numbers` is shorter.
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

  /// Allocates this rank's piece, filled with zeros. Not collective, but every rank of the grid must create its piece. `grid` must outlive
  /// the matrix.
  DistMatrix(ProcessGrid const& grid, Placement const& placement, std::string const& label)
      : DistMatrix(grid, placement,
                   runtime::make_zeros<T>(
                       label, static_cast<std::size_t>(pmm::block_of(grid, placement).num_padded))) {}

  /// Uses the first block().num_padded numbers of `storage`, which are not changed. Throws Error if `storage` is shorter.
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
  // A matrix that was moved from must not keep the memory, as a moved-from View would.
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
  /// True if this rank's piece is the first of the equal copies along the third axis, or if there are no copies.
  [[nodiscard]] bool is_first_replica() const {
    return layout().storage != Storage::replicated || grid_->coordinate(layout().third()) == 0;
  }

  /// This rank's piece, [num_padded], with padding at its end. The padding is zero; in memory passed to the constructor it has any value.
  [[nodiscard]] Vector<T> const& storage() const { return storage_; }
  /// The piece as a matrix, [stored_rows x columns of the block], which borrows the memory of this object. Throws Error for a flat shard
  /// that is not the whole block.
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

/// Lists the array of a matrix with this placement. `format`: format of its numbers; native is the scalar of training.
inline void plan_matrix(StepPlan& step, Placement const& placement, std::string label,
                        Lifetime lifetime = Lifetime::training, Wire format = Wire::native) {
  step.add_array(std::move(label), step.wire_bytes(step.block(placement).num_padded, format), lifetime);
}

/// to := from, including padding. Both must store the same number of elements. Counts as a pass. Enqueues on exec; does not fence.
template<class T>
void copy_numbers(DefaultExec const& exec, DistMatrix<T> const& from, DistMatrix<T> const& to) {
  auto const bytes = runtime::array_bytes(from.storage());
  from.grid().passes().add({"copy", bytes, bytes});
  Kokkos::deep_copy(exec, to.storage(), from.storage());
}
/// Lists the pass of copy_numbers().
inline void plan_copy(StepPlan& step, Placement const& placement) {
  auto const bytes = step.scalar_bytes(step.block(placement).num_padded);
  step.add_pass({"copy", bytes, bytes});
}

/// matrix(row, column) := value_at(row, column) with global indices. `value_at` runs in kernels. Does not change padding. Enqueues on exec;
/// does not fence.
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

/// A vector that is split over one axis, several or none, and replicated over the others: biases, scales and other numbers per row or
/// column of a distributed matrix.
template<class T>
class DistVector {
 public:
  DistVector() = default;
  /// Allocates this rank's part, filled with zeros. `grid` must outlive the vector.
  DistVector(ProcessGrid const& grid, AxisSet axes, std::int64_t length, std::string const& label,
             Granule const& granule = {})
      : grid_(&grid),
        axes_(axes),
        length_(length),
        range_(part_of(grid.shape(), grid.coordinates(), axes, length, granule)),
        granule_(granule),
        local_(label, static_cast<std::size_t>(range_.size())) {}

  /// Uses the memory `storage`, for example a part of a longer array. Its contents are not changed. Throws Error unless it has the length
  /// of this rank's part.
  DistVector(ProcessGrid const& grid, AxisSet axes, std::int64_t length, Vector<T> storage,
             Granule const& granule = {})
      : grid_(&grid),
        axes_(axes),
        length_(length),
        range_(part_of(grid.shape(), grid.coordinates(), axes, length, granule)),
        granule_(granule),
        local_(std::move(storage)) {
    require_length();
  }

  /// A vector of which this rank has nothing.
  [[nodiscard]] static DistVector elsewhere(ProcessGrid const& grid, AxisSet axes, std::int64_t length) {
    DistVector nothing(grid, length, Vector<T>(), Range{0, 0});
    nothing.axes_ = axes;
    return nothing;
  }

  /// A whole vector in the memory `storage`, or the part `own` of it, which no other rank of the group has. `storage` is not changed.
  /// Throws Error unless it has the length of the vector or of the part.
  DistVector(ProcessGrid const& grid, std::int64_t length, Vector<T> storage,
             std::optional<Range> own = std::nullopt)
      : grid_(&grid),
        axes_({}),
        length_(length),
        range_(own.value_or(Range{0, length})),
        is_piece_(own.has_value()),
        local_(std::move(storage)) {
    require_length();
  }

  [[nodiscard]] ProcessGrid const& grid() const { return *grid_; }
  [[nodiscard]] AxisSet axes() const { return axes_; }
  [[nodiscard]] std::int64_t length() const { return length_; }
  /// Range of global indices that this rank stores.
  [[nodiscard]] Range range() const { return range_; }
  [[nodiscard]] Vector<T> const& local() const { return local_; }
  /// Length of the largest part: the same on all ranks. Of a part that no other rank has, its own length.
  [[nodiscard]] std::int64_t largest_part() const {
    return is_piece_ ? range_.size() : pmm::largest_part(grid_->shape(), axes_, length_, granule_);
  }
  [[nodiscard]] bool is_first_replica() const {
    return is_piece_ || grid_->coordinate(group_axes.without(axes_)) == 0;
  }

 private:
  void require_length() const {
    ORTHANT_REQUIRE(range_.size() == static_cast<std::int64_t>(local_.extent(0)), "storage of ",
                    local_.extent(0), " for ", range_.size(), " numbers");
  }

  ProcessGrid const* grid_ = nullptr;
  AxisSet axes_ = Axis::x;
  std::int64_t length_ = 0;
  Range range_;
  Granule granule_;
  bool is_piece_ = false;
  Vector<T> local_;
};

/// Lists the array of a vector.
inline void plan_vector(StepPlan& step, AxisSet axes, std::int64_t length, std::string label,
                        Granule const& granule = {}) {
  auto const range = part_of(step.shape(), step.coordinates(), axes, length, granule);
  step.add_array(std::move(label), step.scalar_bytes(range.size()));
}

/// Whether A^T is also kept, which takes 4 more bytes per non-zero of a pattern.
enum class Adjoint : std::uint8_t { none, kept };

/// A distributed sparse matrix: this rank's block in CSR, replicated over the third axis, and its transpose if adjoints need it. It is
/// always a left operand: C := A B, and dB := A^T dC.
template<class T>
class DistSparse {
 public:
  DistSparse() = default;

  /// `block`: this rank's rows and columns, with local indices; its values must not change afterwards. Also computes the transpose if
  /// `adjoint` is kept. Throws Error if the extents of the block and of the placement differ, or if the storage is not replicated. Not
  /// collective.
  DistSparse(ProcessGrid const& grid, Placement const& placement, SparseBlock<T> const& block,
             Adjoint adjoint)
      : DistSparse(grid, placement, LocalSpmm<T>(block, Contents::fixed),
                   adjoint == Adjoint::kept ? LocalSpmm<T>(transposed(block), Contents::fixed)
                                            : LocalSpmm<T>()) {}

  /// As above, with an existing transpose. With A_odd = A_even^T, two matrices can share both blocks.
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
  /// Product with the transpose. Throws Error if it was not kept.
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
