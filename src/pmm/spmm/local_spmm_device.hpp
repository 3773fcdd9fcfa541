#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The sparse product on a device: the kernels of local_spmm_rows.hpp, and what they need beside the block. A
// fixed block keeps, from the first product of a width and of a range of rows:
//
//   the plan of the rows         24 bytes a row and a piece (local_spmm_plan.hpp)
//   sums of the pieces           a row of B's width a piece, where rows are longer than longest_piece
//   B with rows of whole packs   where the width is no multiple of 4 floats or 2 doubles: rows of B then
//   begin
//                                anywhere, and lanes could load single numbers only. Copied in every product,
//                                with the scales of the columns multiplied in.
//
// Changing blocks keep nothing: a row is a thread's work however long, and where rows of B begin anywhere a
// lane gathers one number. Compiled for every execution space, so that each tests it.

#include "pmm/spmm/local_spmm.hpp"
#include "pmm/spmm/local_spmm_plan.hpp"

#include <cstddef>
#include <vector>

namespace orthant::pmm::detail {

template<class T>
struct RowsProduct;

template<class T>
class DeviceSpmm {
 public:
  DeviceSpmm(SparseBlock<T> block, Contents contents) : block_(std::move(block)), contents_(contents) {}

  /// As LocalSpmm::apply, whose checks it leaves to it. The first call of a width and a range of a fixed
  /// block waits and allocates; later ones neither, nor read what the device holds.
  void apply(DefaultExec const& exec, Range rows, Matrix<T> const& b, Matrix<T> const& c);

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
  void copy_b(DefaultExec const& exec, RowsProduct<T>& product);
  template<int pack>
  void multiply_and_add(DefaultExec const& exec, RowsProduct<T> const& product, Plan const* plan) const;

  SparseBlock<T> block_;
  Contents contents_;
  std::vector<Plan> plans_;
  std::vector<Matrix<T>> copies_; // of B, one a width
};

extern template class DeviceSpmm<float>;
extern template class DeviceSpmm<double>;

} // namespace orthant::pmm::detail
