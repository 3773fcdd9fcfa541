#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Parameters made by a formula of the global index, so that a model is the same on every grid, in the
// oracle's script (oracle/oracle.py), and after a file. Parameter number p in the order of the model's list,
// element [i,j] (a number per column: i = 0):
//
//   k = (31 i^2 + 6007 i j + 7919 i + 38183 j + 104729 p + 12345) mod 100003        u = 2 k / 100003 - 1
//   weight  sqrt(6 / (rows + columns)) u        bias, shift, mean  u / 8        scale of a norm, variance  1 + u / 4

#include "models/gnn/plan/network_parameters.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace orthant::testing {

/// work(i, j, place): the elements of this rank's piece by global row and column; `place` is the place in the
/// piece.
template<class T, class Work>
void for_each_element(models::Parameter<T> const& parameter, Work const& work) {
  if (parameter.is_vector()) {
    auto const range = parameter.vector.range();
    for (std::int64_t j = 0; j < range.size(); ++j)
      work(std::int64_t{0}, range.begin + j, static_cast<std::size_t>(j));
    return;
  }
  auto const& block = parameter.matrix.block();
  for (std::int64_t place = 0; place < block.num_stored; ++place)
    work(block.rows.begin + (block.first + place) / block.columns.size(),
         block.columns.begin + (block.first + place) % block.columns.size(), static_cast<std::size_t>(place));
}

template<class T>
double formula_number(models::Parameter<T> const& parameter, std::size_t p, std::int64_t i, std::int64_t j) {
  auto const number = static_cast<std::int64_t>(p);
  auto const k = (31 * i * i + 6007 * i * j + 7919 * i + 38183 * j + 104729 * number + 12345) % 100003;
  auto const u = 2.0 * static_cast<double>(k) / 100003.0 - 1.0;
  if (parameter.role == models::ParameterRole::norm_scale || parameter.name.ends_with("norm_variance"))
    return 1 + u / 4;
  if (parameter.is_vector()) return u / 8;
  auto const extents = parameter.matrix.extents();
  return std::sqrt(6.0 / static_cast<double>(extents.rows + extents.columns)) * u;
}

template<class T>
void set_formula_parameters(std::vector<models::Parameter<T>> const& parameters) {
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameters[p].value());
    for_each_element(parameters[p], [&](std::int64_t i, std::int64_t j, std::size_t place) {
      numbers(place) = static_cast<T>(formula_number(parameters[p], p, i, j));
    });
    Kokkos::deep_copy(parameters[p].value(), numbers);
  }
}

/// Numbers of this rank that are not the formula's, to the bit.
template<class T>
std::int64_t num_not_formula(std::vector<models::Parameter<T>> const& parameters) {
  auto count = std::int64_t{0};
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameters[p].value());
    for_each_element(parameters[p], [&](std::int64_t i, std::int64_t j, std::size_t place) {
      count += numbers(place) == static_cast<T>(formula_number(parameters[p], p, i, j)) ? 0 : 1;
    });
  }
  return count;
}

} // namespace orthant::testing
