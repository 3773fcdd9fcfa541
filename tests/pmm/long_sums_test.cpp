// SPDX-License-Identifier: Apache-2.0
//
// Sums over more rows than single precision can count: ones add up to their number. A sum of more than 2^24
// ones is lost if it is kept in one float.
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/kernels/row_kernels_host.hpp"
#include "pmm/rows/bias.hpp"
#include "pmm/rows/column_sums.hpp"
#include "pmm/spmm/local_spmm.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

constexpr std::int64_t num_rows = ORTHANT_LONG_SUM_ROWS;
constexpr auto all = static_cast<float>(num_rows);
static_assert(num_rows > 1 << 24);
// A device adds the sums of parts in fp32: up to 528 of them, in 24 + 22 steps that each may round by 2^-24. A third of that is asked.
constexpr auto tolerance = runs_on_host ? 0.0F : 0x1p-20F;

Matrix<float> ones(std::int64_t rows, std::int64_t columns) {
  Matrix<float> const matrix(Kokkos::view_alloc("ones", Kokkos::WithoutInitializing),
                             static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
  Kokkos::deep_copy(matrix, 1.0F);
  return matrix;
}

float first_of(Matrix<float> const& numbers) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), numbers)(0, 0);
}

TEST(LongSums, AColumnForABias) {
  runtime::Communicator const self(MPI_COMM_SELF, "world");
  ProcessGrid const grid(self, {1, 1, 1, 1});
  auto const numbers = ones(num_rows, 1);
  DistMatrix<float> const gradient(grid, {{Axis::x, Axis::y}, {num_rows, 1}},
                                   Vector<float>(numbers.data(), numbers.size()));
  DistVector<float> const sums(grid, Axis::y, 1, "sums");
  Workspace<float> work;
  reserve_column_sums(work, num_rows, 1);

  sum_columns<float>({}, gradient, sums, work);

  EXPECT_EQ(first_of(Matrix<float>(sums.local().data(), 1, 1)), all);
}

TEST(LongSums, AColumnOfMaskedGradientsInEveryInstructionSet) {
  if constexpr (!runs_on_host) GTEST_SKIP() << "a device has other kernels";
  auto const gradient = ones(num_rows, 1);
  for (auto const& kernels : host_rows::supported_row_kernels<float>()) {
    auto sum = 0.0F;

    kernels.activate_backward({num_rows, 1, gradient.data(), gradient.data(), &sum, 1.0F}, 0, 1);

    EXPECT_EQ(sum, all);
  }
}

TEST(LongSums, AWeightsGradientByADenseProduct) {
  auto const matrix = ones(num_rows, 1);
  auto const product = ones(1, 1);

  local_gemm<float>({}, 1, Transpose::yes, matrix, Transpose::no, matrix, 0, product);
  runtime::compat::fence(DefaultExec(), "orthant::testing/the product is read");

  EXPECT_NEAR(first_of(product), all, tolerance * all);
}

TEST(LongSums, ALongRowOfASparseProduct) {
  SparseBlock<float> block;
  block.csr.num_rows = 1;
  block.csr.num_columns = 1;
  block.csr.row_offsets = Vector<runtime::Offset>("offsets", 2);
  Kokkos::deep_copy(Kokkos::subview(block.csr.row_offsets, 1), num_rows);
  block.csr.columns = Vector<runtime::LocalColumn>("columns", static_cast<std::size_t>(num_rows)); // all 0
  auto const expect_sums = [&](float factor, std::int64_t width) {
    LocalSpmm<float> const kernel(block, Contents::fixed); // where contents change no row is cut on a device
    auto const product = ones(1, width);

    kernel.apply({}, {0, 1}, ones(1, width), product);
    runtime::compat::fence(DefaultExec(), "orthant::testing/the product is read");

    auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), product);
    for (std::size_t j = 0; j < found.extent(1); ++j)
      EXPECT_NEAR(found(0, j), factor * all, tolerance * factor * all) << "column " << j;
  };
  auto const vector_of = [](float number) {
    Vector<float> const vector("factor", 1);
    Kokkos::deep_copy(vector, number);
    return vector;
  };

  expect_sums(1, 20);
  block.row_scale = vector_of(2);
  block.column_scale = vector_of(4);
  expect_sums(8, 1);
  block.csr.values = Vector<float>("values", static_cast<std::size_t>(num_rows));
  Kokkos::deep_copy(block.csr.values, 0.5F);
  expect_sums(4, 3);
  block.self_columns = Vector<std::int32_t>("self_columns", 1); // 0
  block.self_scale = vector_of(2 * all);
  expect_sums(6, 7);
}

} // namespace
} // namespace orthant::testing
