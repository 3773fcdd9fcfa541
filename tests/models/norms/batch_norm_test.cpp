// SPDX-License-Identifier: Apache-2.0
//
// Statistics of BatchNorm of columns whose mean is far larger than their deviation, and of no more rows than one, in both
// precisions on every grid. Whole networks: reference_test.cpp.
#include "models/layers/batch_norm.hpp"

#include "models/layers/hidden_norm.hpp"
#include "runtime/device/kokkos_compat.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

constexpr std::int64_t num_columns = 7;

/// 2^12 and eighths: sums over a block of 2^8 rows are exact in fp32, and those of 2^9 rows are rounded by an eighth at most, which moves
/// the mean by 2^-12 and the variance by its square.
double number_at(std::int64_t i, std::int64_t j) {
  return 4096 + static_cast<double>((3 * i + 5 * j) % 16) / 8;
}

class BatchNorm : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  BatchNorm()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}) {}

  /// Of rows on z and columns on x, beside sums in double.
  template<class T>
  void expect_statistics(std::int64_t num_rows, double tolerance) {
    auto const z = distributed<T>(grid_, {{pmm::Axis::z, pmm::Axis::x}, {num_rows, num_columns}},
                                  make_dense(num_rows, num_columns, number_at));
    auto const columns = z.block().columns;
    auto const count = static_cast<std::size_t>(columns.size());
    models::BatchNormState<T> const state{runtime::Vector<T>("mean", count),
                                          runtime::Vector<T>("inverse", count)};
    models::BatchStatistics<T> const found{runtime::Vector<T>("found_mean", count),
                                           runtime::Vector<T>("found_variance", count)};
    pmm::Workspace<T> work;
    work.reserve(pmm::Slot::sums, models::num_batch_norm_sums(z.block().rows.size(), columns.size()));
    runtime::DefaultExec const exec;

    find_batch_norm(exec, z, state, found, runtime::Vector<T>("sums", 2 * count), work);

    runtime::compat::fence(exec, "the state is read");
    auto const n = static_cast<double>(num_rows);
    auto const on_host = [](runtime::Vector<T> const& numbers) {
      return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), numbers);
    };
    for (std::int64_t j = 0; j < columns.size(); ++j) {
      auto mean = 0.0, squares = 0.0;
      for (std::int64_t i = 0; i < num_rows; ++i)
        mean += number_at(i, columns.begin + j) / n;
      for (std::int64_t i = 0; i < num_rows; ++i)
        squares += std::pow(number_at(i, columns.begin + j) - mean, 2);
      auto const place = static_cast<std::size_t>(j);
      EXPECT_NEAR(on_host(state.mean)(place), mean, tolerance * mean);
      auto const deviation = std::sqrt(squares / n + models::centered_norm_epsilon);
      EXPECT_NEAR(on_host(state.inverse_deviation)(place) * deviation, 1, tolerance);
      EXPECT_NEAR(on_host(found.mean)(place), mean, tolerance * mean);
      auto const unbiased = squares / std::max(n - 1, 1.0);
      EXPECT_NEAR(on_host(found.variance)(place), unbiased, tolerance * (1 + unbiased));
    }
  }

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

// The squares are 2^24, beyond which fp32 has no odd numbers: from their sums it would find no variance of 1.
TEST_P(BatchNorm, LosesNoDigitsToALargeMean) {
  expect_statistics<float>(512, 1e-5);
  expect_statistics<double>(512, 1e-13);
}

TEST_P(BatchNorm, TakesOneRowAndMoreRanksThanRows) {
  for (auto const num_rows : {1, 2, 3}) {
    expect_statistics<float>(num_rows, 1e-5);
    expect_statistics<double>(num_rows, 1e-13);
  }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, BatchNorm, ::testing::ValuesIn(grids_3d(world_size())), GridName());

} // namespace
} // namespace orthant::testing
