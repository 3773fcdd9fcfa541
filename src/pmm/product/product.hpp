#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The primitive of the library: parallel matrix multiplication on three axes (Agarwal et al. 1995; Plexus, arXiv
// 2505.04083; AxoNN, arXiv 2502.08145), and its two adjoints:
//
//   form                        left      right     result    reduced over
//   product     C  = A B        A[r,k]    B[k,c]    C[r,c]    k
//   left_grad   dA = dC B^T     dC[r,c]   B[k,c]    dA[r,k]   c
//   right_grad  dB = A^T dC     A[r,k]    dC[r,c]   dB[k,c]   r
//
// A product reads two blocks, runs one local product (GEMM, or SpMM if A is sparse), and writes one block
// (block_collectives.hpp). Each matrix communicates only along its own third axis. A dense product may add to its
// result, and its matrices may hold 16-bit numbers (ProductOptions).

#include "pmm/gemm/local_gemm.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/block_collectives.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace orthant::pmm {

/// Description of a product without a grid or buffers. A Product is made from it, and plan_product() predicts its cost.
struct ProductPlan {
  std::string formula; // "H = A F"
  Form form{};
  Placement left, right, result; // in the order of the arguments of Product::run()
  ProductOptions options;
};

/// Adds one run to `step`: the reads, the local product, and the reduction of the result. `num_nonzeros` belongs to
/// this rank's block of a sparse left operand; empty if the left operand is dense. Throws Error if the placements do
/// not compose or the formats do not fit.
void plan_product(StepPlan& step, ProductPlan const& plan,
                  std::optional<std::int64_t> num_nonzeros = std::nullopt);

/// Reserves in `work` the same buffers that a Product reserves in its workspace.
void plan_buffers(WorkspacePlan& work, StepPlan const& step, ProductPlan const& plan);

/// One product, planned at set-up and run every step; a run allocates no array.
///
///   Product<float> forward(grid, Form::product, h.placement(), w.placement(), q.placement());
///   forward.run(exec, h, w, q);                                   // Q[c,a] := sum_b H[c,b] W[b,a]
///
/// Overlap: prefetch_right(exec, w) starts the gather of a weight early. Between start() and finish(), the
/// reduction of the result runs while other work is done.
///
/// Operand and Result are both float, both double, or a 16-bit number (runtime/numbers/formats.hpp) with itself or
/// with float. Products of 16-bit numbers are summed in fp32. A sparse left operand holds numbers of type Sum. The
/// error bound of local_gemm() holds with k the whole inner extent; a 16-bit result_wire adds its rounding error.
template<class Operand, class Result = Operand>
class Product {
 public:
  using Sum = runtime::SumOf<Result>;

  /// `left`, `right` and `result` are the placements of the arguments of run(). Throws Error, which prints them, if
  /// they do not compose, and if the formats in `options` differ from Operand and Result. `workspace` may be shared
  /// with operations that never overlap with this one; if it is null, the product makes its own. `grid` must outlive
  /// the product. Not collective.
  Product(ProcessGrid const& grid, Form form, Placement const& left, Placement const& right,
          Placement const& result, ProductOptions const& options = {},
          std::shared_ptr<Workspace<Sum>> workspace = nullptr);
  Product(ProcessGrid const& grid, ProductPlan const& plan,
          std::shared_ptr<Workspace<Sum>> workspace = nullptr)
      : Product(grid, plan.form, plan.left, plan.right, plan.result, plan.options, std::move(workspace)) {}

  /// result := the product, or result += the product (Update::add). Collective over the third axes of the three
  /// matrices: all ranks call their products in the same order. `result` must not alias an operand. Enqueues on exec;
  /// on the host the product is complete on return. A sparse left operand needs Update::assign, and Form::product or
  /// Form::right_grad; otherwise throws Error.
  template<class Left>
  void run(DefaultExec const& exec, Left const& left, DistMatrix<Operand> const& right,
           DistMatrix<Result> const& result) {
    compute(exec, left, right, result, Completion::now);
  }

  /// Starts reading the right operand ahead of run() or start(), which then does not read it again. The operand must not
  /// change in between. Collective over its third axis.
  void prefetch_right(DefaultExec const& exec, DistMatrix<Operand> const& right) {
    right_.start(exec, right);
  }
  /// Reads operands that were not prefetched, multiplies, and starts the reduction. `result` must stay valid and
  /// unused until finish(). Collective over the third axes of the three matrices.
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
