// SPDX-License-Identifier: Apache-2.0
#include "pmm/neighbors/edge_maximum.hpp"

#include "runtime/comm/collectives.hpp"

#include <limits>

namespace orthant::pmm {
namespace {

using runtime::ValueIndex;

/// Number of columns per work item: it reads the list of a row once for all of them.
constexpr std::int64_t columns_at_once = 16;
std::int64_t num_pieces(std::int64_t width) {
  return (width + columns_at_once - 1) / columns_at_once;
}
KOKKOS_INLINE_FUNCTION std::int64_t end_of_piece(std::int64_t first, std::int64_t width) {
  return first + columns_at_once < width ? first + columns_at_once : width;
}

LocalPass pass_of_keeping(std::int64_t count, std::int64_t scalar_bytes) {
  auto const places = count * static_cast<std::int64_t>(sizeof(LocalColumn));
  return {"keep_maximum", count * static_cast<std::int64_t>(sizeof(ValueIndex<double>)) + places,
          places + count * scalar_bytes};
}

/// While ranks are compared, a NaN is represented by infinity with its id minus this shift. Therefore a NaN is larger than all numbers,
/// including infinity, and of several NaNs the one with the smallest id is chosen. Ids of columns must be less than the shift.
constexpr std::int64_t shift_of_nan = std::int64_t{1} << 62;
/// Id that stands for "no edge" in a row without edges. It is larger than all others, so any edge of another rank replaces it.
constexpr std::int64_t no_column = std::numeric_limits<std::int64_t>::max();
template<class T>
KOKKOS_INLINE_FUNCTION ValueIndex<T> candidate(T value, std::int64_t id) {
  if (value == value) return {value, id};
  return {std::numeric_limits<T>::infinity(), id - shift_of_nan};
}
template<class T>
KOKKOS_INLINE_FUNCTION std::int64_t id_of(ValueIndex<T> const& found) {
  return found.index < 0 ? found.index + shift_of_nan : found.index;
}
template<class T>
KOKKOS_INLINE_FUNCTION T value_of(ValueIndex<T> const& found) {
  return found.index < 0 ? std::numeric_limits<T>::quiet_NaN() : found.value;
}

/// Finds the maximum over this rank's columns, and the column that has it. `skips`: edges with the number 0 in `kept` are left out.
template<class T, bool skips>
struct Maxima {
  Offset const* offsets;
  LocalColumn const* columns;
  T const* kept;
  std::int64_t const* ids;
  std::int64_t width;
  T const* y;
  ValueIndex<T>* found;
  LocalColumn* places;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t piece) const {
    auto const first = piece * columns_at_once;
    auto const count = end_of_piece(first, width) - first;
    T best[columns_at_once];
    LocalColumn place[columns_at_once];
    for (std::int64_t c = 0; c < count; ++c) {
      best[c] = 0;
      place[c] = -1;
    }
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      if (skips && kept[e] == 0) continue;
      auto const column = columns[e];
      auto const* const numbers = y + column * width + first;
      for (std::int64_t c = 0; c < count; ++c) {
        auto const value = numbers[c];
        auto const is_nan = value != value, best_is_nan = best[c] != best[c];
        auto const is_tie = is_nan ? best_is_nan : value == best[c];
        auto const is_larger = is_nan ? !best_is_nan : value > best[c];
        if (place[c] < 0 || is_larger || (is_tie && ids[column] < ids[place[c]])) {
          best[c] = value;
          place[c] = column;
        }
      }
    }
    for (std::int64_t c = 0; c < count; ++c) {
      auto const at = row * width + first + c;
      places[at] = place[c];
      found[at] = place[c] < 0 ? ValueIndex<T>{-std::numeric_limits<T>::infinity(), no_column}
                               : candidate(best[c], ids[place[c]]);
    }
  }
};

/// Keeps only the places of maxima over all ranks, and writes p.
template<class T>
struct Keep {
  MaximumPart part;
  std::int64_t const* ids;
  ValueIndex<T> const* found;
  LocalColumn* places;
  T* p;

