#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A parameter of any model. The optimizer, the norms and sums of gradients use parameters and do not depend on a model.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/numbers/formats.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace orthant::models {

/// Role of a parameter. Only weights are decayed. A statistic is not trained: its gradient holds the value towards which it moves,
/// summed over the batches of a step (training/parameter_update.hpp).
enum class ParameterRole : std::uint8_t {
  weight,
  bias,
  norm_scale,
  embedding,
  scalar,
  norm_shift,
  statistic,
  type_bias // a row for each type of vertices
};

/// Whether such a parameter has one number per column of its placement; otherwise it is a matrix.
[[nodiscard]] constexpr bool is_vector(ParameterRole role) {
  return role != ParameterRole::weight && role != ParameterRole::embedding &&
         role != ParameterRole::type_bias;
}
/// Number of elements on this rank, with padding, of a parameter with this block.
[[nodiscard]] inline std::int64_t length_of(ParameterRole role, pmm::Block const& block) {
  return is_vector(role) ? block.columns.size() : block.num_padded;
}
/// Number of elements that a sum of gradients in messages of this format reserves for such a parameter (training/gradient_sum.hpp): if they
/// are encoded, whole blocks for the largest piece of any rank, which are the same number on all ranks. Nothing for pieces of other ranks
/// along expert or pipe.
[[nodiscard]] inline std::int64_t reserved_length(pmm::StepPlan const& step, ParameterRole role,
                                                  pmm::Placement const& placement, runtime::Wire wire) {
  if (placement.is_elsewhere()) return 0;
  if (wire == runtime::Wire::native) return length_of(role, step.block(placement));
  auto const& layout = placement.layout;
  return runtime::encoding_of(wire).in_whole_blocks(
      is_vector(role)
          ? largest_part(step.shape(), layout.columns, placement.extents.columns, layout.column_granule)
          : largest_piece(step.shape(), placement));
}
/// Number of elements in this rank's part of a norm: without padding, each element on one replica only.
[[nodiscard]] inline std::int64_t normed_length_of(pmm::StepPlan const& step, ParameterRole role,
                                                   pmm::Placement const& placement,
                                                   bool is_of_expert = false) {
  auto const& layout = placement.layout;
  if (placement.is_elsewhere() || (!is_of_expert && step.coordinates().expert > 0)) return 0;
  auto const copies = is_vector(role)                              ? pmm::group_axes.without(layout.columns)
                      : layout.storage == pmm::Storage::replicated ? layout.third()
                                                                   : pmm::AxisSet{};
  if (rank_within(step.shape(), step.coordinates(), copies) > 0) return 0;
  auto const block = step.block(placement);
  return is_vector(role) ? block.columns.size() : block.num_stored;
}

/// Where the elements of a local array lie in a global array of a checkpoint, as a list of boxes: for arrays that are no pieces of a
/// distributed matrix, such as the states of Jorge, which a rank has by tiles.
struct OwnBoxes {
  struct Box {
    runtime::Hdf5File::Extents begin, counts;
    std::int64_t offset = 0; // of its row-major elements in the array
  };
  runtime::Hdf5File::Extents extents; // of the global array
  std::vector<Box> boxes;             // which no other rank of the group has
};

/// A matrix, or a vector with one number per column (a bias, the scale of a norm), with a gradient of the same
/// placement. Copies share memory.
template<class T>
struct Parameter {
  std::string name; // "layer0.weight"
  ParameterRole role = ParameterRole::weight;
  std::int64_t layer = 0; // layer 0 has a separate weight decay
  pmm::DistMatrix<T> matrix, matrix_gradient;
  pmm::DistVector<T> vector, vector_gradient;
  bool is_of_expert = false;  // the weight of one expert: other ranks along the expert axis have empty pieces
  bool is_copy = false;       // of a table that the first stage of a pipeline also has
  std::int64_t num_fixed = 0; // elements over the whole grid whose gradient is 0: they keep their values
  /// Row i of the matrix's block is row (*row_numbers)[i] in files: features of vertices are stored there in the order of original ids.
  /// Null: rows keep their numbers.
  std::shared_ptr<std::vector<std::int64_t> const> row_numbers{};
  bool is_frozen = false;   // keeps its value; gradients are neither summed over batches nor used
  bool is_prunable = false; // a matrix that pruned training prunes (training/pruning/pruned_weights.hpp)
  /// A part of the elements that other ranks along the batch axes do not have (training/gradient_shards.hpp).
  bool is_part_of_batches = false;
  /// Null: the position in files follows from the placement.
  std::shared_ptr<OwnBoxes const> boxes{};

