#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sparse times dense on one rank, row-major, with the scaling of rows and columns folded in:
//
//   C[i,:] := r_i sum_j v_ij s_j B[j,:]            r, v and s each 1 where they are absent
//
// A block of a sampled batch scales all but its self loops, which then lie apart, and scales columns by the
// group g of the row:
//
//   C[i,:] := r_i sum_j v_ij s_{g_i,j} B[j,:] + d_i B[self_i,:]
//
// so that A^ = D^-1/2 (A + I) D^-1/2 is stored as a pattern, 4 bytes a non-zero (docs/design.md 3.1). Rows
// are summed in the order of their columns, long ones on a device piece by piece: the result does not
// depend on the number of threads. B may hold 16-bit numbers: sums are fp32 then, and C fp32 or of the same numbers.

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

/// diag(row_scale) csr diag(column_scale). Empty: all 1.
template<class T>
struct SparseBlock {
  CsrMatrix<T> csr;
  Vector<T> row_scale;                 // [num_rows] or empty
  Vector<T> column_scale;              // [num_columns] or empty; with row groups [groups x num_columns]
  Vector<std::int8_t> row_groups{};    // [num_rows] or empty: one group
  Vector<std::int32_t> self_columns{}; // [num_rows] or empty: column of the row's self loop, -1 none
  Vector<T> self_scale{};              // [num_rows] with self_columns: the self loop's whole weight
};

/// The transposed block, columns ascending; scales change places and are shared. For set-up: through the
/// host, O(non-zeros + rows + columns). At most 2^31 rows (Error). A block with row groups or self loops
/// apart comes from a sampler, which makes its transpose, too (Error).
template<class T>
[[nodiscard]] SparseBlock<T> transposed(SparseBlock<T> const& block);

/// Lists the arrays of transposed(), for a block of so many columns and non-zeros.
void plan_transposed(StepPlan& step, std::int64_t num_columns, std::int64_t num_nonzeros, bool has_values);

/// Bytes that a thread of a host may keep for copies of such an operand B (kernels/host_parts.hpp): of `num_rows` rows, each of
/// `width` numbers of `number_bytes`, for a block of so many non-zeros. 0 if a copy does not pay, and on a device.
[[nodiscard]] std::int64_t operand_copy_bytes(std::int64_t num_rows, std::int64_t width,
                                              std::int64_t number_bytes, std::int64_t num_nonzeros);

/// Whether the numbers of a block stay as they are. Of a fixed block a backend may keep a form of its own beside it: a
/// device what the vendor's library wants and, for 16-bit operands, the weights of its non-zeros, a host the weights of its non-zeros (keep_weights()). A changing one (values
/// drawn anew, memory of a batch) is read where it lies. A device sums each of its rows in one piece: in fp32 the
/// sum of 2^24 equal terms or more stays at that of 2^24.
enum class Contents : std::uint8_t { changing, fixed };

/// From which width on products with B keep weights of the non-zeros: there they take at most twice what a B of the whole
/// matrix does, of num_rows rows.
[[nodiscard]] constexpr std::int64_t least_weighted_width(std::int64_t num_nonzeros, std::int64_t num_rows) {
  return std::max<std::int64_t>(1,
                                (num_nonzeros + 2 * num_rows - 1) / std::max<std::int64_t>(1, 2 * num_rows));
}

/// Lists what keep_weights() allocates for a block with column scales.
void plan_weights(StepPlan& step, std::int64_t num_nonzeros);

namespace detail {
template<class T>
class HostWeights; // local_spmm.hpp
template<class T>
class DeviceSpmm; // local_spmm_device.hpp
template<class T>
class LibrarySpmm; // local_spmm_library.hpp
} // namespace detail

/// One of the ways to compute a product, for benchmarks that compare them.
struct SpmmWay {
  std::string name; // the host's way (local_spmm_host_ways.hpp); on a device "own" or the library's algorithm
  std::function<void()> run{};
};

/// The product with one block, made at set-up: what a backend prepares is kept here. Copies share.
template<class T>
class LocalSpmm {
 public:
  LocalSpmm() = default;
  /// Checks lengths (Error). On a device, a fixed block's products may go through the vendor's library
  /// (local_spmm_library.hpp); then a row's sum can depend on the run in its last bits. Waits if
  /// such a block has 2^24 non-zeros or more in fp32, to look for long rows.
  explicit LocalSpmm(SparseBlock<T> block, Contents contents = Contents::changing);

  [[nodiscard]] SparseBlock<T> const& block() const { return block_; }

  /// At set-up, for a block that is multiplied often: on a host, forms the weights of its non-zeros for later products
  /// (local_spmm.hpp), also of copies. Does nothing on a device, for a changing block, without column scales, or a second
  /// time. Fences exec if it does.
  void keep_weights(DefaultExec const& exec) const;

