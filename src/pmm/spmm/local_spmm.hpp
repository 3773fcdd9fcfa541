#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Product of a sparse and a dense matrix on one rank, row-major, which also scales rows and columns:
//
//   C[i,:] := r_i sum_j v_ij s_j B[j,:]            r, v and s are 1 if absent
//
// A block of a sampled batch has different column scales for each group g of rows. It does not scale self loops, which are stored
// separately:
//
//   C[i,:] := r_i sum_j v_ij s_{g_i,j} B[j,:] + d_i B[self_i,:]
//
// A^ = D^-1/2 (A + I) D^-1/2 is therefore stored as a pattern, with 4 bytes per non-zero (docs/design.md 3.1). Each row is summed in the
// order of its columns, and long rows on a device in pieces, so the result does not depend on the number of threads. If B has 16-bit
// numbers, sums are in fp32, and C is in fp32 or in the format of B.

#include "pmm/cost/step_plan.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace orthant::pmm {

using runtime::CsrMatrix;
using runtime::DefaultExec;
using runtime::Matrix;
using runtime::Range;
using runtime::Vector;

/// diag(row_scale) csr diag(column_scale). An empty scale counts as 1.
template<class T>
struct SparseBlock {
  CsrMatrix<T> csr;
  Vector<T> row_scale;                 // [num_rows] or empty
  Vector<T> column_scale;              // [num_columns] or empty; [groups x num_columns] with row groups
  Vector<std::int8_t> row_groups{};    // [num_rows], or empty if there is one group
  Vector<std::int32_t> self_columns{}; // [num_rows] or empty; column of the row's self loop, -1 if none
  Vector<T> self_scale{};              // as long as self_columns; weight of the self loop, not scaled further
};

/// Returns the transposed block, with ascending columns. Row and column scales swap places and are shared. For set-up: runs on the host, in
/// O(non-zeros + rows + columns). Throws Error if there are 2^31 rows or more, row groups, or separate self loops: a sampler that creates
/// such blocks also creates their transposes.
template<class T>
[[nodiscard]] SparseBlock<T> transposed(SparseBlock<T> const& block);

/// Lists the arrays of transposed() for a block of `num_columns` columns and `num_nonzeros` non-zeros.
void plan_transposed(StepPlan& step, std::int64_t num_columns, std::int64_t num_nonzeros, bool has_values);

/// Bytes that a thread of a host may keep for a copy of an operand B with `num_rows` rows of `width` numbers of `number_bytes` bytes
/// (kernels/host_parts.hpp), for a block of `num_nonzeros` non-zeros. 0 if a copy is not worthwhile, and on a device.
[[nodiscard]] std::int64_t operand_copy_bytes(std::int64_t num_rows, std::int64_t width,
                                              std::int64_t number_bytes, std::int64_t num_nonzeros);

/// Whether the values of a block can change. For a fixed block, a backend may keep a prepared form: a device the data of the vendor's
/// library and, for 16-bit operands, the weights of the non-zeros; a host the weights of the non-zeros (keep_weights()). A changing block
/// (values that are drawn again, memory of a batch) is always read directly, and a device sums each of its rows in one piece: in fp32, a
/// sum of equal terms stops growing at 2^24 terms.
enum class Contents : std::uint8_t { changing, fixed };

/// Smallest width of B from which on weights of the non-zeros should be kept: they then take at most twice the memory of a B with num_rows
/// rows.
[[nodiscard]] constexpr std::int64_t least_weighted_width(std::int64_t num_nonzeros, std::int64_t num_rows) {
  return std::max<std::int64_t>(1,
                                (num_nonzeros + 2 * num_rows - 1) / std::max<std::int64_t>(1, 2 * num_rows));
}

/// Lists the array that keep_weights() allocates for a block with column scales.
void plan_weights(StepPlan& step, std::int64_t num_nonzeros);

