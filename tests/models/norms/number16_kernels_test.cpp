// SPDX-License-Identifier: Apache-2.0
//
// Kernels of devices on rows of 16-bit numbers, on whatever execution space there is: what the same kernel makes of the same
// numbers in fp32 (which other tests hold against formulas), each result rounded once. Equal to the bit.
#include "models/layers/activation_kernels.hpp"
#include "models/layers/rms_norm_kernels.hpp"
#include "pmm/kernels/rounding.hpp"
#include "pmm/rows/column_sums.hpp"
#include "support/dist_checks.hpp"

#include <array>
#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::models;
using pmm::PackedArray;
using runtime::DefaultExec;
using runtime::Vector;

template<class Number>
class Number16KernelsTest : public ::testing::Test {
 protected:
  using Wide = std::vector<float>;
  DefaultExec exec_;

  /// Numbers that the format holds, as floats.
  static Wide numbers(std::uint64_t seed, std::int64_t count) {
    Wide all;
    for (std::int64_t i = 0; i < count; ++i)
      all.push_back(Number(static_cast<float>(small_real(seed, i, 0))));
    return all;
  }
  static Vector<Number> narrow(Wide const& numbers) {
    std::vector<Number> all;
    for (auto const number : numbers)
      all.push_back(Number(number));
    return device_copy(all);
  }
  template<class T>
  static Wide on_host(Vector<T> const& numbers) {
    auto const host = host_copy(numbers);
    return Wide(host.data(), host.data() + host.size());
  }
  static Wide rounded(Wide numbers) {
    for (auto& number : numbers)
      number = Number(number);
    return numbers;
  }
  static PackedArray<Number const> packed(Vector<Number> const& numbers) {
    return PackedArray<Number const>(numbers.data());
  }
  static PackedArray<float const> packed(Vector<float> const& numbers) {
    return PackedArray<float const>(numbers.data());
  }
  template<class Body>
  static void for_each_shape(Body const& body) {
    for (std::int64_t const num_rows : {1, 9, 70})
      for (std::int64_t const num_columns : {1, 3, 4, 8, 47, 64, 100}) {
        SCOPED_TRACE(::testing::Message() << num_rows << " x " << num_columns);
        body(num_rows, num_columns);
      }
  }
};
using Formats = ::testing::Types<runtime::Bf16Number, runtime::Fp16Number>;
TYPED_TEST_SUITE(Number16KernelsTest, Formats);

TYPED_TEST(Number16KernelsTest, WidensAndRoundsFromAnyPlace) {
  using Number = TypeParam;
  for (std::int64_t const count : {1, 4, 7, 64, 101})
    for (std::size_t const first : {0, 1, 2, 3}) {
      auto const wide = this->numbers(61, count + 3);
      auto const whole = this->narrow(wide);
      auto const range = std::pair(first, static_cast<std::size_t>(count) + first);
      Vector<float> const widened("orthant::testing::widened", static_cast<std::size_t>(count));
      Vector<Number> const again("orthant::testing::again", static_cast<std::size_t>(count));
      pmm::widen_numbers<Number>(this->exec_, Kokkos::subview(whole, range), widened);
      pmm::round_numbers<Number>(this->exec_, widened, again);
      this->exec_.fence();
      typename TestFixture::Wide const part(wide.begin() + static_cast<std::ptrdiff_t>(first),
                                            wide.begin() + static_cast<std::ptrdiff_t>(first) + count);
      EXPECT_EQ(this->on_host(widened), part);
      EXPECT_EQ(this->on_host(again), part);
    }
}

