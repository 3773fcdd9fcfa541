// SPDX-License-Identifier: Apache-2.0
//
// The gradient of a norm's scale over more rows than single precision can count: each row adds nearly one.
#include "models/layers/rms_norm.hpp"
#include "pmm/rows/column_sums.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

constexpr std::int64_t num_rows = ORTHANT_LONG_SUM_ROWS;
static_assert(num_rows > 1 << 24);

TEST(LongSums, TheScaleOfANorm) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  pmm::ProcessGrid const grid(self, {1, 1, 1, 1});
  pmm::Placement const placement{{pmm::Axis::z, pmm::Axis::x}, {num_rows, 1}};
  pmm::DistMatrix<float> const z(grid, placement, "z");
  pmm::DistMatrix<float> const gradient(grid, placement, "gradient");
  Kokkos::deep_copy(z.storage(), 1.0F);
  Kokkos::deep_copy(gradient.storage(), 1.0F);
  pmm::DistVector<float> const scale(grid, pmm::Axis::x, 1, "scale");
  pmm::DistVector<float> const scale_gradient(grid, pmm::Axis::x, 1, "scale_gradient");
  Kokkos::deep_copy(scale.local(), 1.0F);
  auto const length = static_cast<std::size_t>(num_rows);
  models::RmsNormState<float> const state{runtime::Vector<float>("inverse_rms", length),
                                          runtime::Vector<std::uint32_t>("passed", length)};
  Kokkos::deep_copy(state.inverse_rms, 1.0F);
  Kokkos::deep_copy(state.passed, 1);
  runtime::Vector<float> const row_sums("row_sums", length);
  pmm::Workspace<float> work;
  pmm::reserve_column_sums(work, num_rows, 1);

  models::rms_norm_relu_dropout_backward<float>({}, z, scale, 0, state, row_sums, gradient, gradient,
                                                scale_gradient, work);

  auto const sum = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), scale_gradient.local());
  EXPECT_EQ(sum(0), static_cast<float>(num_rows));
}

} // namespace
} // namespace orthant::testing
