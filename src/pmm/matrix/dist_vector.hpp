#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A vector split over an axis (or several, or none) and replicated over the others: biases, scales, whatever
// belongs to the rows or to the columns of a distributed matrix.

#include "pmm/matrix/dist_matrix.hpp"

namespace orthant::pmm {

template<class T>
class DistVector {
 public:
  DistVector() = default;
  /// Zero. `grid` must outlive the vector.
  DistVector(ProcessGrid const& grid, AxisSet axes, std::int64_t length, std::string const& label,
             std::int64_t granule = 1)
      : grid_(&grid),
        axes_(axes),
        length_(length),
        range_(part_of(grid.shape(), grid.coordinates(), axes, length, granule)),
        local_(label, static_cast<std::size_t>(range_.size())) {}

  [[nodiscard]] ProcessGrid const& grid() const { return *grid_; }
  [[nodiscard]] AxisSet axes() const { return axes_; }
  [[nodiscard]] std::int64_t length() const { return length_; }
  /// Global indices that this rank holds.
  [[nodiscard]] Range range() const { return range_; }
  [[nodiscard]] Vector<T> const& local() const { return local_; }
  [[nodiscard]] bool is_first_replica() const { return grid_->coordinate(group_axes.without(axes_)) == 0; }

 private:
  ProcessGrid const* grid_ = nullptr;
  AxisSet axes_ = Axis::x;
  std::int64_t length_ = 0;
  Range range_;
  Vector<T> local_;
};

/// Lists the array of a vector.
inline void plan_vector(StepPlan& step, AxisSet axes, std::int64_t length, std::string label) {
  auto const range = part_of(step.shape(), step.coordinates(), axes, length);
  step.add_array(std::move(label), step.scalar_bytes(range.size()));
}

} // namespace orthant::pmm
