// SPDX-License-Identifier: Apache-2.0
//
// What libraries keep of products that they have multiplied: the resident memory of the process. In a program of its own, since what
// a library takes at its first product is counted. Host only.
#include "pmm/gemm/dense_library.hpp"
#include "pmm/gemm/gemm_choice.hpp"
#include "runtime/machine/process_memory.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

constexpr std::int64_t mib = std::int64_t{1} << 20;

/// Operands and results of the largest products, all of whose pages are there.
class GemmMemory : public ::testing::Test {
 protected:
  GemmMemory() : a_(4 * mib, 1.0F), b_(4 * mib, 2.0F), c_(4 * mib, 3.0F) {}

  /// Multiplies [m x k] by [k x n]. False if the library leaves it to others.
  bool multiply(DenseLibrary const& library, std::int64_t m, std::int64_t n, std::int64_t k) {
    auto const panel = [](std::vector<float>& numbers, std::int64_t rows, std::int64_t columns) {
      Panel<float> result;
      result.data = numbers.data();
      result.num_rows = rows;
      result.num_columns = result.row_stride = columns;
      return result;
    };
    return library.multiply(DenseProduct<float>{
        {m, n, k}, 1, Transpose::no, panel(a_, m, k), Transpose::no, panel(b_, k, n), 0, panel(c_, m, n)});
  }

  static DenseLibrary const* library_named(std::string_view name) {
    auto const libraries = dense_libraries();
    auto const found = std::ranges::find(libraries, name, [](auto const* each) { return each->name(); });
    return found == libraries.end() ? nullptr : *found;
  }

 private:
  std::vector<float> a_, b_, c_;
};

TEST_F(GemmMemory, OfOneDnnIsOnePackedOperandForAllKernels) {
  auto const* const library = library_named(onednn_name);
  if (library == nullptr || runtime::resident_bytes() == 0) GTEST_SKIP() << "no oneDNN, or no figures";
  ASSERT_TRUE(multiply(*library, 512, 1024, 1024));
  auto const before = runtime::resident_bytes();

  for (std::int64_t n = 1023; n >= 1008; --n) // 16 kernels
    ASSERT_TRUE(multiply(*library, 512, n, 1024));

  // A kernel takes some 120 KiB, more where the processor has AVX-512 or tiles. Each operand, packed, has 4 MiB: 64 MiB for all kernels.
  EXPECT_LE(runtime::resident_bytes() - before, 16 * mib);
}

} // namespace
} // namespace orthant::testing
