// SPDX-License-Identifier: Apache-2.0
//
// Long sums of dense products in slabs: how they are cut, and that nothing is lost between the slabs.
#include "pmm/gemm/gemm_slabs.hpp"
#include "support/dist_checks.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using pmm::detail::cut_in_slabs;
using pmm::detail::gemm_tile;

TEST(GemmSlabs, AreAsManyAsFillTheDeviceAndFitInItsMemory) {
  // 132 multiprocessors of 2048 threads; the gradients of a products-sized graph.
  auto const wanted = pmm::detail::wanted_gemm_tiles(132 * 2048);
  ASSERT_EQ(wanted, 528);
  for (auto const& [m, n] :
       {std::pair<std::int64_t, std::int64_t>{100, 128}, {128, 128}, {128, 47}, {1, 1}, {300, 500}}) {
    auto const slabs = cut_in_slabs({m, n, 2'449'029}, wanted);
    auto const tiles = (m * n + gemm_tile - 1) / gemm_tile;
    EXPECT_EQ(slabs.count, wanted / tiles) << m << " x " << n;
    EXPECT_LE(slabs.count * m * n, wanted * gemm_tile) << m << " x " << n;
    EXPECT_GE(slabs.num_rest(2'449'029), 0) << m << " x " << n;
    EXPECT_LT(slabs.num_rest(2'449'029), slabs.count) << m << " x " << n;
  }
}

TEST(GemmSlabs, AreNotCutFromWhatIsShortOrFillsTheDeviceByItself) {
  EXPECT_EQ(cut_in_slabs({128, 128, 2000}, 528).count, 0); // not even 8 of 256 rows
  EXPECT_EQ(cut_in_slabs({128, 128, 2048}, 528).count, 8);
  EXPECT_EQ(cut_in_slabs({128, 128, 9796}, 528).count, 38);  // a batch
  EXPECT_EQ(cut_in_slabs({8192, 8192, 8192}, 528).count, 0); // 4096 tiles
  EXPECT_EQ(pmm::detail::wanted_gemm_tiles(1), 8);
}

/// C := 2 A^T B + beta C in slabs, their products computed here; small integers, exact in any order.
template<class T>
void expect_whole_sum(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t num_slabs, T beta) {
  constexpr std::int64_t wider = 3; // rows of A, B and C lie that much further apart
  pmm::detail::GemmSlabs const slabs{num_slabs, k / num_slabs};
  auto const a = [](std::int64_t row, std::int64_t i) { return static_cast<T>(small_integer(1, row, i)); };
  auto const b = [](std::int64_t row, std::int64_t j) { return static_cast<T>(small_integer(2, row, j)); };
  auto const c = [](std::int64_t i, std::int64_t j) { return static_cast<T>(small_integer(3, i, j)); };
  auto const filled = [](std::int64_t rows, std::int64_t stride, auto const& number) {
    runtime::Vector<T> const device("orthant::testing::numbers", static_cast<std::size_t>(rows * stride));
    auto const host = Kokkos::create_mirror_view(device);
    for (std::int64_t i = 0; i < rows * stride; ++i)
      host(static_cast<std::size_t>(i)) = number(i / stride, i % stride);
    Kokkos::deep_copy(device, host);
    return device;
  };
  auto const device_a = filled(k, m + wider, a);
  auto const device_b = filled(k, n + wider, b);
  auto const device_c = filled(m, n + wider, c);
  auto const partial = filled(num_slabs, m * n, [&](std::int64_t slab, std::int64_t at) {
    T sum = 0;
    for (auto row = slab * slabs.length; row < (slab + 1) * slabs.length; ++row)
      sum += a(row, at / n) * b(row, at % n);
    return sum;
  });
  auto const first = slabs.count * slabs.length;
  Panel<T> panel;
  panel.data = device_c.data();
  panel.num_rows = m;
  panel.num_columns = n;
  panel.row_stride = n + wider;

  pmm::detail::sum_slabs<T>(DefaultExec(), num_slabs, partial.data(),
                            {device_a.data() + first * (m + wider), device_b.data() + first * (n + wider),
                             m + wider, n + wider, slabs.num_rest(k)},
                            2, beta, panel);

  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, device_c);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n + wider; ++j) {
      T sum = 0;
      for (std::int64_t row = 0; row < k && j < n; ++row)
        sum += a(row, i) * b(row, j);
      ASSERT_EQ(host(static_cast<std::size_t>(i * (n + wider) + j)),
                j < n ? 2 * sum + beta * c(i, j) : c(i, j))
          << m << " x " << n << ", " << k << " rows in " << num_slabs << ", number " << i << ", " << j;
    }
}

TEST(GemmSlabs, AddUpToTheWholeProduct) {
  for (auto const num_slabs : {1, 8, 23, 24, 25, 60})
    for (auto const beta : {0, 3}) {
      expect_whole_sum<float>(5, 7, 60, num_slabs, static_cast<float>(beta)); // no rest for some of these
      expect_whole_sum<float>(9, 4, 119, num_slabs, static_cast<float>(beta));
      expect_whole_sum<double>(1, 1, 131, num_slabs, static_cast<double>(beta));
    }
}

} // namespace
} // namespace orthant::testing
