// SPDX-License-Identifier: Apache-2.0
//
// ReLU and dropout that keep bits of what passed, against those that do not: equal to the bit, forward and backward.
#include "models/layers/activation_step.hpp"

#include "pmm/rows/column_sums.hpp"
#include "support/dist_checks.hpp"

#include <gtest/gtest.h>
#include <limits>

namespace orthant::testing {
namespace {

using namespace orthant::models;
using runtime::Matrix;
using runtime::SumOf;
using runtime::Vector;

template<class T>
Matrix<T> matrix(std::uint64_t seed, std::int64_t num_rows, std::int64_t num_columns) {
  Matrix<T> result("matrix", static_cast<std::size_t>(num_rows), static_cast<std::size_t>(num_columns));
  for (std::int64_t i = 0; i < num_rows; ++i)
    for (std::int64_t j = 0; j < num_columns; ++j)
      result(static_cast<std::size_t>(i), static_cast<std::size_t>(j)) =
          static_cast<T>(static_cast<SumOf<T>>(small_real(seed, i, j)));
  return result;
}

template<class T>
std::vector<SumOf<T>> sums_of(Matrix<T> const& from) {
  std::vector<SumOf<T>> numbers;
  for (std::size_t i = 0; i < from.size(); ++i)
    numbers.push_back(from.data()[i]);
  return numbers;
}

template<class T>
class ReluMask : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!pmm::runs_on_host) GTEST_SKIP() << "bits are kept on host processors";
  }

  void expect_alike(std::int64_t num_rows, std::int64_t num_columns, bool has_bias, double probability) {
    using Sum = SumOf<T>;
    SCOPED_TRACE(::testing::Message() << num_rows << " x " << num_columns << ", " << probability);
    BlockKeys keys{Vector<std::int64_t>("ids", static_cast<std::size_t>(num_rows)), 6};
    for (std::int64_t i = 0; i < num_rows; ++i)
      keys.original_ids(static_cast<std::size_t>(i)) = 37 * i % 101;
    Dropout const dropout{probability, runtime::RandomStream(5, runtime::Purpose::dropout, 3, 1)};
    Vector<Sum> const bias("bias", static_cast<std::size_t>(has_bias ? num_columns : 0));
    for (std::size_t j = 0; j < bias.extent(0); ++j)
      bias(j) = static_cast<Sum>(small_real(7, static_cast<std::int64_t>(j), 0));
    auto const num_words = num_mask_words(num_rows, num_columns);
    Vector<std::uint32_t> const passed("passed", static_cast<std::size_t>(num_words));
    Kokkos::deep_copy(passed, 0xABCDEF12u);
    auto const expected = matrix<T>(1, num_rows, num_columns);
    auto const z = matrix<T>(1, num_rows, num_columns);

    bias_relu_dropout(exec_, passes_, expected, bias, dropout, keys);
    relu_with_mask(exec_, passes_, z, bias, dropout, keys, passed);

    EXPECT_EQ(sums_of(z), sums_of(expected));
    std::int64_t num_positive = 0;
    auto const words_per_row = num_mask_words(1, num_columns);
    for (std::int64_t i = 0; i < num_rows; ++i)
      for (std::int64_t j = 0; j < 32 * words_per_row; ++j) {
        auto const word = passed(static_cast<std::size_t>(i * words_per_row + j / 32));
        auto const is_positive =
            j<num_columns&& static_cast<Sum>(z(static_cast<std::size_t>(i), static_cast<std::size_t>(j)))> 0;
        EXPECT_EQ((word >> (j % 32) & 1) == 1, is_positive) << i << ", " << j;
        num_positive += is_positive ? 1 : 0;
      }
    EXPECT_EQ(count_passed(exec_, passed), num_positive);

    expect_alike_back(expected, passed, probability);
  }

  void expect_alike_back(Matrix<T> const& activation, Vector<std::uint32_t> const& passed,
                         double probability) {
    using Sum = SumOf<T>;
    auto const num_rows = static_cast<std::int64_t>(activation.extent(0));
    auto const num_columns = static_cast<std::int64_t>(activation.extent(1));
    auto const expected = matrix<T>(2, num_rows, num_columns);
    auto const alone = matrix<T>(2, num_rows, num_columns);
    auto const summed = matrix<T>(2, num_rows, num_columns);
    Vector<Sum> const expected_sums("sums", static_cast<std::size_t>(num_columns));
    Vector<Sum> const sums("sums", static_cast<std::size_t>(num_columns));
    pmm::Workspace<Sum> work;
    pmm::reserve_column_sums(work, num_rows, num_columns);

    relu_dropout_backward_sum(exec_, passes_, activation, probability, expected, expected_sums, work);
    relu_backward_by_mask(exec_, passes_, passed, probability, alone, Vector<Sum>());
    relu_backward_by_mask(exec_, passes_, passed, probability, summed, sums);

    EXPECT_EQ(sums_of(alone), sums_of(expected));
    EXPECT_EQ(sums_of(summed), sums_of(expected));
    for (std::size_t j = 0; j < sums.extent(0); ++j)
      EXPECT_EQ(sums(j), expected_sums(j)) << j;
  }

  runtime::DefaultExec exec_;
  runtime::PassLedger passes_;
};

using Numbers = ::testing::Types<float, double, runtime::Bf16Number, runtime::Fp16Number>;
TYPED_TEST_SUITE(ReluMask, Numbers);

TYPED_TEST(ReluMask, EqualsReluWithoutAMask) {
  for (std::int64_t const num_rows : {0, 1, 9})
    for (std::int64_t const num_columns : {1, 3, 31, 32, 33, 47, 128, 130, 600})
      for (auto const probability : {0.0, 0.3}) {
        this->expect_alike(num_rows, num_columns, true, probability);
        this->expect_alike(num_rows, num_columns, false, probability);
      }
}

TYPED_TEST(ReluMask, OfWhatIsAllDroppedHasNoBits) {
  // Numbers of 16 bits can do without: a probability that rounds to 1 has no scale there.
  if constexpr (!runtime::is_16_bit<TypeParam>) this->expect_alike(3, 40, true, 1 - 1e-12);
}

TYPED_TEST(ReluMask, RefusesTooFewWords) {
  auto const z = matrix<TypeParam>(1, 2, 33);
  Vector<std::uint32_t> const passed("passed", 3); // of 4
  Vector<SumOf<TypeParam>> const none;
  EXPECT_THROW(relu_with_mask(this->exec_, this->passes_, z, none, Dropout{}, BlockKeys{}, passed),
               runtime::Error);
  EXPECT_THROW(relu_backward_by_mask(this->exec_, this->passes_, passed, 0, z, none), runtime::Error);
}

} // namespace
} // namespace orthant::testing
