#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What is trained: one type for the parameters of every model. The optimiser, the norms and sums of gradients
// know parameters, and no model.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/matrix/dist_vector.hpp"

#include <cstdint>
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

} // namespace orthant::models
