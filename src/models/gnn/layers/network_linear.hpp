#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The dense products around the convolutions, input projection and head, forward and backward side by side:
//
//   C[r,c] := sum_k A[r,k] W[k,c] + 1 b[c]^T
//   db[c] := sum_r dC^T 1      dA[r,k] := sum_c dC[r,c] W[k,c]^T      dW[k,c] := sum_r A[r,k]^T dC[r,c]

#include "models/gnn/layers/network_layer.hpp"

namespace orthant::models {

/// Adds to the workspaces of `scratch` what a NetworkLinear needs.
void plan_linear_buffers(NetworkScratchPlan& scratch, pmm::StepPlan const& step, LinearPlan const& linear,
                         NumberFormats const& formats);
/// Lists the memory that a NetworkLinear has to itself; `label`: of C.
void plan_linear_arrays(pmm::StepPlan& step, LinearPlan const& linear, char const* label,
                        NumberFormats const& formats);

/// T: of the numbers of A, and Result: of C, which for logits is Sum.
template<class T, class Result = T>
class NetworkLinear {
 public:
  using Sum = runtime::SumOf<T>;

  /// On one graph or batch, in lent memory: made anew for each. `output` is C's own memory, `weight` that of a rounded
  /// W. Not collective.
  NetworkLinear(pmm::ProcessGrid const& grid, LinearPlan const& plan, NetworkLayerParameters<Sum> parameters,
                NetworkLayerOptions const& options, NetworkScratch<T> const& scratch,
                GrowingVector<Result>& output, GrowingVector<T>& weight);

  /// C := A W + b; without b if an activation adds it. `Features`: a DistMatrix, or a DistSparse, which has no gradient.
  template<class Features>
  pmm::DistMatrix<Result> const& forward(runtime::DefaultExec const& exec, Features const& a);

  /// dW and db from dC (db not if an activation has summed it up already); and dA, where it is needed, into `a_gradient`,
  /// which is otherwise left alone. dA is reduced while dW is computed.
  template<class Features>
  void backward(runtime::DefaultExec const& exec, Features const& a, pmm::DistMatrix<T> const& gradient,
                pmm::DistMatrix<T> const& a_gradient);

  [[nodiscard]] LinearPlan const& plan() const { return plan_; }
  [[nodiscard]] pmm::DistMatrix<Result> const& output() const { return output_; }

 private:
  LinearPlan plan_;
  NetworkLayerOptions options_;
  NetworkLayerParameters<Sum> parameters_;
  OperandWeight<T> weight_;
  pmm::DistMatrix<Result> output_;
  std::shared_ptr<pmm::Workspace<Sum>> workspace_;
  pmm::Product<T, Result> product_;
  pmm::Product<T> input_back_;
  pmm::Product<T, Sum> weight_back_;
};

extern template class NetworkLinear<float>;
extern template class NetworkLinear<double>;
extern template class NetworkLinear<runtime::Bf16Number>;
extern template class NetworkLinear<runtime::Fp16Number>;
extern template class NetworkLinear<runtime::Bf16Number, float>;
extern template class NetworkLinear<runtime::Fp16Number, float>;

} // namespace orthant::models
