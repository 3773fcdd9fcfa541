#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A vector split over one axis and replicated over the two others: biases, scales, whatever belongs to the
// rows or to the columns of a distributed matrix.

#include "pmm/matrix/dist_matrix.hpp"

namespace orthant::pmm {

template<class T>
class DistVector {
 public:
  DistVector() = default;
  /// Zero. `grid` must outlive the vector.
  DistVector(ProcessGrid const& grid, Axis axis, std::int64_t length, std::string const& label)
      : grid_(&grid),
        axis_(axis),
        length_(length),
        range_(runtime::balanced_range(length, grid.size(axis), grid.coordinate(axis))),
        local_(label, static_cast<std::size_t>(range_.size())) {}

  [[nodiscard]] ProcessGrid const& grid() const { return *grid_; }
  [[nodiscard]] Axis axis() const { return axis_; }
  [[nodiscard]] std::int64_t length() const { return length_; }
  /// Global indices that this rank holds.
  [[nodiscard]] Range range() const { return range_; }
  [[nodiscard]] Vector<T> const& local() const { return local_; }
  [[nodiscard]] bool is_first_replica() const {
    for (auto const other : spatial_axes)
      if (other != axis_ && grid_->coordinate(other) != 0) return false;
    return true;
  }

 private:
  ProcessGrid const* grid_ = nullptr;
  Axis axis_ = Axis::x;
  std::int64_t length_ = 0;
  Range range_;
  Vector<T> local_;
};

/// Lists the array of a vector.
inline void plan_vector(StepPlan& step, Axis axis, std::int64_t length, std::string label) {
  auto const range = runtime::balanced_range(length, step.shape().size(axis), step.coordinates().along(axis));
  step.add_array(std::move(label), step.scalar_bytes(range.size()));
}

} // namespace orthant::pmm
