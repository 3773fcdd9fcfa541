#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What is trained: one type for the parameters of every model. The optimiser, the norms and sums of gradients
// know parameters, and no model.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace orthant::models {

/// What a parameter is for. Only weights are decayed. A statistic is not trained: its gradient is what it moves towards, summed over
/// the batches of a step (training/parameter_update.hpp).
enum class ParameterRole : std::uint8_t {
  weight,
  bias,
  norm_scale,
  embedding,
  scalar,
  norm_shift,
  statistic
};

/// Whether such a parameter is one number per column of its placement; else it is a matrix.
[[nodiscard]] constexpr bool is_vector(ParameterRole role) {
  return role != ParameterRole::weight && role != ParameterRole::embedding;
}
/// This rank's numbers, with padding, of a parameter of which it has `block`.
[[nodiscard]] inline std::int64_t length_of(ParameterRole role, pmm::Block const& block) {
  return is_vector(role) ? block.columns.size() : block.num_padded;
}
/// Those of them whose squares this rank adds up: without padding, and of the first copy.
[[nodiscard]] inline std::int64_t normed_length_of(pmm::StepPlan const& step, ParameterRole role,
                                                   pmm::Placement const& placement,
                                                   bool is_of_expert = false) {
  auto const& layout = placement.layout;
  if (!is_of_expert && step.coordinates().expert > 0) return 0;
  auto const copies = is_vector(role)                              ? pmm::group_axes.without(layout.columns)
                      : layout.storage == pmm::Storage::replicated ? layout.third()
                                                                   : pmm::AxisSet{};
  if (rank_within(step.shape(), step.coordinates(), copies) > 0) return 0;
  auto const block = step.block(placement);
  return is_vector(role) ? block.columns.size() : block.num_stored;
}

/// A matrix, or a vector of one number per column (a bias, the scale of a norm), with its gradient of the
/// same placement. A copy shares the numbers.
template<class T>
struct Parameter {
  std::string name; // "layer0.weight"
  ParameterRole role = ParameterRole::weight;
  std::int64_t layer = 0; // 0 has a weight decay of its own
  pmm::DistMatrix<T> matrix, matrix_gradient;
  pmm::DistVector<T> vector, vector_gradient;
  bool is_of_expert = false; // which one rank along the expert axis has; the pieces of the others are empty

  [[nodiscard]] bool is_vector() const { return models::is_vector(role); }
  [[nodiscard]] bool is_trained() const { return role != ParameterRole::statistic; }
  /// This rank's numbers.
  [[nodiscard]] runtime::Vector<T> const& value() const {
    return is_vector() ? vector.local() : matrix.storage();
  }
  [[nodiscard]] runtime::Vector<T> const& gradient() const {
    return is_vector() ? vector_gradient.local() : matrix_gradient.storage();
  }
  /// Whether this rank's piece is not that of another rank along the expert axis, too.
  [[nodiscard]] bool is_first_along_experts(pmm::ProcessGrid const& grid) const {
    return is_of_expert || grid.coordinate(pmm::Axis::expert) == 0;
  }
  /// Numbers over the whole grid, replicas counted once.
  [[nodiscard]] std::int64_t num_numbers() const {
    return is_vector() ? vector.length() : matrix.extents().rows * matrix.extents().columns;
  }
};

// Where this rank's piece of a parameter lies in the global array, which files hold: a few boxes. A piece of a
// matrix is a run of its block's row-major elements: a part of a row, whole rows, a part of a row.

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