namespace detail {
template<class T>
class HostWeights; // below
template<class T>
class DeviceSpmm; // local_spmm_device.hpp
template<class T>
class LibrarySpmm; // local_spmm_device.hpp
} // namespace detail

/// One of the methods to compute a product, for benchmarks that compare them.
struct SpmmWay {
  /// On a host, a method of local_spmm_host_ways.hpp; on a device "own" or the library's algorithm.
  std::string name;
  std::function<void()> run{};
};

/// Product with one block, created at set-up. Keeps what a backend prepares for the block. Copies share the block and this data.
template<class T>
class LocalSpmm {
 public:
  LocalSpmm() = default;
  /// Throws Error if the lengths of the block's arrays do not agree. On a device, products of a fixed block may use the vendor's library
  /// (LibrarySpmm); the last bits of a row's sum can then differ between runs. For a fixed block in fp32 with 2^24 non-zeros or more, a
  /// device searches for long rows and waits.
  explicit LocalSpmm(SparseBlock<T> block, Contents contents = Contents::changing);

  [[nodiscard]] SparseBlock<T> const& block() const { return block_; }

  /// Computes the weights of the non-zeros on a host (HostWeights), for later products of this object and its copies. Fences exec. Call at
  /// set-up for a block that is multiplied often. Does nothing on a device, for a changing block, without column scales, with row groups,
  /// or at a second call.
  void keep_weights(DefaultExec const& exec) const;

  /// Computes C[i,:] for the rows i of `rows`, a part of the rows of the block. b [num_columns x n], c [num_rows x n]; they must not
  /// overlap. Enqueues on exec. Does not fence, except on a device at the first product of a fixed block with a width and a range of rows,
  /// which prepares later ones, and on a host while methods are timed (way_of()). Throws Error unless the extents agree.
  /// Cost: 2 nnz n flop.
  ///
  /// Operand: T; if T is float, also runtime::Bf16Number or runtime::Fp16Number, which are widened exactly. Result: T, or the 16-bit
  /// Operand, to which each sum is rounded once. In the latter case v = u, otherwise v = 0:
  ///
  ///   |error|  <=  k eps sum_j |r_i v_ij s_j b_jl|  +  v |c_il|      k non-zeros in row i, eps = 2^-23
  ///
  /// If the operand itself was rounded to 16 bits, this adds u sum_j |r_i v_ij s_j b_jl|, with u = 2^-8 for bf16 and 2^-11 for fp16.
  template<class Operand, class Result>
  void apply(DefaultExec const& exec, Range rows, Matrix<Operand> const& b, Matrix<Result> const& c) const;

  /// Name of the method that apply() uses for whole products of this width; "" before the first product and while methods are timed.
  [[nodiscard]] std::string way_of(std::int64_t width) const;

  /// Methods that apply() chooses from. On a host, they are Orthant's own. On a device, they are Orthant's kernel and, if the block is
  /// fixed and supported by the vendor's library, the library's fastest algorithm. To find it, this function runs all algorithms, which
  /// waits, allocates and writes C.
  [[nodiscard]] std::vector<SpmmWay> ways(DefaultExec const& exec, Matrix<T> const& b,
                                          Matrix<T> const& c) const;

 private:
  SparseBlock<T> block_;
  std::shared_ptr<detail::HostWeights<T>> weights_; // null if the block cannot have weights
  std::shared_ptr<detail::DeviceSpmm<T>> device_;   // null on a host
  std::shared_ptr<detail::LibrarySpmm<T>> library_; // null if only Orthant's kernel is used
};

extern template class LocalSpmm<float>;
extern template class LocalSpmm<double>;

} // namespace orthant::pmm

