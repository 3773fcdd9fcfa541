// SPDX-License-Identifier: Apache-2.0
//
// ReLU and dropout of a block, forward and backward, against their formulas element by element: equal to the
// bit, at widths and first columns that are no multiple of four or of a vector.
#include "models/layers/activation.hpp"

#include "models/layers/activation_kernels.hpp"
#include "pmm/kernels/list_teams.hpp"
#include "support/dist_checks.hpp"

#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::models;
using runtime::Matrix;
using runtime::Purpose;
using runtime::RandomStream;
using runtime::Vector;

/// Ids of more than 32 bits among them.
std::vector<std::int64_t> ids(std::int64_t num_rows) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < num_rows; ++i)
    result.push_back((i * 37) % 101 + (i % 3 == 1 ? std::int64_t{1} << 33 : 0));
  return result;
}

template<class T>
std::vector<T> numbers(std::uint64_t seed, std::int64_t count) {
  std::vector<T> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(static_cast<T>(small_real(seed, i, 0)));
  return result;
}

template<class T>
Matrix<T> matrix(std::vector<T> const& flat, std::int64_t num_rows, std::int64_t num_columns) {
  Matrix<T> result("matrix", static_cast<std::size_t>(num_rows), static_cast<std::size_t>(num_columns));
  Kokkos::deep_copy(Vector<T>(result.data(), result.size()), device_copy(flat));
  return result;
}

template<class T>
std::vector<T> flat(Matrix<T> const& from) {
  auto const host = host_copy(Vector<T>(from.data(), from.size()));
  return std::vector<T>(host.data(), host.data() + host.size());
}

/// The formula of activation.hpp, for one element.
template<class T>
T activated(T z, bool has_relu, Dropout const& dropout, std::int64_t id, std::int64_t feature) {
  auto const scale = static_cast<T>(1 / (1 - dropout.probability));
  auto const is_dropped = dropout.stream.bernoulli(dropout.probability, static_cast<std::uint64_t>(id),
                                                   static_cast<std::uint64_t>(feature));
  return is_dropped || (has_relu && z < T{0}) ? T{0} : z * scale;
}

constexpr std::array<std::int64_t, 10> widths{0, 1, 3, 4, 16, 47, 64, 100, 130, 300};
constexpr std::array<std::int64_t, 5> first_columns{0, 1, 6, 47, (std::int64_t{1} << 34) + 3};
// 1e-12 drops nothing, 1 - 1e-12 everything: thresholds 0 and 2^32.
constexpr std::array probabilities{0.0, 1e-12, 0.1, 0.5, 0.9, 1 - 1e-12};

template<class T>
class ActivationTest : public ::testing::Test {
 protected:
  runtime::DefaultExec exec_;
  runtime::PassLedger passes_;

  /// Calls body(num_rows, num_columns, dropout, keys).
  template<class Body>
  void for_each_case(Body const& body) {
    for (std::int64_t const num_rows : {0, 1, 9})
      for (auto const num_columns : widths)
        for (auto const first_column : first_columns)
          for (auto const probability : probabilities)
            body(num_rows, num_columns, Dropout{probability, RandomStream(3, Purpose::dropout, 5, 2)},
                 BlockKeys{device_copy(ids(num_rows)), first_column});
  }
};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ActivationTest, Scalars);

