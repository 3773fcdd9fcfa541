#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The dense layers of a graph network (input projection, head, second layers of perceptrons), forward and backward:
//
//   C[r,c] := sum_k A[r,k] W[k,c] + 1 b[c]^T
//   db[c] := sum_r dC^T 1      dA[r,k] := sum_c dC[r,c] W[k,c]^T      dW[k,c] := sum_r A[r,k]^T dC[r,c]

#include "models/gnn/layers/network_layer.hpp"

namespace orthant::models {

/// Adds the buffers of a NetworkLinear to the workspaces of `scratch`.
void plan_linear_buffers(NetworkScratchPlan& scratch, pmm::StepPlan const& step, LinearPlan const& linear,
                         NumberFormats const& formats);
/// Lists the memory of a NetworkLinear. `label`: label of C.
void plan_linear_arrays(pmm::StepPlan& step, LinearPlan const& linear, char const* label,
                        NumberFormats const& formats);

/// T: element type of A. Result: element type of C; Sum for logits.
template<class T, class Result = T>
class NetworkLinear {
 public:
  using Sum = runtime::SumOf<T>;

  /// A layer on one graph or batch, in borrowed memory, which must outlive it. A new one is made for each batch. `output`: memory of C.
  /// `weight`: memory of a rounded W. Not collective.
  NetworkLinear(pmm::ProcessGrid const& grid, LinearPlan const& plan, NetworkLayerParameters<Sum> parameters,
                NetworkLayerOptions const& options, NetworkScratch<T> const& scratch,
                GrowingVector<Result>& output, GrowingVector<T>& weight);

  /// C := A W + b; without b if an activation adds it. `Features`: a DistMatrix, or a DistSparse, for which no gradient is computed.
  template<class Features>
  pmm::DistMatrix<Result> const& forward(runtime::DefaultExec const& exec, Features const& a);

  /// Computes dW and db from dC, except db if an activation has summed it. If needed, writes dA to `a_gradient`; otherwise
  /// `a_gradient` is not changed. The reduction of dA overlaps the computation of dW.
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
