// SPDX-License-Identifier: Apache-2.0
#include "pmm/aggregate/cells.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "runtime/numbers/formats.hpp"

#include <algorithm>
#include <numeric>

namespace orthant::pmm {
namespace {

/// Row ranges of the cells of the ranks along `slow` and `fast`; `fast` varies fastest.
std::vector<Range> cells_of(GridShape const& shape, Coordinates at, Axis slow, Axis fast,
                            std::int64_t num_rows) {
  std::vector<Range> cells;
  for (int i = 0; i < shape.size(slow); ++i)
    for (int j = 0; j < shape.size(fast); ++j) {
      at.along(slow) = i;
      at.along(fast) = j;
      cells.push_back(part_of(shape, at, group_axes, num_rows));
    }
  return cells;
}

/// Numbers of rows of `num_slabs` slabs, each of equally many consecutive cells.
std::vector<std::int64_t> slab_sizes(std::vector<Range> const& cells, int num_slabs) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(num_slabs));
  auto const per_slab = cells.size() / sizes.size();
  for (std::size_t i = 0; i < cells.size(); ++i)
    sizes[i / per_slab] += cells[i].size();
  return sizes;
}

std::vector<Range> merged(std::vector<Range> const& cells) {
  std::vector<Range> ranges;
  for (auto const& cell : cells) {
    if (cell.size() == 0) continue;
    if (!ranges.empty() && ranges.back().end == cell.begin)
      ranges.back().end = cell.end;
    else
      ranges.push_back(cell);
  }
  return ranges;
}

} // namespace

std::int64_t CellSizes::num_columns() const {
  return std::accumulate(over_c.begin(), over_c.end(), std::int64_t{0});
}

std::int64_t CellSizes::num_rows() const {
  return std::accumulate(over_a.begin(), over_a.end(), std::int64_t{0});
}

CellSizes contiguous_cells(GridShape const& shape, Coordinates const& coordinates, Roles const& roles,
                           std::int64_t num_rows) {
  CellSizes sizes;
  auto at = coordinates;
  for (int b = 0; b < shape.size(roles.b); ++b) {
    at.along(roles.b) = b;
    sizes.over_b.push_back(part_of(shape, at, group_axes, num_rows).size());
  }
  sizes.over_c = slab_sizes(cells_of(shape, coordinates, roles.c, roles.b, num_rows), shape.size(roles.c));
  sizes.over_a = slab_sizes(cells_of(shape, coordinates, roles.a, roles.b, num_rows), shape.size(roles.a));
  return sizes;
}

std::vector<Range> block_columns(GridShape const& shape, Coordinates const& coordinates, Roles const& roles,
                                 std::int64_t num_rows) {
  return merged(cells_of(shape, coordinates, roles.c, roles.b, num_rows));
}

std::vector<Range> block_rows(GridShape const& shape, Coordinates const& coordinates, Roles const& roles,
                              std::int64_t num_rows) {
  return merged(cells_of(shape, coordinates, roles.a, roles.b, num_rows));
}

std::vector<std::int64_t> counts_by_slab(std::vector<runtime::LocalColumn> const& places,
                                         std::vector<std::int64_t> const& slab_rows, std::int64_t begin) {
  std::vector<std::int64_t> counts;
  auto first = std::ranges::lower_bound(places, begin);
  for (auto const size : slab_rows) {
    begin += size;
    auto const end = std::lower_bound(first, places.end(), begin);
    counts.push_back(end - first);
    first = end;
  }
  return counts;
}

namespace {

/// Positions of elements in an array of column parts of n rows. If part p begins with column `begin` and is w_p wide, element (i, j) of the
/// rows is at
///   begin n + i w_p + j - begin
struct Parts {
  std::int64_t num_rows, width;
  int num_parts;

  KOKKOS_FUNCTION std::int64_t place(std::int64_t i, std::int64_t j) const {
    auto const columns =
        runtime::balanced_range(width, num_parts, runtime::balanced_part(width, num_parts, j));
    return columns.begin * num_rows + i * columns.size() + j - columns.begin;
  }
  /// Calls visit(place in the rows, place in the parts, count) for each column part of row i.
  template<class Visit>
  void for_each_run(std::int64_t i, Visit const& visit) const {
    for (int part = 0; part < num_parts; ++part) {
      auto const columns = runtime::balanced_range(width, num_parts, part);
      visit(i * width + columns.begin, columns.begin * num_rows + i * columns.size(), columns.size());
    }
  }
};

/// Copies every element. choose(place in the rows, place in the parts) returns the source and the target.
template<class T, class Choose>
void copy_elements(DefaultExec const& exec, char const* label, Parts const& parts, T const* from, T* to,
                   Choose const& choose) {
  if constexpr (runs_on_host) {
    for_each_part(exec, label, parts.num_rows, [=](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i)
        parts.for_each_run(i, [&](std::int64_t in_rows, std::int64_t in_parts, std::int64_t count) {
          auto const places = choose(in_rows, in_parts);
          std::copy_n(from + places.from, count, to + places.to);
        });
    });
  } else {
    Kokkos::parallel_for(
        label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, parts.num_rows * parts.width),
        KOKKOS_LAMBDA(std::int64_t k) {
          auto const places = choose(k, parts.place(k / parts.width, k % parts.width));
          to[places.to] = from[places.from];
        });
  }
}

struct PartPlaces {
  std::int64_t from, to;
};
struct RowsToParts {
  KOKKOS_FUNCTION PartPlaces operator()(std::int64_t in_rows, std::int64_t in_parts) const {
    return {in_rows, in_parts};
  }
};
struct PartsToRows {
  KOKKOS_FUNCTION PartPlaces operator()(std::int64_t in_rows, std::int64_t in_parts) const {
    return {in_parts, in_rows};
  }
};

template<class T>
void count_copy(runtime::PassLedger& passes, std::string_view name, std::int64_t num_elements) {
  auto const bytes = num_elements * static_cast<std::int64_t>(sizeof(T));
  passes.add({name, bytes, bytes});
}

} // namespace

template<class T>
void split_columns(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& rows,
                   std::int64_t num_rows, std::int64_t width, int num_parts, Vector<T> const& parts) {
  count_copy<T>(passes, "split_columns", num_rows * width);
  copy_elements(exec, "orthant::pmm::split_columns", Parts{num_rows, width, num_parts},
                static_cast<T const*>(rows.data()), parts.data(), RowsToParts{});
}

template<class T>
void join_columns(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& parts,
                  std::int64_t num_rows, std::int64_t width, int num_parts, Vector<T> const& rows) {
  count_copy<T>(passes, "join_columns", num_rows * width);
  copy_elements(exec, "orthant::pmm::join_columns", Parts{num_rows, width, num_parts},
                static_cast<T const*>(parts.data()), rows.data(), PartsToRows{});
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void split_columns(DefaultExec const&, runtime::PassLedger&, Vector<T> const&, std::int64_t,      \
                              std::int64_t, int, Vector<T> const&);                                          \
  template void join_columns(DefaultExec const&, runtime::PassLedger&, Vector<T> const&, std::int64_t,       \
                             std::int64_t, int, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
