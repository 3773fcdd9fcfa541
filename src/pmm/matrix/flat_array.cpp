// SPDX-License-Identifier: Apache-2.0
#include "pmm/matrix/flat_array.hpp"

#include "runtime/arrays/views.hpp"

#include <algorithm>
#include <array>
#include <ranges>

namespace orthant::pmm {
namespace {

using runtime::part_of;

/// Axes in the order in which the array is split over them.
constexpr std::array flat_axes{Axis::y, Axis::x, Axis::z};

/// Length of the intermediate sums, first over one axis and then over two, if they are longer than a piece.
std::int64_t length_half_way(GridShape const& shape, std::int64_t num_padded) {
  auto const piece = num_padded / shape.size(group_axes);
  std::int64_t sum = 0;
  for (auto const axis : flat_axes) {
    if (shape.size(axis) == 1) continue;
    num_padded /= shape.size(axis);
    if (num_padded > piece) sum += num_padded;
  }
  return sum;
}

template<class T>
Vector<T> make_array(std::string const& label, std::int64_t length) {
  return runtime::make_zeros<T>(label, static_cast<std::size_t>(length));
}

} // namespace

FlatCut::FlatCut(GridShape const& shape, Coordinates const& coordinates, std::int64_t length) {
  auto const num_pieces = std::int64_t{shape.size(group_axes)};
  auto const size = (length + num_pieces - 1) / num_pieces;
  num_padded = size * num_pieces;
  std::int64_t place = 0;
  for (auto const axis : flat_axes)
    place = place * shape.size(axis) + coordinates.along(axis);
  piece = {place * size, (place + 1) * size};
}

Range FlatCut::own_part(std::int64_t begin, std::int64_t count) const {
  auto const first = std::clamp(piece.begin - begin, std::int64_t{0}, count);
  return {first, std::clamp(piece.end - begin, first, count)};
}

void plan_flat_gather(StepPlan& step, std::int64_t length) {
  FlatCut const cut(step.shape(), step.coordinates(), length);
  auto gathered = cut.piece.size();
  if (gathered == 0) return;
  for (auto const axis : flat_axes | std::views::reverse) {
    gathered *= step.shape().size(axis);
    step.add_call(runtime::Operation::all_gather, axis, step.scalar_bytes(gathered));
  }
}

void plan_flat_sum(StepPlan& step, std::int64_t length) {
  auto addends = FlatCut(step.shape(), step.coordinates(), length).num_padded;
  if (addends == 0) return;
  for (auto const axis : flat_axes) {
    step.add_call(runtime::Operation::reduce_scatter, axis, step.scalar_bytes(addends));
    addends /= step.shape().size(axis);
  }
}

void plan_flat_values(StepPlan& step, std::int64_t length, std::string const& label) {
  FlatCut const cut(step.shape(), step.coordinates(), length);
  step.add_array(label, step.scalar_bytes(cut.num_padded));
}

void plan_flat_sums(StepPlan& step, std::int64_t length, std::string const& label) {
  FlatCut const cut(step.shape(), step.coordinates(), length);
  step.add_array(label, step.scalar_bytes(cut.num_padded));
  if (step.shape().size(group_axes) == 1) return;
  step.add_array(label + "/piece", step.scalar_bytes(cut.piece.size()));
  step.add_array(label + "/half_way", step.scalar_bytes(length_half_way(step.shape(), cut.num_padded)));
}

template<class T>
FlatValues<T>::FlatValues(ProcessGrid const& grid, std::int64_t length, std::string const& label)
    : grid_(&grid) {
  FlatCut const cut(grid.shape(), grid.coordinates(), length);
  whole_ = make_array<T>(label, cut.num_padded);
  piece_ = Kokkos::subview(
      whole_, std::pair(static_cast<std::size_t>(cut.piece.begin), static_cast<std::size_t>(cut.piece.end)));
}

template<class T>
void FlatValues<T>::gather(DefaultExec const& exec) const {
  if (whole_.extent(0) == 0) return;
  auto const begin = static_cast<std::int64_t>(piece_.data() - whole_.data());
  Range part{begin, begin + static_cast<std::int64_t>(piece_.extent(0))};
  for (auto const axis : flat_axes | std::views::reverse) {
    auto const num_parts = grid_->size(axis);
    if (num_parts == 1) continue;
    auto const first = part.begin - grid_->coordinate(axis) * part.size();
    Range const gathered{first, first + num_parts * part.size()};
    runtime::all_gather(exec, grid_->over(axis), part_of(whole_, part), part_of(whole_, gathered));
    part = gathered;
  }
}

template<class T>
FlatSums<T>::FlatSums(ProcessGrid const& grid, std::int64_t length, std::string const& label) : grid_(&grid) {
  FlatCut const cut(grid.shape(), grid.coordinates(), length);
  whole_ = make_array<T>(label, cut.num_padded);
  if (grid.size(group_axes) == 1) {
    piece_ = whole_;
    return;
  }
  piece_ = make_array<T>(label + "/piece", cut.piece.size());
  half_way_ = make_array<T>(label + "/half_way", length_half_way(grid.shape(), cut.num_padded));
}

template<class T>
void FlatSums<T>::sum(DefaultExec const& exec) const {
  if (whole_.extent(0) == 0) return;
  auto from = whole_;
  std::int64_t begin = 0; // offset of the first unused number of half_way_
  for (auto const axis : flat_axes) {
    if (grid_->size(axis) == 1) continue;
    auto const length = static_cast<std::int64_t>(from.extent(0)) / grid_->size(axis);
    auto const is_piece = length == static_cast<std::int64_t>(piece_.extent(0));
    auto const to = is_piece ? piece_ : part_of(half_way_, {begin, begin + length});
    runtime::reduce_scatter(exec, grid_->over(axis), from, to);
    begin += length;
    from = to;
  }
}

template class FlatValues<float>;
template class FlatValues<double>;
template class FlatSums<float>;
template class FlatSums<double>;

} // namespace orthant::pmm
