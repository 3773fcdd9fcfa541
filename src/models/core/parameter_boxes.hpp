#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where this rank's piece of a parameter lies in the global array, which files hold: a few boxes. A piece of a
// matrix is a run of its block's row-major elements: a part of a row, whole rows, a part of a row.

#include "models/core/parameter.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <algorithm>
#include <span>
#include <string>

namespace orthant::models {

/// Of the global array.
template<class T>
[[nodiscard]] runtime::Hdf5File::Extents extents_of(Parameter<T> const& parameter) {
  if (parameter.is_vector()) return {parameter.vector.length()};
  return {parameter.matrix.extents().rows, parameter.matrix.extents().columns};
}

/// "5 x 3".
[[nodiscard]] std::string shape_text(runtime::Hdf5File::Extents const& extents);

/// Whether this rank's piece is the one that counts among equal copies.
template<class T>
[[nodiscard]] bool counts_here(pmm::ProcessGrid const& grid, Parameter<T> const& parameter) {
  if (grid.coordinate(pmm::Axis::data) != 0 || !parameter.is_first_along_experts(grid)) return false;
  return parameter.is_vector() ? parameter.vector.is_first_replica() : parameter.matrix.is_first_replica();
}

[[nodiscard]] inline std::size_t num_elements(runtime::Hdf5File::Extents const& counts) {
  auto product = std::size_t{1};
  for (auto const count : counts)
    product *= static_cast<std::size_t>(count);
  return product;
}

/// work(begin, counts, offset) for this rank's piece as boxes of the global array; `offset` is the box's place
/// in the piece. If row i of the block is row `row_numbers[i]` of the global array, each row is boxes of its
/// own; by default rows are numbered as the matrix numbers them.
template<class T, class Work>
void for_each_box(Parameter<T> const& parameter, std::span<std::int64_t const> row_numbers, Work&& work) {
  using Extents = runtime::Hdf5File::Extents;
  if (parameter.is_vector()) {
    auto const range = parameter.vector.range();
    if (range.size() > 0) work(Extents{range.begin}, Extents{range.size()}, std::int64_t{0});
    return;
  }
  auto const& block = parameter.matrix.block();
  auto const width = block.columns.size();
  for (auto done = std::int64_t{0}; done < block.num_stored;) {
    auto const place = block.first + done;
    auto const row = place / width;
    auto const column = place % width;
    auto const left = block.num_stored - done;
    auto const is_whole_rows = row_numbers.empty() && column == 0 && left >= width;
    auto const num_rows = is_whole_rows ? left / width : 1;
    auto const num_columns = is_whole_rows ? width : std::min(width - column, left);
    auto const first_row =
        row_numbers.empty() ? block.rows.begin + row : row_numbers[static_cast<std::size_t>(row)];
    work(Extents{first_row, block.columns.begin + column}, Extents{num_rows, num_columns}, done);
    done += num_rows * num_columns;
  }
}
template<class T, class Work>
void for_each_box(Parameter<T> const& parameter, Work&& work) {
  for_each_box(parameter, {}, std::forward<Work>(work));
}

} // namespace orthant::models
