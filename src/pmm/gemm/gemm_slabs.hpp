#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A^T B with a long inner extent on a device. The rows are cut into slabs, which are multiplied at the same time:
//
//   P_s := A[s,:]^T B[s,:]                                  one batched product of the library
//   C   := alpha (sum_s P_s + A[rest,:]^T B[rest,:]) + beta C      in a fixed order
//
// The gradient of a weight, 128 x 128 sums over millions of vertices, fills only one tile of a library's kernel. Unless the library splits
// the sum, it keeps one of 132 multiprocessors busy. For 2.45 M rows in fp32 it takes 80 GFLOP: 1.6 ms at 50 TFLOP/s, but 0.2 s on one
// multiprocessor. The partial products are written and read once: 2 x 35 MB, 16 us at 4.3 TB/s.

#include "pmm/gemm/local_gemm.hpp"

#include <algorithm>
#include <cstdint>

namespace orthant::pmm::detail {

struct GemmSlabs {
  std::int64_t count = 0; // 0 if the product is not cut
  std::int64_t length = 0;

  /// Number of rows after the last slab; fewer than `count`.
  [[nodiscard]] std::int64_t num_rest(std::int64_t k) const { return k - count * length; }
};

/// Number of elements in a tile of the result, as in the library's kernels for large products.
inline constexpr std::int64_t gemm_tile = 128 * 128;

/// Number of tiles that keep a device with `concurrency` threads busy, with a block of 256 threads per tile. Half of the possible number
/// of blocks is enough: 4 of 8 per multiprocessor, 528 on an H200. At least 8 on any device.
[[nodiscard]] inline std::int64_t wanted_gemm_tiles(std::int64_t concurrency) {
  return std::max<std::int64_t>(concurrency / 512, 8);
}

/// Cuts the sums of C [m x n] into slabs of at least 256 rows, so that all partial products together have about `wanted_tiles` tiles. They
/// always fit in wanted_tiles * gemm_tile numbers. The product is not cut if there would be fewer than 8 slabs.
[[nodiscard]] inline GemmSlabs cut_in_slabs(GemmExtents const& extents, std::int64_t wanted_tiles) {
  constexpr auto shortest = std::int64_t{256};
  constexpr auto fewest = std::int64_t{8};
  auto const [m, n, k] = extents;
  auto const tiles = (m * n + gemm_tile - 1) / gemm_tile;
  auto const count = std::min(wanted_tiles / std::max<std::int64_t>(tiles, 1), k / shortest);
  return count < fewest ? GemmSlabs{} : GemmSlabs{count, k / count};
}

/// Rows after the last slab: A [rows x m], B [rows x n].
template<class T>
struct GemmRest {
  T const* a = nullptr;
  T const* b = nullptr;
  std::int64_t a_row_stride = 0;
  std::int64_t b_row_stride = 0;
  std::int64_t num_rows = 0;
};

/// Sums a group of slabs and some rows of the rest into the first slab of the group. Uses one thread per number of C and group, so that
/// enough memory loads are in flight.
template<class T>
struct SumGroup {
  T* partial; // [count x m x n]
  std::int64_t num_slabs, group_size, num_groups, m, n;
  GemmRest<T> rest;

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    auto const size = m * n;
    auto const group = index / size;
    auto const at = index % size;
    auto const end = (group + 1) * group_size < num_slabs ? (group + 1) * group_size : num_slabs;
    T sum = 0;
    for (auto slab = group * group_size; slab < end; ++slab)
      sum += partial[slab * size + at];
    for (auto row = group; row < rest.num_rows; row += num_groups)
      sum += rest.a[row * rest.a_row_stride + at / n] * rest.b[row * rest.b_row_stride + at % n];
    partial[group * group_size * size + at] = sum;
  }
};

/// C := alpha (sum of the groups) + beta C.
template<class T>
struct SumGroups {
  T const* partial;
  std::int64_t group_size, num_groups, m, n;
  T alpha, beta;
  T* c;
  std::int64_t c_row_stride;

  KOKKOS_FUNCTION void operator()(std::int64_t at) const {
    T sum = 0;
    for (std::int64_t group = 0; group < num_groups; ++group)
      sum += partial[group * group_size * m * n + at];
    auto& number = c[at / n * c_row_stride + at % n];
    number = beta == T{0} ? alpha * sum : alpha * sum + beta * number;
  }
};

/// C [m x n] := alpha (sum_s P_s + product of the rest) + beta C. Enqueues on exec; does not wait or allocate. `partial` contains the P_s
/// one after another and is overwritten. C is not read if beta is 0.
template<class T>
void sum_slabs(runtime::DefaultExec const& exec, std::int64_t num_slabs, T* partial, GemmRest<T> const& rest,
               T alpha, T beta, Panel<T> const& c) {
  using Policy = Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>;
  constexpr auto group_size = std::int64_t{24}; // about sqrt(528): as many slabs per group as groups
  auto const num_groups = (num_slabs + group_size - 1) / group_size;
  auto const size = c.num_rows * c.num_columns;
  Kokkos::parallel_for(
      "orthant::pmm::gemm_slabs/groups", Policy(exec, 0, num_groups * size),
      SumGroup<T>{partial, num_slabs, group_size, num_groups, c.num_rows, c.num_columns, rest});
  Kokkos::parallel_for("orthant::pmm::gemm_slabs/sum", Policy(exec, 0, size),
                       SumGroups<T>{partial, group_size, num_groups, c.num_rows, c.num_columns, alpha, beta,
                                    c.data, c.row_stride});
}

} // namespace orthant::pmm::detail