TYPED_TEST(ActivationTest, ForwardEqualsTheFormula) {
  using T = TypeParam;
  this->for_each_case([&](std::int64_t num_rows, std::int64_t num_columns, Dropout const& dropout,
                          BlockKeys const& keys) {
    auto const z = numbers<T>(90, num_rows * num_columns);
    auto const bias = numbers<T>(91, num_columns);
    auto const id = ids(num_rows);
    std::vector<T> with_bias, without_bias, only_dropout;
    for (std::int64_t i = 0; i < num_rows; ++i)
      for (std::int64_t j = 0; j < num_columns; ++j) {
        auto const number = z[static_cast<std::size_t>(i * num_columns + j)];
        auto const result = [&](T value, bool has_relu) {
          return activated(value, has_relu, dropout, id[static_cast<std::size_t>(i)], keys.first_column + j);
        };
        with_bias.push_back(result(number + bias[static_cast<std::size_t>(j)], true));
        without_bias.push_back(result(number, true));
        only_dropout.push_back(result(number, false));
      }
    auto const first = matrix(z, num_rows, num_columns);
    auto const second = matrix(z, num_rows, num_columns);
    auto const third = matrix(std::vector<T>(z.size(), T{7}), num_rows, num_columns);

    bias_relu_dropout(this->exec_, this->passes_, first, device_copy(bias), dropout, keys);
    relu_dropout(this->exec_, this->passes_, second, dropout, keys);
    apply_dropout(this->exec_, this->passes_, matrix(z, num_rows, num_columns), dropout, keys, third);

    auto const where = [&] {
      return ::testing::Message() << num_rows << " x " << num_columns << " from " << keys.first_column
                                  << ", p = " << dropout.probability;
    };
    EXPECT_EQ(flat(first), with_bias) << where();
    EXPECT_EQ(flat(second), without_bias) << where();
    EXPECT_EQ(flat(third), only_dropout) << where();
  });
}

TYPED_TEST(ActivationTest, APieceEqualsItsPartOfTheBlock) {
  using T = TypeParam;
  this->for_each_case([&](std::int64_t num_rows, std::int64_t num_columns, Dropout const& dropout,
                          BlockKeys const& keys) {
    auto const all = num_rows * num_columns;
    auto const from = numbers<T>(92, all);
    auto const whole = matrix(from, num_rows, num_columns);
    apply_dropout(this->exec_, this->passes_, whole, dropout, keys, whole);
    auto const expected = flat(whole);
    for (auto const first : {std::int64_t{0}, num_columns / 2, num_columns, 3 * num_columns + 1})
      for (auto const count : {std::int64_t{0}, std::int64_t{1}, num_columns + 2, 5 * num_columns}) {
        if (first + count > all || num_columns == 0) continue;
        auto const piece = device_copy(std::vector<T>(from.begin() + first, from.begin() + first + count));

        apply_dropout_to_piece<T>(this->exec_, this->passes_, piece, dropout, keys, first, num_columns,
                                  piece);

        auto const host = host_copy(piece);
        EXPECT_EQ(std::vector<T>(host.data(), host.data() + host.size()),
                  std::vector<T>(expected.begin() + first, expected.begin() + first + count))
            << num_columns << " columns, " << count << " from " << first << ", p = " << dropout.probability;
      }
  });
}

TYPED_TEST(ActivationTest, BackwardAndItsColumnSumsEqualTheFormula) {
  using T = TypeParam;
  // Integers and powers of two: sums are exact in any order.
  for (std::int64_t const num_rows : {0, 1, 9, 300})
    for (auto const num_columns : widths)
      for (auto const probability : {0.0, 0.5, 0.75}) {
        auto const active = numbers<T>(93, num_rows * num_columns);
        std::vector<T> gradient;
        for (std::int64_t k = 0; k < num_rows * num_columns; ++k)
          gradient.push_back(static_cast<T>(small_integer(94, k, 0)));
        auto const scale = static_cast<T>(1 / (1 - probability));
        std::vector<T> expected;
        std::vector<T> sums(static_cast<std::size_t>(num_columns), T{0});
        for (std::size_t k = 0; k < gradient.size(); ++k) {
          expected.push_back(active[k] > T{0} ? gradient[k] * scale : T{0});
          sums[k % sums.size()] += expected[k];
        }
        auto const activation = matrix(active, num_rows, num_columns);
        auto const alone = matrix(gradient, num_rows, num_columns);
        auto const fused = matrix(gradient, num_rows, num_columns);
        auto const column_sums = device_copy(std::vector<T>(sums.size(), T{7}));
        pmm::Workspace<T> work;
        pmm::reserve_column_sums(work, num_rows, num_columns);

        relu_dropout_backward(this->exec_, this->passes_, activation, probability, alone);
        relu_dropout_backward_sum(this->exec_, this->passes_, activation, probability, fused, column_sums,
                                  work);

        EXPECT_EQ(flat(alone), expected) << num_rows << " x " << num_columns;
        EXPECT_EQ(flat(fused), expected) << num_rows << " x " << num_columns;
        auto const host = host_copy(column_sums);
        EXPECT_EQ(std::vector<T>(host.data(), host.data() + host.size()), sums)
            << num_rows << " x " << num_columns;
      }
}

