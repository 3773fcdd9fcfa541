#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What is trained: one type for the parameters of every model. The optimiser, the norms and sums of gradients
// know parameters, and no model.

#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/matrix/dist_vector.hpp"

#include <cstdint>
#include <string>

namespace orthant::models {

/// What a parameter is for. Only weights are decayed, and embeddings if a training says so.
enum class ParameterRole : std::uint8_t { weight, bias, norm_scale, embedding };

/// A matrix, or a vector of one number per column (a bias, the scale of a norm), with its gradient of the
/// same placement. A copy shares the numbers.
template<class T>
struct Parameter {
  std::string name; // "layer0.weight"
  ParameterRole role = ParameterRole::weight;
  std::int64_t layer = 0; // 0 has a weight decay of its own
  pmm::DistMatrix<T> matrix, matrix_gradient;
  pmm::DistVector<T> vector, vector_gradient;

  [[nodiscard]] bool is_vector() const {
    return role == ParameterRole::bias || role == ParameterRole::norm_scale;
  }
  /// This rank's numbers.
  [[nodiscard]] runtime::Vector<T> const& value() const {
    return is_vector() ? vector.local() : matrix.storage();
  }
  [[nodiscard]] runtime::Vector<T> const& gradient() const {
    return is_vector() ? vector_gradient.local() : matrix_gradient.storage();
  }
  /// Numbers over the whole grid, replicas counted once.
  [[nodiscard]] std::int64_t num_numbers() const {
    return is_vector() ? vector.length() : matrix.extents().rows * matrix.extents().columns;
  }
};

} // namespace orthant::models
