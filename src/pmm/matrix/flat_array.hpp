#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Arrays of which every rank of a group reads all elements and updates a part: the weights of a network whose rows are split over all
// ranks. The array is cut into equal pieces, the last ones padded: first over y, then each part over x, and then over z.
//
//   gather    over z, x, y     every rank gets the whole array
//   sum       over y, x, z     sums whole arrays of addends; every rank gets its piece of the sum
//
// A rank sends (1 - 1/P) of the array in each operation, as in a ring of all P ranks, but in (X - 1) + (Y - 1) + (Z - 1) steps instead of
// P - 1, and the largest messages go to the nearest ranks. Only one rank computes each sum, so all copies have the same bits.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>
#include <string>

namespace orthant::pmm {

/// Piece of this rank if an array of `length` numbers is split over a group.
struct FlatCut {
  FlatCut(GridShape const& shape, Coordinates const& coordinates, std::int64_t length);

  std::int64_t num_padded = 0; // padded length of the array: a multiple of the number of ranks
  Range piece;                 // piece of this rank; it may include padding

  /// Intersection of [begin, begin + count) with this rank's piece, relative to `begin`.
  [[nodiscard]] Range own_part(std::int64_t begin, std::int64_t count) const;
};

/// List the calls of FlatValues::gather() and FlatSums::sum(), and the arrays of FlatValues and FlatSums.
void plan_flat_gather(StepPlan& step, std::int64_t length);
void plan_flat_sum(StepPlan& step, std::int64_t length);
void plan_flat_values(StepPlan& step, std::int64_t length, std::string const& label);
void plan_flat_sums(StepPlan& step, std::int64_t length, std::string const& label);

/// Values of an array, which every rank stores as a whole. This rank's piece is a part of the whole array.
template<class T>
class FlatValues {
 public:
  /// Empty.
  FlatValues() = default;
  /// Filled with zeros. `grid` must outlive this object. Not collective.
  FlatValues(ProcessGrid const& grid, std::int64_t length, std::string const& label);

  [[nodiscard]] Vector<T> const& whole() const { return whole_; }
  [[nodiscard]] Vector<T> const& piece() const { return piece_; }

  /// whole() := pieces of all ranks. At most three calls of all_gather, in place. Enqueues on exec. Collective over z, x and y.
  void gather(DefaultExec const& exec) const;

 private:
  ProcessGrid const* grid_ = nullptr;
  Vector<T> whole_;
  Vector<T> piece_;
};

/// Addends of a sum over the ranks of a group: each rank has a whole array of addends, and its piece of the sum.
template<class T>
class FlatSums {
 public:
  /// Empty.
  FlatSums() = default;
  /// Filled with zeros. `grid` must outlive this object. Not collective.
  FlatSums(ProcessGrid const& grid, std::int64_t length, std::string const& label);

  /// This rank's addends. sum() does not change them.
  [[nodiscard]] Vector<T> const& whole() const { return whole_; }
  [[nodiscard]] Vector<T> const& piece() const { return piece_; }

  /// piece() := sum of the addends over all ranks. At most three calls of reduce_scatter. Enqueues on exec. Collective over y, x and z.
  void sum(DefaultExec const& exec) const;

 private:
  ProcessGrid const* grid_ = nullptr;
  Vector<T> whole_;
  Vector<T> piece_;    // same memory as whole_ in a group of one rank
  Vector<T> half_way_; // intermediate sums over y, and over y and x
};

extern template class FlatValues<float>;
extern template class FlatValues<double>;
extern template class FlatSums<float>;
extern template class FlatSums<double>;

} // namespace orthant::pmm