/// The kernels of devices, called where everything runs them.
TYPED_TEST(ActivationTest, PacksEqualTheOtherKernels) {
  using T = TypeParam;
  this->for_each_case(
      [&](std::int64_t num_rows, std::int64_t num_columns, Dropout const& dropout, BlockKeys const& keys) {
        auto const z = numbers<T>(95, num_rows * num_columns);
        auto const bias = device_copy(numbers<T>(96, num_columns));
        auto const expected = matrix(z, num_rows, num_columns);
        auto const found = matrix(z, num_rows, num_columns);
        pmm::PackedArray<T const> const packed_bias(bias.data());

        bias_relu_dropout(this->exec_, this->passes_, expected, bias, dropout, keys);
        if (dropout.probability > 0)
          pmm::for_each_pack(this->exec_, "orthant::testing::mask", num_rows * num_columns,
                             detail::MaskPack<T, true>{pmm::PackedArray<T const>(found.data()),
                                                       pmm::PackedArray<T>(found.data()), packed_bias,
                                                       detail::PackMask(dropout, keys, 0, num_columns), 0,
                                                       static_cast<T>(1 / (1 - dropout.probability))});
        else
          pmm::for_each_pack(this->exec_, "orthant::testing::relu", num_rows * num_columns,
                             detail::BiasReluPack<T>{pmm::PackedArray<T>(found.data()), packed_bias,
                                                     pmm::Divisor(num_columns)});

        EXPECT_EQ(flat(found), flat(expected)) << num_rows << " x " << num_columns << " from "
                                               << keys.first_column << ", p = " << dropout.probability;
      });
}

TYPED_TEST(ActivationTest, PacksOfABackwardPassAreSummedInPassing) {
  using T = TypeParam;
  for (std::int64_t const num_rows : {0, 1, 9, 500})
    for (auto const num_columns : widths) {
      auto const activation = matrix(numbers<T>(97, num_rows * num_columns), num_rows, num_columns);
      auto const gradient = matrix(std::vector<T>(activation.size(), T{3}), num_rows, num_columns);
      auto const expected = matrix(std::vector<T>(activation.size(), T{3}), num_rows, num_columns);
      pmm::ColumnSlabs const slabs(num_rows, num_columns);
      Vector<T> const partial("orthant::testing::partial",
                              static_cast<std::size_t>(slabs.num_partial_sums()));
      auto const sums = device_copy(std::vector<T>(static_cast<std::size_t>(num_columns), T{7}));

      relu_dropout_backward(this->exec_, this->passes_, activation, 0.5, expected);
      pmm::sum_columns_in_slabs(this->exec_, "orthant::testing::backward", slabs,
                                detail::BackwardPack<T>{pmm::PackedArray<T const>(activation.data()),
                                                        pmm::PackedArray<T>(gradient.data()), T{2}},
                                partial, sums);

      EXPECT_EQ(flat(gradient), flat(expected)) << num_rows << " x " << num_columns;
      std::vector<T> expected_sums(static_cast<std::size_t>(num_columns), T{0});
      auto const terms = flat(expected);
      for (std::size_t k = 0; k < terms.size(); ++k)
        expected_sums[k % expected_sums.size()] += terms[k];
      auto const host = host_copy(sums);
      EXPECT_EQ(std::vector<T>(host.data(), host.data() + host.size()), expected_sums)
          << num_rows << " x " << num_columns;
    }
}