  [[nodiscard]] bool is_vector() const { return models::is_vector(role); }
  [[nodiscard]] bool is_statistic() const { return role == ParameterRole::statistic; }
  [[nodiscard]] bool is_trained() const { return !is_statistic() && !is_frozen; }
  /// This rank's elements.
  [[nodiscard]] runtime::Vector<T> const& value() const {
    return is_vector() ? vector.local() : matrix.storage();
  }
  [[nodiscard]] runtime::Vector<T> const& gradient() const {
    return is_vector() ? vector_gradient.local() : matrix_gradient.storage();
  }
  /// The same for this parameter, whose piece may also be a part of an array of all parameters: those reserve blocks for their own length.
  [[nodiscard]] std::int64_t reserved_length(runtime::Wire wire) const {
    if (wire == runtime::Wire::native) return static_cast<std::int64_t>(gradient().extent(0));
    return runtime::encoding_of(wire).in_whole_blocks(
        is_vector() ? vector_gradient.largest_part()
                    : largest_piece(matrix_gradient.grid().shape(), matrix_gradient.placement()));
  }
  /// Whether this rank is the first one along the axes expert and pipe that has this piece.
  [[nodiscard]] bool is_first_with_piece(pmm::ProcessGrid const& grid) const {
    return !is_copy && (is_of_expert || grid.coordinate(pmm::Axis::expert) == 0);
  }
  /// Number of elements over the whole grid, not counting fixed elements; replicas count once.
  [[nodiscard]] std::int64_t num_numbers() const {
    return is_vector() ? vector.length() : matrix.extents().rows * matrix.extents().columns - num_fixed;
  }
};

// Position of this rank's piece in the global array of a file, as a few boxes. A piece of a matrix is a contiguous run of the block's
// row-major elements: a part of a row, whole rows, and a part of a row.

/// Extents of the global array.
template<class T>
[[nodiscard]] runtime::Hdf5File::Extents extents_of(Parameter<T> const& parameter) {
  if (parameter.boxes) return parameter.boxes->extents;
  if (parameter.is_vector()) return {parameter.vector.length()};
  return {parameter.matrix.extents().rows, parameter.matrix.extents().columns};
}

/// "5 x 3".
[[nodiscard]] std::string shape_text(runtime::Hdf5File::Extents const& extents);

/// Whether this rank's piece is the first of all equal copies.
template<class T>
[[nodiscard]] bool counts_here(pmm::ProcessGrid const& grid, Parameter<T> const& parameter) {
  auto const is_first_batch =
      grid.coordinate({pmm::Axis::data, pmm::Axis::context}) == 0 && parameter.is_first_with_piece(grid);
  if (parameter.is_copy || (!is_first_batch && !parameter.is_part_of_batches)) return false;
  if (parameter.boxes) return true;
  return parameter.is_vector() ? parameter.vector.is_first_replica() : parameter.matrix.is_first_replica();
}

[[nodiscard]] inline std::size_t num_elements(runtime::Hdf5File::Extents const& counts) {
  auto product = std::size_t{1};
  for (auto const count : counts)
    product *= static_cast<std::size_t>(count);
  return product;
}

/// work(begin, counts, offset) for each box of this rank's piece; `offset` is the position of the box in the piece. With row numbers
/// each row has separate boxes.
template<class T, class Work>
void for_each_box(Parameter<T> const& parameter, Work&& work) {
  using Extents = runtime::Hdf5File::Extents;
  if (parameter.boxes) {
    for (auto const& box : parameter.boxes->boxes)
      work(box.begin, box.counts, box.offset);
    return;
  }
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
    auto const is_whole_rows = !parameter.row_numbers && column == 0 && left >= width;
    auto const num_rows = is_whole_rows ? left / width : 1;
    auto const num_columns = is_whole_rows ? width : std::min(width - column, left);
    auto const first_row = parameter.row_numbers ? (*parameter.row_numbers)[static_cast<std::size_t>(row)]
                                                 : block.rows.begin + row;
    work(Extents{first_row, block.columns.begin + column}, Extents{num_rows, num_columns}, done);
    done += num_rows * num_columns;
  }
}

} // namespace orthant::models
