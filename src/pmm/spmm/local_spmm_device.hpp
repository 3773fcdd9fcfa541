#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sparse products on a device: with Orthant's kernels (DeviceSpmm), or for a fixed block with the vendor's library if it is faster
// (LibrarySpmm).

#include "pmm/spmm/local_spmm.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace orthant::pmm::detail {

template<class T, class Operand, class Result>
struct RowsProduct;

/// Runs the kernels of local_spmm_rows.hpp on any execution space; a test runs it on hosts. For a fixed block, the first product of a width
/// and of a range of rows prepares data that is kept:
///
///   plan of the rows             24 bytes per row and per piece (local_spmm.hpp)
///   weights v_k s_{j_k}          one number per non-zero, if the operand has 16 bits and columns have scales
///   sums of the pieces           one row of B's width per piece, if there are rows longer than longest_piece
///   B with rows of whole packs   if rows of B are not aligned to 16 bytes, so that lanes could load only single numbers, or if the copy
///                                saves more reads of column scales than it costs. Copied in every product, and multiplied by the column
///                                scales, except in 16 bits, where this would round again.
///
/// For a changing block nothing is kept: one thread processes a row of any length, and a lane gathers single numbers if rows of B are not
/// aligned.
template<class T>
class DeviceSpmm {
 public:
  DeviceSpmm(SparseBlock<T> block, Contents contents) : block_(std::move(block)), contents_(contents) {}

  /// Computes the product of LocalSpmm::apply(), which checks the arguments. Enqueues on exec. For a fixed block, the first call with a
  /// width and a range of rows waits and allocates. Later calls do neither, and do not read device data on the host.
  template<class Operand, class Result>
  void apply(DefaultExec const& exec, Range rows, Matrix<Operand> const& b, Matrix<Result> const& c);

 private:
  struct Plan {
    Range rows;
    Vector<RowPiece> pieces;
    Vector<PieceSum> groups;
    Vector<PieceSum> long_rows;
    std::int64_t num_places = 0;
    std::int64_t num_nonzeros = 0;
    std::vector<Matrix<T>> sums{}; // one per width; never freed, because captured graphs use it
  };

  Plan& plan_of(DefaultExec const& exec, Range rows);
  Matrix<T> const& sums_of(Plan& plan, std::size_t width);
  T const* weights(DefaultExec const& exec);
  template<class Operand, class Result>
  void copy_b(DefaultExec const& exec, RowsProduct<T, Operand, Result>& product);
  template<int pack, class Operand, class Result>
  void multiply_and_add(DefaultExec const& exec, RowsProduct<T, Operand, Result> const& product,
                        Plan const* plan) const;

  SparseBlock<T> block_;
  Contents contents_;
  std::vector<Plan> plans_;
  Vector<T> weights_;
  std::vector<Vector<std::uint64_t>> copies_; // copies of B, one per size
};

extern template class DeviceSpmm<float>;
extern template class DeviceSpmm<double>;

/// Product of a fixed block with Orthant's kernel or the vendor's library, whichever is faster. The library has several algorithms
/// (vendor_spmm.hpp) and needs one number per non-zero, with which the scales are multiplied once:
///
///   C := A B,   a_ij = r_i v_ij s_j
///
/// Defined in device builds only (local_spmm_library.cpp).
template<class T>
class LibrarySpmm {
 public:
  /// Returns null if the library does not support the block: row groups, separate self loops, no non-zeros, 2^31 or more non-zeros or
  /// rows, or in fp32 a row with 2^24 non-zeros or more.
  [[nodiscard]] static std::shared_ptr<LibrarySpmm> create(SparseBlock<T> const& block);

  /// C := A B. `own_kernel` must enqueue the same product on exec. The first call with a width measures it and all algorithms of the
  /// library, which waits and allocates: 4 bytes per row and one T per non-zero. This memory is kept if the library is faster. If it
  /// would exceed half of the free memory, the library is not measured. Later calls neither wait nor allocate. Use from one host thread
  /// at a time.
  void apply(DefaultExec const& exec, Matrix<T> const& b, Matrix<T> const& c,
             std::function<void()> const& own_kernel);

  /// Choice of apply() for a width: "own" or the library's algorithm; "" before the first call with this width.
  [[nodiscard]] std::string choice(std::size_t width) const;

  /// Returns the library's fastest algorithm for these operands, even if Orthant's kernel is faster. `run` is empty if the library supports
  /// no algorithm or memory is too small. Waits and allocates. For benchmarks.
  [[nodiscard]] SpmmWay fastest(DefaultExec const& exec, Matrix<T> const& b, Matrix<T> const& c);

  LibrarySpmm(LibrarySpmm const&) = delete;
  LibrarySpmm& operator=(LibrarySpmm const&) = delete;
  ~LibrarySpmm();

 private:
  struct Prepared;
  explicit LibrarySpmm(SparseBlock<T> const& block);
  std::unique_ptr<Prepared> prepared_;
};

} // namespace orthant::pmm::detail