namespace orthant::pmm::detail {

// Weights of the non-zeros of a fixed block:
//
//   w_k := v_k s_{j_k}        v_k = 1 for a pattern
//
// A kernel that reads s accesses a second array at random, in addition to the rows of B. At 32 to 64 columns this takes an eighth of its
// time (Zen 4). Weights are read in order instead. They equal the products that the kernel would compute, so the bits of C are the same.

/// Weights that the copies of a LocalSpmm share.
template<class T>
class HostWeights {
 public:
  /// Computes the weights of a block with column scales and one group of rows, and fences exec. Does nothing at a second call.
  void make(DefaultExec const& exec, SparseBlock<T> const& block) {
    auto const num_nonzeros = static_cast<std::size_t>(block.csr.num_nonzeros());
    if (values_.extent(0) == num_nonzeros) return;
    values_ =
        Vector<T>(Kokkos::view_alloc("orthant::pmm::weights", Kokkos::WithoutInitializing), num_nonzeros);
    auto const* const columns = block.csr.columns.data();
    auto const* const values = block.csr.values.extent(0) == 0 ? nullptr : block.csr.values.data();
    auto const* const scale = block.column_scale.data();
    auto* const weights = values_.data();
    for_each_part(exec, "orthant::pmm::weights", block.csr.num_nonzeros(),
                  [=](std::int64_t begin, std::int64_t end) {
                    for (auto k = begin; k < end; ++k)
                      weights[k] = (values == nullptr ? T{1} : values[k]) * scale[columns[k]];
                  });
    runtime::compat::fence(exec, "orthant::pmm::weights");
  }

  /// Empty before make().
  [[nodiscard]] Vector<T> const& values() const { return values_; }

 private:
  Vector<T> values_;
};

// Distribution of the rows of a sparse product over the threads of a device. Rows of real graphs have between a few and a hundred thousand
// non-zeros. Long rows are cut into pieces, and within each window of the matrix the pieces are sorted by length, so that the threads of a
// warp and the warps of a team finish at about the same time. All pieces together are not sorted, because neighboring rows often gather
// the same rows of B, which are then still in the cache.

/// A row, or a piece of a long one.
struct RowPiece {
  std::int64_t begin = 0; // its first non-zero
  std::int32_t length = 0;
  std::int32_t row = 0;
  std::int64_t place = -1; // row of the buffer for the piece's sum; -1 for a whole row
};

/// An addition of sums of pieces: `count` rows of the buffer at a distance of `step`, from `place` on. The result goes to row `row` of C,
/// or to `place` of the buffer if `row` is -1.
struct PieceSum {
  std::int64_t place = 0;
  std::int32_t count = 0;
  std::int32_t step = 1;
  std::int32_t row = -1;
};

struct RowPlan {
  std::vector<RowPiece> pieces; // all rows of the range; empty rows have length 0
  // If a row has more than pieces_of_a_group pieces, groups of pieces are added first.
  std::vector<PieceSum> groups;
  std::vector<PieceSum> long_rows; // one per row that was cut, those with the most sums first
  std::int64_t num_places = 0;
};

/// Takes a warp 24 us at a width of 128. Adding the sum of a piece costs less than 1 % of this.
inline constexpr std::int32_t longest_piece = 256;
/// The 1600 pieces of a row of 400,000 non-zeros are then added in 4 and 7 consecutive steps instead of 200.
inline constexpr std::int32_t pieces_of_a_group = 32;
/// Number of pieces that are sorted together: about as many as a large device runs at the same time.
inline constexpr std::int64_t plan_window = 8192;
/// Number of gathers that a thread has in flight (local_spmm_rows.hpp). Pieces with the same number of such steps count as equally long.
inline constexpr std::int32_t gathers_at_once = 8;

/// Plan for the rows `rows`, whose offsets are `offsets` [rows.size() + 1]. Throws Error if rows.end is 2^31 or more.
/// Cost: O(rows + non-zeros / longest_piece).
[[nodiscard]] RowPlan plan_rows(std::span<std::int64_t const> offsets, runtime::Range rows);

} // namespace orthant::pmm::detail