  KOKKOS_FUNCTION void operator()(std::int64_t at) const {
    auto const is_here = places[at] >= 0 && ids[places[at]] == id_of(found[at]);
    if (!is_here) places[at] = -1;
    auto const is_wanted = part == MaximumPart::all ? found[at].index != no_column : is_here;
    p[at] = is_wanted ? value_of(found[at]) : T{0};
  }
};

template<class T>
struct MaximumAdjoint {
  Offset const* offsets;
  LocalColumn const* rows;
  std::int64_t width;
  LocalColumn const* places;
  T const* dp;
  T* d;

  KOKKOS_FUNCTION void operator()(std::int64_t column, std::int64_t piece) const {
    auto const first = piece * columns_at_once;
    auto const count = end_of_piece(first, width) - first;
    T sum[columns_at_once];
    for (std::int64_t c = 0; c < count; ++c)
      sum[c] = 0;
    for (auto e = offsets[column]; e < offsets[column + 1]; ++e) {
      if (e > offsets[column] && rows[e] == rows[e - 1]) continue; // a repeated edge counts once
      auto const at = rows[e] * width + first;
      for (std::int64_t c = 0; c < count; ++c)
        sum[c] += places[at + c] == column ? dp[at + c] : T{0};
    }
    for (std::int64_t c = 0; c < count; ++c)
      d[column * width + first + c] = sum[c];
  }
};

} // namespace

template<class T>
void edge_maximum(DefaultExec const& exec, runtime::Communicator const& axis, runtime::PassLedger& passes,
                  EdgeBlock const& block, Vector<std::int64_t> const& column_ids, std::int64_t width,
                  Vector<T> const& y, MaximumMemory<T> const& memory, MaximumPart part, Vector<T> const& p,
                  Vector<T> const& kept) {
  auto const count = block.num_rows * width;
  passes.add(pass_of_keeping(count, sizeof(T)));
  if (count == 0) return;
  auto const found =
      Kokkos::subview(memory.found, std::pair(std::size_t{0}, static_cast<std::size_t>(count)));
  auto const find = [&]<bool skips>(std::bool_constant<skips>) {
    for_each_row_and_head(exec, "orthant::pmm::edge_maximum", block.num_rows, num_pieces(width),
                          Maxima<T, skips>{block.row_offsets.data(), block.columns.data(), kept.data(),
                                           column_ids.data(), width, y.data(), found.data(),
                                           memory.places.data()});
  };
  if (kept.extent(0) > 0)
    find(std::true_type());
  else
    find(std::false_type());
  runtime::all_reduce_arg_max(exec, axis, Vector<ValueIndex<T>>(found));
  Keep<T> const keep{part, column_ids.data(), found.data(), memory.places.data(), p.data()};
  Kokkos::parallel_for("orthant::pmm::keep_maximum",
                       Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count), keep);
}

void plan_edge_maximum(StepPlan& step, AxisSet axis, std::int64_t num_rows, std::int64_t width) {
  auto const count = num_rows * width;
  step.add_pass(pass_of_keeping(count, step.scalar_bytes(1)));
  if (count > 0)
    step.add_call(runtime::Operation::all_reduce, axis,
                  count * static_cast<std::int64_t>(sizeof(ValueIndex<double>)));
}

template<class T>
void edge_maximum_backward(DefaultExec const& exec, EdgeBlock const& block, std::int64_t width,
                           Vector<LocalColumn> const& places, Vector<T> const& dp, Vector<T> const& d) {
  for_each_row_and_head(exec, "orthant::pmm::edge_maximum_backward", block.num_columns, num_pieces(width),
                        MaximumAdjoint<T>{block.column_offsets.data(), block.rows.data(), width,
                                          places.data(), dp.data(), d.data()});
}

static_assert(sizeof(ValueIndex<float>) == sizeof(ValueIndex<double>));

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void edge_maximum(DefaultExec const&, runtime::Communicator const&, runtime::PassLedger&,         \
                             EdgeBlock const&, Vector<std::int64_t> const&, std::int64_t, Vector<T> const&,  \
                             MaximumMemory<T> const&, MaximumPart, Vector<T> const&, Vector<T> const&);      \
  template void edge_maximum_backward(DefaultExec const&, EdgeBlock const&, std::int64_t,                    \
                                      Vector<LocalColumn> const&, Vector<T> const&, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
