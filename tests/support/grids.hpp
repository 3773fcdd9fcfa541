#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Every grid of a number of ranks, for TEST_P over all of them.

#include <array>
#include <cstddef>
#include <gtest/gtest.h>
#include <mpi.h>
#include <string>
#include <vector>

namespace orthant::testing {

/// All ways to write `num_ranks` as an ordered product of Axes positive factors, in lexicographic order.
template<std::size_t Axes>
std::vector<std::array<int, Axes>> factorisations(int num_ranks) {
  static_assert(Axes >= 1);
  if constexpr (Axes == 1) {
    return {{num_ranks}};
  } else {
    std::vector<std::array<int, Axes>> all;
    for (int first = 1; first <= num_ranks; ++first) {
      if (num_ranks % first != 0) continue;
      for (auto const& rest : factorisations<Axes - 1>(num_ranks / first)) {
        std::array<int, Axes> shape{first};
        for (std::size_t axis = 1; axis < Axes; ++axis)
          shape[axis] = rest[axis - 1];
        all.push_back(shape);
      }
    }
    return all;
  }
}

/// (X, Y, Z) and (data, X, Y, Z).
inline std::vector<std::array<int, 3>> grids_3d(int num_ranks) {
  return factorisations<3>(num_ranks);
}
inline std::vector<std::array<int, 4>> grids_4d(int num_ranks) {
  return factorisations<4>(num_ranks);
}

/// "1x2x3": how a grid is written, and with GoogleTest's rules for names kept, that of its test.
template<std::size_t Axes>
std::string grid_name(std::array<int, Axes> const& shape) {
  std::string name = std::to_string(shape[0]);
  for (std::size_t axis = 1; axis < Axes; ++axis)
    name.append("x").append(std::to_string(shape[axis])); // gcc 12 warns of a plain "x" + string
  return name;
}

/// For INSTANTIATE_TEST_SUITE_P's last argument.
struct GridName {
  template<std::size_t Axes>
  std::string operator()(::testing::TestParamInfo<std::array<int, Axes>> const& info) const {
    return grid_name(info.param);
  }
};

/// MPI_COMM_WORLD's size. INSTANTIATE_TEST_SUITE_P evaluates its generators when GoogleTest starts, after
/// MPI_Init: `INSTANTIATE_TEST_SUITE_P(Grids, PmmTest, ValuesIn(grids_3d(world_size())), GridName{})`.
inline int world_size() {
  int is_initialized = 0;
  MPI_Initialized(&is_initialized);
  int size = 1;
  if (is_initialized) MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

} // namespace orthant::testing