TYPED_TEST(Number16KernelsTest, BiasReluAndDropout) {
  this->for_each_shape([&](std::int64_t num_rows, std::int64_t num_columns) {
    auto const count = num_rows * num_columns;
    auto const z = this->numbers(62, count);
    auto const gradient = this->numbers(63, count);
    auto const bias = device_copy(this->numbers(64, num_columns));
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < num_rows; ++i)
      ids.push_back(i * 37 % 101);
    BlockKeys const keys{device_copy(ids), 6};
    Dropout const dropout{0.4, runtime::RandomStream(3, runtime::Purpose::dropout, 5, 2)};
    auto const results = [&]<class T>(Vector<T> const& from, Vector<T> const& back) {
      auto const columns = pmm::Divisor(num_columns);
      auto const relu = device_copy(std::vector<T>(from.extent(0)));
      Kokkos::deep_copy(relu, from);
      pmm::for_each_pack<T>(
          this->exec_, "orthant::testing::relu", count,
          detail::BiasReluPack<T>{PackedArray<T>(relu.data()), this->packed(bias), columns});
      auto const masked = device_copy(std::vector<T>(from.extent(0)));
      pmm::for_each_pack<T>(this->exec_, "orthant::testing::mask", count,
                            detail::MaskPack<T, true>{this->packed(from),
                                                      PackedArray<T>(masked.data()),
                                                      this->packed(bias),
                                                      {dropout, keys, 0, num_columns},
                                                      0,
                                                      1.0F / 0.6F});
      pmm::ColumnSlabs const slabs(num_rows, num_columns);
      Vector<float> const partial("orthant::testing::partial",
                                  static_cast<std::size_t>(slabs.num_partial_sums()));
      Vector<float> const sums("orthant::testing::sums", static_cast<std::size_t>(num_columns));
      pmm::sum_columns_in_slabs(
          this->exec_, "orthant::testing::backward", slabs,
          detail::BackwardPack<T>{this->packed(from), PackedArray<T>(back.data()), 1.5F}, partial, sums);
      this->exec_.fence();
      return std::array{this->on_host(relu), this->on_host(masked), this->on_host(back), this->on_host(sums)};
    };
    auto const right = results(device_copy(z), device_copy(gradient));
    auto const found = results(this->narrow(z), this->narrow(gradient));
    EXPECT_EQ(found[0], this->rounded(right[0])) << "relu";
    EXPECT_EQ(found[1], this->rounded(right[1])) << "dropout";
    EXPECT_EQ(found[2], this->rounded(right[2])) << "gradient";
    EXPECT_EQ(found[3], right[3]) << "sums in fp32, of gradients before they are rounded";
  });
}

TYPED_TEST(Number16KernelsTest, RmsNorm) {
  this->for_each_shape([&](std::int64_t num_rows, std::int64_t num_columns) {
    auto const count = num_rows * num_columns;
    auto const z = this->numbers(65, count);
    auto const before = this->numbers(66, count);
    auto const gradient = this->numbers(67, count);
    auto const scale = device_copy(this->numbers(68, num_columns));
    auto const words = RmsNormState<float>::words_of(num_columns);
    auto const results = [&]<class T>(Vector<T> const& from, Vector<T> const& addend, Vector<T> const& back) {
      auto const result = device_copy(std::vector<T>(from.extent(0)));
      Vector<float> const inverse("orthant::testing::inverse", static_cast<std::size_t>(num_rows));
      Vector<float> const row_sums("orthant::testing::row_sums", static_cast<std::size_t>(num_rows));
      Vector<float> const squares("orthant::testing::squares", static_cast<std::size_t>(num_rows));
      Vector<std::uint32_t> const passed("orthant::testing::passed",
                                         static_cast<std::size_t>(num_rows * words));
      auto const inverse_width = 1.0F / static_cast<float>(num_columns);
      detail::Masks const masks{runtime::RandomStream(3, runtime::Purpose::dropout, 5, 2), 0, {}, 0};
      pmm::for_each_row(this->exec_, "orthant::testing::squares", num_rows, num_columns / 4,
                        detail::SquareRow<T>{this->packed(from), num_columns, squares.data()});
      pmm::for_each_row(this->exec_, "orthant::testing::normalise", num_rows, num_columns / 8,
                        detail::NormaliseRow<T>{this->packed(from), this->packed(scale), num_columns, masks,
                                                1.25F, inverse_width, false, inverse.data(),
                                                reinterpret_cast<std::uint8_t*>(passed.data()), words,
                                                this->packed(addend), PackedArray<T>(result.data())});
      detail::GradientSource<T> const source{this->packed(from),
                                             this->packed(scale),
                                             pmm::Divisor(num_columns),
                                             1.25F,
                                             inverse.data(),
                                             passed.data(),
                                             words};
      pmm::for_each_row(this->exec_, "orthant::testing::row_sums", num_rows, num_columns / 4,
                        detail::GradientRowSum<T>{source, this->packed(back), row_sums.data()});
      pmm::ColumnSlabs const slabs(num_rows, num_columns);
      Vector<float> const partial("orthant::testing::partial",
                                  static_cast<std::size_t>(slabs.num_partial_sums()));
      Vector<float> const sums("orthant::testing::sums", static_cast<std::size_t>(num_columns));
      pmm::sum_columns_in_slabs(this->exec_, "orthant::testing::backward", slabs,
                                detail::GradientPack<T>{source, this->packed(back),
                                                        PackedArray<T>(back.data()), row_sums.data(),
                                                        inverse_width},
                                partial, sums);
      this->exec_.fence();
      return std::array{this->on_host(squares), this->on_host(inverse), this->on_host(row_sums),
                        this->on_host(sums),    this->on_host(result),  this->on_host(back)};
    };
    auto const right = results(device_copy(z), device_copy(before), device_copy(gradient));
    auto const found = results(this->narrow(z), this->narrow(before), this->narrow(gradient));
    for (std::size_t i = 0; i < right.size(); ++i)
      EXPECT_EQ(found[i], i < 4 ? right[i] : this->rounded(right[i])) << "result " << i;
  });
}

} // namespace
} // namespace orthant::testing
