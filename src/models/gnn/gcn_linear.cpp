// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/gcn_linear.hpp"

#include "pmm/rows/bias.hpp"
#include "pmm/rows/column_sums.hpp"

namespace orthant::models {

void plan_linear_buffers(GcnScratchPlan& scratch, pmm::StepPlan const& step, LinearPlan const& linear) {
  auto const products = products_of(linear, runtime::Wire::native);
  plan_buffers(scratch.workspace, step, products.product);
  plan_buffers(scratch.workspace, step, products.weight_back);
  plan_buffers(scratch.overlapped, step, products.input_back);
  auto const output = step.block(linear.output);
  pmm::reserve_column_sums(scratch.workspace, output.stored_rows.size(), output.columns.size());
}

template<class T>
GcnLinear<T>::GcnLinear(pmm::ProcessGrid const& grid, LinearPlan const& plan,
                        GcnLayerParameters<T> parameters, GcnLayerOptions const& options,
                        GcnScratch<T> const& scratch, GrowingVector<T>& output)
    : plan_(plan),
      options_(options),
      parameters_(std::move(parameters)),
      output_(grid, plan.output, output.reserve(pmm::block_of(grid, plan.output).num_padded)),
      workspace_(scratch.workspace),
      product_(grid, products_of(plan, options.formats.wire).product, scratch.workspace),
      input_back_(grid, products_of(plan, options.formats.wire).input_back, scratch.overlapped),
      weight_back_(grid, products_of(plan, options.formats.wire).weight_back, scratch.workspace) {
  auto const& block = output_.block();
  pmm::reserve_column_sums(*workspace_, block.stored_rows.size(), block.columns.size());
}

template<class T>
template<class Features>
pmm::DistMatrix<T> const& GcnLinear<T>::forward(runtime::DefaultExec const& exec, Features const& a) {
  // C[r,c] := sum_k A[r,k] W[k,c]
  product_.run(exec, a, parameters_.weight, output_);
  if (options_.has_bias) pmm::add_bias(exec, output_, parameters_.bias);
  return output_;
}

template<class T>
template<class Features>
void GcnLinear<T>::backward(runtime::DefaultExec const& exec, Features const& a,
                            pmm::DistMatrix<T> const& gradient, pmm::DistMatrix<T> const& a_gradient) {
  if (options_.has_bias) {
    pmm::sum_columns(exec, gradient, parameters_.bias_gradient, *workspace_);
    parameters_.reduce(exec, gradient, parameters_.bias_gradient);
  }
  // dA[r,k] := sum_c dC[r,c] W[k,c]^T is reduced while dW[k,c] := sum_r A[r,k]^T dC[r,c] is computed.
  if (options_.needs_input_gradient) {
    input_back_.start(exec, gradient, parameters_.weight, a_gradient);
    if (!options_.overlaps) input_back_.finish();
  }
  weight_back_.run(exec, a, gradient, parameters_.weight_gradient);
  if (options_.needs_input_gradient && options_.overlaps) input_back_.finish();
}

template class GcnLinear<float>;
template class GcnLinear<double>;
#define ORTHANT_INSTANTIATE(T, Features)                                                                     \
  template pmm::DistMatrix<T> const& GcnLinear<T>::forward(runtime::DefaultExec const&, Features const&);    \
  template void GcnLinear<T>::backward(runtime::DefaultExec const&, Features const&,                         \
                                       pmm::DistMatrix<T> const&, pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float, pmm::DistMatrix<float>)
ORTHANT_INSTANTIATE(float, pmm::DistSparse<float>)
ORTHANT_INSTANTIATE(double, pmm::DistMatrix<double>)
ORTHANT_INSTANTIATE(double, pmm::DistSparse<double>)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
