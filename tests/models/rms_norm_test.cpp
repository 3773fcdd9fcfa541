// SPDX-License-Identifier: Apache-2.0
//
// The fused kernels of RMSNorm, ReLU and dropout against the formulas, on every grid.
#include "models/rms_norm.hpp"

#include "pmm/column_sums.hpp"
#include "support/grids.hpp"
#include "support/reference.hpp"

#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

constexpr std::int64_t num_rows = 11;
constexpr std::int64_t num_columns = 45; // more than a word of bits

/// In [-1, 1], the same on all ranks.
double number_at(std::uint64_t seed, std::int64_t i, std::int64_t j) {
  return static_cast<double>(mixed(seed, i, j) >> 11) * 0x1p-52 - 1;
}

std::int64_t original_id(std::int64_t row) {
  return (3 * row + 5) % num_rows;
}

struct Expected {
  Dense result{num_rows, num_columns};
  Dense gradient{num_rows, num_columns};
  std::vector<double> scale_gradient = std::vector<double>(num_columns);
};

/// One element after the other, as rms_norm.hpp writes it.
Expected reference(models::Dropout const& dropout) {
  Expected expected;
  for (std::int64_t i = 0; i < num_rows; ++i) {
    auto squares = 0.0;
    for (std::int64_t j = 0; j < num_columns; ++j)
      squares += std::pow(number_at(1, i, j), 2);
    auto const r = 1 / std::sqrt(squares / num_columns + models::rms_epsilon);
    std::vector<double> dn(num_columns);
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
                                     r * number_at(1, i, j) * t / num_columns);
  }
  return expected;
}

class RmsNorm : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  RmsNorm()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}) {}

  [[nodiscard]] pmm::DistMatrix<double> matrix(std::uint64_t seed) const {
    pmm::DistMatrix<double> made(grid_, {{pmm::Axis::z, pmm::Axis::x}, {num_rows, num_columns}}, "test");
    for_each(made, [&](std::int64_t i, std::int64_t j, double& number) { number = number_at(seed, i, j); });
    return made;
  }
  template<class Work>
  static void for_each(pmm::DistMatrix<double> const& of, Work const& work) {
    auto const local = of.local();
    for (std::size_t i = 0; i < local.extent(0); ++i)
      for (std::size_t j = 0; j < local.extent(1); ++j)
        work(of.block().rows.begin + static_cast<std::int64_t>(i),
             of.block().columns.begin + static_cast<std::int64_t>(j), local(i, j));
  }

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

TEST_P(RmsNorm, FollowsTheFormulasForwardAndBackward) {
  for (auto const probability : {0.0, 0.4})
    for (auto const write : {models::Write::replace, models::Write::add}) {
      models::Dropout const dropout{probability, runtime::RandomStream(7, runtime::Purpose::dropout, 2, 1)};
      auto const z = matrix(1);
      auto const result = matrix(4);
      auto const gradient = matrix(3);
      pmm::DistVector<double> scale(grid_, pmm::Axis::x, num_columns, "scale");
      pmm::DistVector<double> scale_gradient(grid_, pmm::Axis::x, num_columns, "scale_gradient");
      for (auto j = scale.range().begin; j < scale.range().end; ++j)
        scale.local()(static_cast<std::size_t>(j - scale.range().begin)) = number_at(2, 0, j);
      auto const rows = z.block().rows;
      models::BlockKeys keys{runtime::Vector<std::int64_t>("ids", static_cast<std::size_t>(rows.size())),
                             z.block().columns.begin};
      for (auto i = rows.begin; i < rows.end; ++i)
        keys.original_ids(static_cast<std::size_t>(i - rows.begin)) = original_id(i);
      models::RmsNormState<double> const state{
          runtime::Vector<double>("inverse_rms", static_cast<std::size_t>(rows.size()) + 2),
          runtime::Vector<std::uint32_t>("passed", 2 * static_cast<std::size_t>(rows.size()))};
      runtime::Vector<double> row_sums("row_sums", static_cast<std::size_t>(rows.size()) + 2);
      pmm::Workspace<double> work;
      pmm::reserve_column_sums(work, rows.size(), z.block().columns.size());

      models::rms_norm_relu_dropout<double>({}, z, scale, dropout, keys, state, result, write);
      models::rms_norm_relu_dropout_backward<double>({}, z, scale, probability, state, row_sums, gradient,
                                                     scale_gradient, work);

      auto const expected = reference(dropout);
      for_each(result, [&](std::int64_t i, std::int64_t j, double found) {
        auto const before = write == models::Write::add ? number_at(4, i, j) : 0.0;
        EXPECT_NEAR(found, before + expected.result(i, j), 1e-13) << i << ' ' << j;
      });
      for_each(gradient, [&](std::int64_t i, std::int64_t j, double found) {
        EXPECT_NEAR(found, expected.gradient(i, j), 1e-13) << i << ' ' << j;
      });
      for (auto j = scale.range().begin; j < scale.range().end; ++j)
        EXPECT_NEAR(scale_gradient.local()(static_cast<std::size_t>(j - scale.range().begin)),
                    expected.scale_gradient[static_cast<std::size_t>(j)], 1e-13)
            << j;
    }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, RmsNorm, ::testing::ValuesIn(grids_3d(world_size())), GridName());

} // namespace
} // namespace orthant::testing
