// SPDX-License-Identifier: Apache-2.0
//
// The fused kernels of RMSNorm, ReLU and dropout against the formulas, on every grid.
#include "models/layers/rms_norm.hpp"

#include "pmm/rows/bias.hpp"
#include "pmm/rows/column_sums.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

/// In [-1, 1], the same on all ranks.
double number_at(std::uint64_t seed, std::int64_t i, std::int64_t j) {
  return static_cast<double>(mixed(seed, i, j) >> 11) * 0x1p-52 - 1;
}

std::int64_t original_id(std::int64_t row) {
  return 3 * row + 5;
}

struct Expected {
  Dense result;
  Dense gradient;
  std::vector<double> scale_gradient;
};

/// One element after the other, as rms_norm.hpp writes it.
Expected reference(models::Dropout const& dropout, pmm::Extents const& extents) {
  auto const [num_rows, num_columns] = extents;
  Expected expected{Dense(num_rows, num_columns), Dense(num_rows, num_columns),
                    std::vector<double>(static_cast<std::size_t>(num_columns))};
  for (std::int64_t i = 0; i < num_rows; ++i) {
    auto squares = 0.0;
    for (std::int64_t j = 0; j < num_columns; ++j)
      squares += std::pow(number_at(1, i, j), 2);
    auto const r = 1 / std::sqrt(squares / static_cast<double>(num_columns) + models::rms_epsilon);
    std::vector<double> dn(static_cast<std::size_t>(num_columns));
    auto t = 0.0;
    for (std::int64_t j = 0; j < num_columns; ++j) {
      auto const n = r * number_at(1, i, j) * number_at(2, 0, j);
      auto const is_dropped = dropout.stream.bernoulli(
          dropout.probability, static_cast<std::uint64_t>(original_id(i)), static_cast<std::uint64_t>(j));
      auto const mask = is_dropped ? 0.0 : 1 / (1 - dropout.probability);
      expected.result(i, j) = mask * std::max(n, 0.0);
      dn[static_cast<std::size_t>(j)] = n > 0 ? mask * number_at(3, i, j) : 0.0;
      t += dn[static_cast<std::size_t>(j)] * n;
      expected.scale_gradient[static_cast<std::size_t>(j)] +=
          dn[static_cast<std::size_t>(j)] * r * number_at(1, i, j);
    }
    for (std::int64_t j = 0; j < num_columns; ++j)
      expected.gradient(i, j) = r * (dn[static_cast<std::size_t>(j)] * number_at(2, 0, j) -
                                     r * number_at(1, i, j) * t / static_cast<double>(num_columns));
  }
  return expected;
}

/// What d is added to, and whether dz takes the place of dd.
enum class Addend { none, in_result, elsewhere };

class RmsNorm : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  RmsNorm()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}) {}

  [[nodiscard]] pmm::DistMatrix<double> matrix(std::uint64_t seed, pmm::Extents const& extents) const {
    return distributed<double>(
        grid_, {{pmm::Axis::z, pmm::Axis::x}, extents},
        make_dense(extents.rows, extents.columns, [&](auto i, auto j) { return number_at(seed, i, j); }));
  }

  void run(models::Dropout const& dropout, Addend where, pmm::Extents const& extents) const;

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

void RmsNorm::run(models::Dropout const& dropout, Addend where, pmm::Extents const& extents) const {
  auto const z = matrix(1, extents);
  auto const addend = matrix(4, extents);
  auto const result = where == Addend::in_result ? addend : matrix(5, extents);
  auto const upper_gradient = matrix(3, extents);
  auto const gradient = where == Addend::elsewhere ? matrix(6, extents) : upper_gradient;
  auto const rows = z.block().rows;
  auto const columns = z.block().columns;
  pmm::DistVector<double> const scale(grid_, pmm::Axis::x, extents.columns, "scale");
  pmm::DistVector<double> const scale_gradient(grid_, pmm::Axis::x, extents.columns, "scale_gradient");
  std::vector<double> factors;
  for (auto j = columns.begin; j < columns.end; ++j)
    factors.push_back(number_at(2, 0, j));
  Kokkos::deep_copy(scale.local(), device_copy(factors));
  std::vector<std::int64_t> ids;
  for (auto i = rows.begin; i < rows.end; ++i)
    ids.push_back(original_id(i));
  models::BlockKeys const keys{device_copy(ids), columns.begin};
  models::RmsNormState<double> const state{
      runtime::Vector<double>("inverse_rms", static_cast<std::size_t>(rows.size()) + 2),
      runtime::Vector<std::uint32_t>(
          "passed",
          static_cast<std::size_t>(rows.size() * models::RmsNormState<double>::words_of(columns.size())))};
  runtime::Vector<double> const row_sums("row_sums", static_cast<std::size_t>(rows.size()) + 2);
  pmm::Workspace<double> work;
  pmm::reserve_column_sums(work, rows.size(), columns.size());

  models::rms_norm_relu_dropout<double>({}, z, scale, dropout, keys, state,
                                        where == Addend::none ? nullptr : &addend, result);
  models::rms_norm_relu_dropout_backward<double>({}, z, scale, dropout.probability, state, row_sums,
                                                 upper_gradient, gradient, scale_gradient, work);
  pmm::reduce_sums({}, gradient, scale_gradient);

  auto expected = reference(dropout, extents);
  if (where != Addend::none)
    for (std::int64_t i = 0; i < extents.rows; ++i)
      for (std::int64_t j = 0; j < extents.columns; ++j)
        expected.result(i, j) += number_at(4, i, j);
  EXPECT_LT(largest_error(result, expected.result), 1e-13);
  EXPECT_LT(largest_error(gradient, expected.gradient), 1e-13);
  auto const found = host_copy(scale_gradient.local());
  for (auto j = columns.begin; j < columns.end; ++j)
    EXPECT_NEAR(found(static_cast<std::size_t>(j - columns.begin)),
                expected.scale_gradient[static_cast<std::size_t>(j)],
                1e-14 * static_cast<double>(extents.rows))
        << j;
}

TEST_P(RmsNorm, FollowsTheFormulasForwardAndBackward) {
  // Columns: less and more than a word of bits, whole packs and none; rows: enough for several partial sums.
  for (auto const& extents : {pmm::Extents{11, 45}, pmm::Extents{11, 4}, pmm::Extents{3, 1},
                              pmm::Extents{11, 128}, pmm::Extents{200, 100}})
    for (auto const probability : {0.0, 0.4})
      for (auto const where : {Addend::none, Addend::in_result, Addend::elsewhere}) {
        SCOPED_TRACE(::testing::Message() << extents.rows << " x " << extents.columns << ", p = "
                                          << probability << ", addend " << static_cast<int>(where));
        run({probability, runtime::RandomStream(7, runtime::Purpose::dropout, 2, 1)}, where, extents);
      }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, RmsNorm, ::testing::ValuesIn(grids_3d(world_size())), GridName());

} // namespace
} // namespace orthant::testing
