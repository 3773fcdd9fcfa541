#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The sparse product on a device: the kernels of local_spmm_rows.hpp, and what they need beside the block. A
// fixed block keeps, from the first product of a width and of a range of rows:
//
//   the plan of the rows         24 bytes a row and a piece (local_spmm.hpp)
//   weights v_k s_{j_k}          a number a non-zero, where an operand has 16 bits and columns have scales
//   sums of the pieces           a row of B's width a piece, where rows are longer than longest_piece
//   B with rows of whole packs   where the width is no multiple of 16 bytes: rows of B then begin anywhere, and lanes could
//                                load single numbers only. Copied in every product, with the scales of the columns
//                                multiplied in (not into 16-bit numbers, which would be rounded again).
//
// Changing blocks keep nothing: a row is a thread's work however long, and where rows of B begin anywhere a
// lane gathers one number. Runs on every execution space: on hosts in its test.
//
// A fixed block's product on a device: Orthant's kernel or the vendor's library, whichever is faster here.
// The library has several algorithms (vendor_spmm.hpp) and needs a number a non-zero; the scales of rows and
// columns are multiplied into those once:
//
//   C := A B,   a_ij = r_i v_ij s_j
//
// Defined in device builds only (local_spmm_library.cpp).

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

template<class T>
class DeviceSpmm {
 public:
  DeviceSpmm(SparseBlock<T> block, Contents contents) : block_(std::move(block)), contents_(contents) {}

  /// As LocalSpmm::apply, whose checks it leaves to it. The first call of a width and a range of a fixed
  /// block waits and allocates; later ones neither, nor read what the device holds.
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
    std::vector<Matrix<T>> sums{}; // one a width: memory that a captured product uses is never given up
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
  std::vector<Vector<std::uint64_t>> copies_; // of B, one a number of bytes
};

extern template class DeviceSpmm<float>;
extern template class DeviceSpmm<double>;

template<class T>
class LibrarySpmm {
 public:
  /// Null where the library cannot take the block: row groups, self loops apart, no non-zeros, 2^31 or
  /// more of them or of rows, or, in fp32, a row of 2^24 or more.
  [[nodiscard]] static std::shared_ptr<LibrarySpmm> create(SparseBlock<T> const& block);

  /// C := A B. `own_kernel` enqueues the same on exec. The first call of each width runs it and all
  /// algorithms of the library, which waits and allocates: 4 bytes a row and one T a non-zero, kept where the
  /// library won and not tried where half of the free memory would not hold them. Later calls neither wait
  /// nor allocate. One host thread at a time.
  void apply(DefaultExec const& exec, Matrix<T> const& b, Matrix<T> const& c,
             std::function<void()> const& own_kernel);

  /// What apply() chose for a width: "own" or the library's algorithm; "" where it has not been asked yet.
  [[nodiscard]] std::string choice(std::size_t width) const;

  /// The library's fastest algorithm for these operands, whether or not the own kernel is faster; no way
  /// (`run` empty) where the library or the memory has none. Waits and allocates. For benchmarks.
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
