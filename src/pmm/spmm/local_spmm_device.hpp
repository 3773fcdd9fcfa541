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

#include "pmm/spmm/local_spmm.hpp"

#include <cstddef>
#include <cstdint>
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

} // namespace orthant::pmm::detail
