#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Numbers that every rank of a group reads whole and of which it updates a piece, such as the weights of a
// network whose rows are split over all ranks. The array is cut in equal pieces, the last ones padded: over y,
// each part over x, and each of those over z.
//
//   gather    over z, x, y     every rank gets the whole array
//   sum       over y, x, z     of whole arrays of addends, every rank gets its piece of the sum
//
// A rank sends (1 - 1/P) of the array in each direction, as one ring of all P ranks would, but in
// (X - 1) + (Y - 1) + (Z - 1) steps in place of P - 1, and the largest messages go to the nearest ranks. One
// rank adds up each number, so all copies have the same bits.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>
#include <string>

namespace orthant::pmm {

/// Which numbers of an array of `length` are on which rank of a group.
struct FlatCut {
  FlatCut(GridShape const& shape, Coordinates const& coordinates, std::int64_t length);

  std::int64_t num_padded = 0; // of the whole array: a multiple of the ranks
  Range piece;                 // of this rank; it may reach into the padding

  /// The part of [begin, begin + count) that this rank's piece has, counted from `begin`.
  [[nodiscard]] Range own_part(std::int64_t begin, std::int64_t count) const;
};

/// Lists the calls of FlatValues::gather() and of FlatSums::sum(), and the arrays of both.
void plan_flat_gather(StepPlan& step, std::int64_t length);
void plan_flat_sum(StepPlan& step, std::int64_t length);
void plan_flat_values(StepPlan& step, std::int64_t length, std::string const& label);
void plan_flat_sums(StepPlan& step, std::int64_t length, std::string const& label);

/// The numbers, whole on every rank. This rank's piece lies in the whole array.
template<class T>
class FlatValues {
 public:
  /// Empty.
  FlatValues() = default;
  /// Zero. `grid` must outlive it. Not collective.
  FlatValues(ProcessGrid const& grid, std::int64_t length, std::string const& label);

  [[nodiscard]] Vector<T> const& whole() const { return whole_; }
  [[nodiscard]] Vector<T> const& piece() const { return piece_; }

  /// The whole array := the pieces of all ranks. At most three calls of all_gather, in place. Enqueues on
  /// exec. Collective over z, x and y.
  void gather(DefaultExec const& exec) const;

 private:
  ProcessGrid const* grid_ = nullptr;
  Vector<T> whole_;
  Vector<T> piece_;
};

/// Addends of a sum over the ranks of a group: a whole array on every rank, and this rank's piece of the sum.
template<class T>
class FlatSums {
 public:
  /// Empty.
  FlatSums() = default;
  /// Zero. `grid` must outlive it. Not collective.
  FlatSums(ProcessGrid const& grid, std::int64_t length, std::string const& label);

  /// This rank's addends, which sum() keeps.
  [[nodiscard]] Vector<T> const& whole() const { return whole_; }
  [[nodiscard]] Vector<T> const& piece() const { return piece_; }

  /// The piece := its sum over all ranks. At most three calls of reduce_scatter. Enqueues on exec. Collective
  /// over y, x and z.
  void sum(DefaultExec const& exec) const;

 private:
  ProcessGrid const* grid_ = nullptr;
  Vector<T> whole_;
  Vector<T> piece_;    // of a group of one: the whole array
  Vector<T> half_way_; // sums over y, and over y and x
};

extern template class FlatValues<float>;
extern template class FlatValues<double>;
extern template class FlatSums<float>;
extern template class FlatSums<double>;

} // namespace orthant::pmm