TYPED_TEST(ActivationTest, EntriesOfASparseBlockAreMaskedByVertexAndFeature) {
  using T = TypeParam;
  constexpr std::int64_t num_rows = 6;
  std::vector<runtime::Offset> offsets{0};
  std::vector<runtime::LocalColumn> columns;
  for (std::int64_t i = 0; i < num_rows; ++i) {
    for (int j = 0; j < 70; ++j)
      if (i != 2 && mixed(98, i, j) % 3 == 0) columns.push_back(j);
    offsets.push_back(std::ssize(columns));
  }
  auto const values = numbers<T>(99, std::ssize(columns));
  Dropout const dropout{0.5, RandomStream(3, Purpose::dropout, 5, 2)};
  BlockKeys const keys{device_copy(ids(70)), 9};
  for (auto const is_pattern : {false, true})
    for (auto const rows : {CsrRows::vertices, CsrRows::features}) {
      runtime::CsrMatrix<T> const csr{num_rows, 70, device_copy(offsets), device_copy(columns),
                                      is_pattern ? Vector<T>() : device_copy(values)};
      auto const to = device_copy(std::vector<T>(values.size(), T{7}));
      auto const in_teams = device_copy(std::vector<T>(values.size(), T{7}));

      apply_dropout_to_entries(this->exec_, this->passes_, csr, rows, dropout, keys, to);
      pmm::for_each_row(this->exec_, "orthant::testing::entries", num_rows, 20,
                        detail::MaskEntries<T>{csr, rows == CsrRows::vertices, keys.original_ids,
                                               keys.first_column, dropout.stream,
                                               runtime::bernoulli_threshold(0.5), T{2}, in_teams});

      std::vector<T> expected;
      for (std::int64_t i = 0; i < num_rows; ++i)
        for (auto k = offsets[static_cast<std::size_t>(i)]; k < offsets[static_cast<std::size_t>(i) + 1];
             ++k) {
          auto const entry = static_cast<std::size_t>(k);
          auto const column = static_cast<std::int64_t>(columns[entry]);
          auto const vertex = rows == CsrRows::vertices ? i : column;
          auto const feature = keys.first_column + (rows == CsrRows::vertices ? column : i);
          expected.push_back(activated(is_pattern ? T{1} : values[entry], false, dropout,
                                       ids(70)[static_cast<std::size_t>(vertex)], feature));
        }
      for (auto const& found : {host_copy(to), host_copy(in_teams)})
        EXPECT_EQ(std::vector<T>(found.data(), found.data() + found.size()), expected) << is_pattern;
    }
}

TYPED_TEST(ActivationTest, ANaNPassesUnlessItIsDropped) {
  using T = TypeParam;
  auto const nan = std::numeric_limits<T>::quiet_NaN();
  BlockKeys const keys{device_copy(ids(3)), 0};
  for (auto const probability : {0.0, 0.5}) {
    Dropout const dropout{probability, RandomStream(3, Purpose::dropout)};
    auto const z = matrix(std::vector<T>(3 * 40, nan), 3, 40);

    relu_dropout(this->exec_, this->passes_, z, dropout, keys);

    auto const result = flat(z);
    for (std::int64_t k = 0; k < 3 * 40; ++k) {
      auto const is_dropped = dropout.stream.bernoulli(
          probability, static_cast<std::uint64_t>(ids(3)[static_cast<std::size_t>(k / 40)]),
          static_cast<std::uint64_t>(k % 40));
      EXPECT_EQ(std::isnan(result[static_cast<std::size_t>(k)]), !is_dropped) << k;
    }
  }
}

TYPED_TEST(ActivationTest, ABiasOfAnotherLengthIsRefused) {
  using T = TypeParam;
  Matrix<T> const z("z", 2, 3);
  Vector<T> const four("four", 4);
  EXPECT_THROW(bias_relu_dropout(this->exec_, this->passes_, z, four, Dropout{}, BlockKeys{}),
               runtime::Error);
  EXPECT_THROW(relu_dropout_backward_sum(this->exec_, this->passes_, z, 0.0, z, four, {}), runtime::Error);
}

} // namespace
} // namespace orthant::testing