  /// C[i,:] for the rows i of `rows`, a part of the block's. b [num_columns x n], c [num_rows x n], not
  /// overlapping. Enqueues on exec; does not fence, but for the first product of a fixed block with a width
  /// and a range of rows on a device, which prepares later ones. Cost: 2 nnz n flop.
  ///
  /// Operand: T; if T is float, also runtime::Bf16Number or runtime::Fp16Number. They are widened exactly, so the rounding of C is all that is lost. Result: T, or the 16-bit Operand,
  /// to which each sum is rounded once (v = u; else v = 0):
  ///
  ///   |error|  <=  k eps sum_j |r_i v_ij s_j b_jl|  +  v |c_il|      k non-zeros in row i, eps = 2^-23
  ///
  /// An operand that was rounded to 16 bits before adds u sum_j |r_i v_ij s_j b_jl|, u = 2^-8 or 2^-11.
  template<class Operand, class Result>
  void apply(DefaultExec const& exec, Range rows, Matrix<Operand> const& b, Matrix<Result> const& c) const;

  /// Which way apply() takes for whole products of this width; "" if it has not been asked yet, or still tries them.
  [[nodiscard]] std::string way_of(std::int64_t width) const;

  /// The ways that apply() chooses from: on a host Orthant's own; on a device its kernel, and the library's fastest
  /// algorithm if the block is fixed and the library takes it, which tries them, waits, allocates and writes C.
  [[nodiscard]] std::vector<SpmmWay> ways(DefaultExec const& exec, Matrix<T> const& b,
                                          Matrix<T> const& c) const;

 private:
  SparseBlock<T> block_;
  std::shared_ptr<detail::HostWeights<T>> weights_; // null: the block has none
  std::shared_ptr<detail::DeviceSpmm<T>> device_;   // null on a host
  std::shared_ptr<detail::LibrarySpmm<T>> library_; // null: the own kernel does it all
};

extern template class LocalSpmm<float>;
extern template class LocalSpmm<double>;

} // namespace orthant::pmm

namespace orthant::pmm::detail {

// What a fixed block's terms are multiplied by, in the order of its non-zeros:
//
//   w_k := v_k s_{j_k}        v_k = 1 for a pattern
//
// A kernel that reads s itself reads a second array at random places, beside the rows of B: at 32 to 64 columns that
// takes an eighth of its time (Zen 4). Weights are one stream more. They are the products that the kernel would have formed, so
// the bits of C are the same.

/// Shared by the copies of a LocalSpmm.
template<class T>
class HostWeights {
 public:
  /// Of a block with column scales and one group of rows. Does nothing a second time, and fences exec the first time.
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

  /// Empty if they have not been made.
  [[nodiscard]] Vector<T> const& values() const { return values_; }

 private:
  Vector<T> values_;
};

// How the rows of a sparse product are dealt to the threads of a device. Real graphs have rows of a few and
// of a hundred thousand non-zeros: long rows are cut into pieces, and pieces that lie near one another in the
// matrix are put in the order of their lengths, so that the threads of a warp and the warps of a team finish
// together. Not in the order of all lengths: rows that are near one another often gather the same rows of B,
// which the cache then still holds.

/// A row, or a piece of a long one.
struct RowPiece {
  std::int64_t begin = 0; // the first of its non-zeros
  std::int32_t length = 0;
  std::int32_t row = 0;
  std::int64_t place = -1; // row of the buffer that holds the piece's sum; -1: a whole row
};

/// Some pieces' sums to be added: every `step`th from `place` on, to the row of C or, without one, to
/// `place`.
struct PieceSum {
  std::int64_t place = 0;
  std::int32_t count = 0;
  std::int32_t step = 1;
  std::int32_t row = -1;
};

struct RowPlan {
  std::vector<RowPiece> pieces; // every row of the range is here, an empty one with length 0
  // Where rows have more pieces than are added at once, groups of them are added first.
  std::vector<PieceSum> groups;
  std::vector<PieceSum> long_rows; // one a row that was cut, those of the most sums first
  std::int64_t num_places = 0;
};

/// 24 us of a warp at a width of 128 and more work than it costs to add a piece's sum, under 1 %.
inline constexpr std::int32_t longest_piece = 256;
/// A hub of 400,000 non-zeros, 1600 pieces, is then added in 4 and 7 steps, not in 200 one after the other.
inline constexpr std::int32_t pieces_of_a_group = 32;
/// About as many as run at once on a large device.
inline constexpr std::int64_t plan_window = 8192;
/// A thread's gathers in flight (local_spmm_rows.hpp): pieces of as many steps are alike.
inline constexpr std::int32_t gathers_at_once = 8;

/// For the rows of `rows`; `offsets` are theirs, [rows.size() + 1]. Rows end below 2^31 (Error). Cost: O(rows
/// + non-zeros / longest_piece).
[[nodiscard]] RowPlan plan_rows(std::span<std::int64_t const> offsets, runtime::Range rows);

} // namespace orthant::pmm::detail
