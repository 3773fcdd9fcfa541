// SPDX-License-Identifier: Apache-2.0
//
// Row kernels of host processors on matrices of 16-bit numbers: the results of the fp32 kernels on the same numbers,
// rounded once, to the bit and in every instruction set; column sums are those of what was stored.
#include "pmm/kernels/row_kernels_host.hpp"

#include "support/reference.hpp"

#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::pmm::host_rows;

constexpr std::int64_t rows_of_case = 11;
std::vector<std::int64_t> const keys{5, 0, 1, std::int64_t{1} << 40, 77, 3, 2, 8, 9, 10, 11};

template<class Number>
std::vector<Number> drawn(std::uint64_t seed, std::int64_t count) {
  std::vector<Number> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(Number(static_cast<float>(5 * small_real(seed, i, 0))));
  return result;
}

template<class Number>
std::vector<float> widened(std::vector<Number> const& numbers) {
  return {numbers.begin(), numbers.end()};
}

/// As they are after they were rounded.
template<class Number>
std::vector<float> rounded(std::vector<float> numbers) {
  for (auto& number : numbers)
    number = Number(number);
  return numbers;
}

template<class Number>
class TypedRowKernels : public ::testing::Test {};
using Numbers = ::testing::Types<runtime::Bf16Number, runtime::Fp16Number>;
TYPED_TEST_SUITE(TypedRowKernels, Numbers);

TYPED_TEST(TypedRowKernels, ActivationsAreThoseOfFp32RoundedOnce) {
  using Number = TypeParam;
  auto const plain = row_kernels<runtime::InstructionSet::baseline, float>();
  for (std::int64_t const columns : {1, 3, 16, 47, 100, 130})
    for (auto const* const row_keys : {keys.data(), static_cast<std::int64_t const*>(nullptr)}) {
      auto const z = drawn<Number>(80, rows_of_case * columns);
      auto const gradient = drawn<Number>(82, rows_of_case * columns);
      auto const bias = drawn<float>(81, columns);
      auto expected = widened(z);
      plain.activate(
          {columns, expected.data(), expected.data(), bias.data(), row_keys, 6, 99, 1U << 30, 1.5F, true}, 0,
          rows_of_case);
      expected = rounded<Number>(expected);
      auto expected_gradient = widened(gradient);
      plain.activate_backward(
          {rows_of_case, columns, expected.data(), expected_gradient.data(), nullptr, 1.5F}, 0, columns);
      expected_gradient = rounded<Number>(expected_gradient);
      std::vector<float> expected_sums(static_cast<std::size_t>(columns));
      for (std::int64_t i = 0; i < rows_of_case * columns; ++i)
        expected_sums[static_cast<std::size_t>(i % columns)] +=
            expected_gradient[static_cast<std::size_t>(i)];

      for (auto const& kernels : supported_row_kernels<Number>()) {
        auto active = z;
        auto backward = gradient;
        std::vector<float> sums(static_cast<std::size_t>(columns), 12345);
        kernels.activate(
            {columns, active.data(), active.data(), bias.data(), row_keys, 6, 99, 1U << 30, 1.5F, true}, 0,
            rows_of_case);
        kernels.activate_backward({rows_of_case, columns, active.data(), backward.data(), sums.data(), 1.5F},
                                  0, columns);

        EXPECT_EQ(widened(active), expected) << columns;
        EXPECT_EQ(widened(backward), expected_gradient) << columns;
        EXPECT_EQ(sums, expected_sums) << columns;
      }
    }
}

TYPED_TEST(TypedRowKernels, NormsAreThoseOfFp32RoundedOnce) {
  using Number = TypeParam;
  for (std::int64_t const columns : {1, 16, 47, 100, 130}) {
    auto const z = drawn<Number>(83, rows_of_case * columns);
    auto const addend = drawn<Number>(84, rows_of_case * columns);
    auto const gradient = drawn<Number>(85, rows_of_case * columns);
    auto const factors = drawn<float>(86, columns);
    struct Results {
      std::vector<float> result, z_gradient, inverse_rms, row_sums, factor_gradient;
      std::vector<std::uint32_t> passed;
      bool operator==(Results const&) const = default;
    };
    auto const run = [&]<class T>(HostRowKernels<T> const& kernels, std::vector<T> const& from,
                                  std::vector<T> const& beside, std::vector<T> const& back) {
      auto const size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
      Results r;
      r.inverse_rms.resize(size(rows_of_case));
      r.row_sums.resize(size(rows_of_case));
      r.factor_gradient.resize(size(columns));
      r.passed.resize(size(rows_of_case * ((columns + 31) / 32)));
      std::vector<T> result(from.size()), z_gradient(from.size());
      HostNorm<T> a;
      a.num_columns = columns;
      a.z = from.data();
      a.factors = factors.data();
      a.inverse_width = 1 / static_cast<float>(columns);
      a.epsilon = 1e-6F;
      a.keep_scale = 1.5F;
      a.inverse_rms = r.inverse_rms.data();
      a.passed = r.passed.data();
      a.row_keys = keys.data();
      a.first_column = 6;
      a.key = 99;
      a.last_dropped = 1U << 30;
      a.addend = beside.data();
      a.result = result.data();
      kernels.normalise(a, 0, rows_of_case);
      HostNormBackward<T> b{rows_of_case,      columns,           from.data(),
                            factors.data(),    a.inverse_width,   1.5F,
                            a.inverse_rms,     a.passed,          back.data(),
                            r.row_sums.data(), z_gradient.data(), r.factor_gradient.data()};
      kernels.sum_norm_gradient(b, 0, rows_of_case);
      kernels.normalise_backward(b, 0, columns);
      r.result = {result.begin(), result.end()};
      r.z_gradient = {z_gradient.begin(), z_gradient.end()};
      return r;
    };
    auto expected = run(row_kernels<runtime::InstructionSet::baseline, float>(), widened(z), widened(addend),
                        widened(gradient));
    expected.result = rounded<Number>(expected.result);
    expected.z_gradient = rounded<Number>(expected.z_gradient);

    for (auto const& kernels : supported_row_kernels<Number>())
      EXPECT_TRUE(run(kernels, z, addend, gradient) == expected) << columns;
  }
}

} // namespace
} // namespace orthant::testing
