#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The dense products around the convolutions, input projection and head, forward and backward side by side:
//
//   C[r,c] := sum_k A[r,k] W[k,c] + 1 b[c]^T
//   db[c] := sum_r dC^T 1      dA[r,k] := sum_c dC[r,c] W[k,c]^T      dW[k,c] := sum_r A[r,k]^T dC[r,c]

#include "models/gnn/gcn_layer.hpp"

namespace orthant::models {

/// Adds to the workspaces of `scratch` what a GcnLinear needs.
void plan_linear_buffers(GcnScratchPlan& scratch, pmm::StepPlan const& step, LinearPlan const& linear);

template<class T>
class GcnLinear {
 public:
  /// On one graph or batch, in lent memory: made anew for each. `output` is C's own memory. Not collective.
  GcnLinear(pmm::ProcessGrid const& grid, LinearPlan const& plan, GcnLayerParameters<T> parameters,
            GcnLayerOptions const& options, GcnScratch<T> const& scratch, GrowingVector<T>& output);

  /// C := A W + b. `Features`: a DistMatrix, or a DistSparse, which has no gradient.
  template<class Features>
  pmm::DistMatrix<T> const& forward(runtime::DefaultExec const& exec, Features const& a);

  /// dW and db from dC; and dA, where it is needed, into `a_gradient`, which is otherwise left alone. dA is
  /// reduced while dW is computed.
  template<class Features>
  void backward(runtime::DefaultExec const& exec, Features const& a, pmm::DistMatrix<T> const& gradient,
                pmm::DistMatrix<T> const& a_gradient);

  [[nodiscard]] LinearPlan const& plan() const { return plan_; }
  [[nodiscard]] pmm::DistMatrix<T> const& output() const { return output_; }

 private:
  LinearPlan plan_;
  GcnLayerOptions options_;
  GcnLayerParameters<T> parameters_;
  pmm::DistMatrix<T> output_;
  std::shared_ptr<pmm::Workspace<T>> workspace_;
  pmm::Product<T> product_, input_back_, weight_back_;
};

extern template class GcnLinear<float>;
extern template class GcnLinear<double>;

} // namespace orthant::models
