#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A vector split over an axis (or several, or none) and replicated over the others: biases, scales, whatever
// belongs to the rows or to the columns of a distributed matrix.

#include "pmm/matrix/dist_matrix.hpp"

#include <optional>

namespace orthant::pmm {

template<class T>
class DistVector {
 public:
  DistVector() = default;
  /// Zero. `grid` must outlive the vector.
  DistVector(ProcessGrid const& grid, AxisSet axes, std::int64_t length, std::string const& label,
             Granule const& granule = {})
      : grid_(&grid),
        axes_(axes),
        length_(length),
        range_(part_of(grid.shape(), grid.coordinates(), axes, length, granule)),
        local_(label, static_cast<std::size_t>(range_.size())) {}

  /// The same on lent memory, such as a part of a longer array: as many numbers as `storage` has (Error), which is
  /// left as it is.
  DistVector(ProcessGrid const& grid, AxisSet axes, std::int64_t length, Vector<T> storage,
             Granule const& granule = {})
      : grid_(&grid),
        axes_(axes),
        length_(length),
        range_(part_of(grid.shape(), grid.coordinates(), axes, length, granule)),
        local_(std::move(storage)) {
    require_length();
  }

  /// A whole vector on lent memory, or with `own` that part of it, which no other rank of the group has. As
  /// many numbers as `storage` has (Error), which is left as it is.
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
  /// Global indices that this rank holds.
  [[nodiscard]] Range range() const { return range_; }
  [[nodiscard]] Vector<T> const& local() const { return local_; }
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
  bool is_piece_ = false;
  Vector<T> local_;
};

/// Lists the array of a vector.
inline void plan_vector(StepPlan& step, AxisSet axes, std::int64_t length, std::string label,
                        Granule const& granule = {}) {
  auto const range = part_of(step.shape(), step.coordinates(), axes, length, granule);
  step.add_array(std::move(label), step.scalar_bytes(range.size()));
}

} // namespace orthant::pmm
