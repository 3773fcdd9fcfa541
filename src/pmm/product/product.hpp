#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The primitive: parallel matrix multiplication on three axes (Agarwal et al. 1995; Plexus, arXiv
// 2505.04083; AxoNN, arXiv 2502.08145). C[r,c] := sum_k A[r,k] B[k,c], and its two adjoints:
//
//   form                        left      right     result    reduced over
//   product     C  = A B        A[r,k]    B[k,c]    C[r,c]    k
//   left_grad   dA = dC B^T     dC[r,c]   B[k,c]    dA[r,k]   c
//   right_grad  dB = A^T dC     A[r,k]    dC[r,c]   dB[k,c]   r
//
// One local product (GEMM, or SpMM if A is sparse) runs between reading two blocks and writing one (block_collectives.hpp):
// each matrix communicates only along its own third axis. A dense product may add to its result, and its matrices
// may hold 16-bit numbers (product_options.hpp).

#include "pmm/gemm/local_gemm.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/block_collectives.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace orthant::pmm {

/// A product by name, without a grid: what a runner makes a Product of, and what a list of a step holds.
struct ProductPlan {
  std::string formula; // "H = A F"
  Form form{};
  Placement left, right, result; // as they are passed
  ProductOptions options;
};

/// Lists one run: its reads, the local product, and the reduction of its result. `num_nonzeros`: of this
/// rank's block of a sparse left operand. Throws Error if the placements do not compose, or the formats do not fit.
void plan_product(StepPlan& step, ProductPlan const& plan,
                  std::optional<std::int64_t> num_nonzeros = std::nullopt);

/// Reserves in `work` what a Product reserves in its workspace.
void plan_buffers(WorkspacePlan& work, StepPlan const& step, ProductPlan const& plan);

/// One product, planned at set-up and run every step; a run allocates no array.
///
///   Product<float> forward(grid, Form::product, h.placement(), w.placement(), q.placement());
///   forward.run(exec, h, w, q);                                   // Q[c,a] := sum_b H[c,b] W[b,a]
///
/// Overlap: prefetch_right(exec, w) starts the gather of a weight ahead; start() .. finish() leaves the
/// reduction of the result under way while other work is done.
///
/// Operand and Result: float and float, double and double, or a 16-bit number (runtime/numbers/formats.hpp) with
/// itself or with float. Sums of 16-bit products are in fp32. A sparse left operand holds numbers of the sum's type. The
/// bound of the error is that of local_gemm(), with k the whole inner extent; a result_wire of 16 bits adds its own.
template<class Operand, class Result = Operand>
class Product {
 public:
  using Sum = runtime::SumOf<Result>;

  /// Placements of the three matrices as they are passed; throws Error, printing them, if they do not compose, and
  /// if the formats of `options` are not those of Operand and Result. `workspace`: shared with operations that
  /// never overlap with this one; null: its own. `grid` must outlive the product. Not collective.
  Product(ProcessGrid const& grid, Form form, Placement const& left, Placement const& right,
          Placement const& result, ProductOptions const& options = {},
          std::shared_ptr<Workspace<Sum>> workspace = nullptr);
  Product(ProcessGrid const& grid, ProductPlan const& plan,
          std::shared_ptr<Workspace<Sum>> workspace = nullptr)
      : Product(grid, plan.form, plan.left, plan.right, plan.result, plan.options, std::move(workspace)) {}

  /// result := the product, or result += the product (Update::add). Collective over the three third axes: every
  /// rank calls with the same placements, products in the same order. Result aliases no operand. Enqueues on exec;
  /// on the host it is complete on return. Sparse left operands: Form::product and Form::right_grad, and
  /// Update::assign (Error).
  template<class Left>
  void run(DefaultExec const& exec, Left const& left, DistMatrix<Operand> const& right,
           DistMatrix<Result> const& result) {
    compute(exec, left, right, result, Completion::now);
  }

  /// Starts reading an operand ahead of start(), which then does not read it again; it must not change in
  /// between. Collective over its third axis.
  void prefetch_left(DefaultExec const& exec, DistMatrix<Operand> const& left) { left_.start(exec, left); }
  void prefetch_right(DefaultExec const& exec, DistMatrix<Operand> const& right) {
    right_.start(exec, right);
  }
  /// Reads what was not prefetched, multiplies, and starts the reduction; `result` is lent until finish().
  template<class Left>
  void start(DefaultExec const& exec, Left const& left, DistMatrix<Operand> const& right,
             DistMatrix<Result> const& result) {
    compute(exec, left, right, result, Completion::at_finish);
  }
  void finish() { result_.finish(); }

 private:
  enum class Completion : std::uint8_t { now, at_finish };
  void compute(DefaultExec const& exec, DistMatrix<Operand> const& left, DistMatrix<Operand> const& right,
               DistMatrix<Result> const& result, Completion completion);
  void compute(DefaultExec const& exec, DistSparse<Sum> const& left, DistMatrix<Operand> const& right,
               DistMatrix<Result> const& result, Completion completion);
  template<class Multiply>
  void multiply(DefaultExec const& exec, DistMatrix<Result> const& result, Completion completion,
                Multiply const& local_product);

  ProcessGrid const* grid_;
  Form form_;
  Placement left_placement_;
  Update update_;
  std::shared_ptr<Workspace<Sum>> workspace_;
  BlockReader<Operand> left_;
  BlockReader<Operand> right_;
  BlockWriter<Result> result_;
};

extern template class Product<float>;
extern template class Product<double>;
extern template class Product<runtime::Bf16Number>;
extern template class Product<runtime::Fp16Number>;
extern template class Product<runtime::Bf16Number, float>;
extern template class Product<runtime::Fp16Number, float>;

} // namespace orthant::pmm
