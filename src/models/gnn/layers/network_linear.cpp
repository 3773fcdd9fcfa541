// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/layers/network_linear.hpp"

#include "models/layers/propagation_terms.hpp"
#include "pmm/kernels/rounding.hpp"
#include "pmm/rows/bias.hpp"
#include "pmm/rows/column_sums.hpp"

#include <type_traits>
#include <utility>

namespace orthant::models {

template<class T>
OperandWeight<T>::OperandWeight(pmm::DistMatrix<Sum> weight, GrowingVector<T>& memory,
                                std::optional<double> map_share)
    : map_share_(map_share),
      parameter_(std::move(weight)) {
  if constexpr (std::is_same_v<T, Sum>)
    if (!map_share_) {
      matrix_ = parameter_;
      return;
    }
  matrix_ = {parameter_.grid(), parameter_.placement(), memory.reserve(parameter_.block().num_padded)};
}

template<class T>
void OperandWeight<T>::update(runtime::DefaultExec const& exec) const {
  if constexpr (!std::is_same_v<T, Sum>)
    pmm::round_numbers(exec, parameter_.storage(), matrix_.storage());
  else if (map_share_)
    map_identity(exec, parameter_, *map_share_, matrix_);
}

template<class T>
void OperandWeight<T>::finish_gradient(runtime::DefaultExec const& exec,
                                       pmm::DistMatrix<Sum> const& gradient) const {
  if (map_share_) map_identity_backward(exec, gradient, *map_share_);
}

void plan_operand_weight(pmm::StepPlan& step, pmm::Placement const& weight, NumberFormats const& formats,
                         bool is_mapped) {
  if (is_mapped || formats.operand != runtime::Wire::native)
    plan_matrix(step, weight, "orthant::models::operand_weight", pmm::Lifetime::training, formats.operand);
}

template class OperandWeight<float>;
template class OperandWeight<double>;
template class OperandWeight<runtime::Bf16Number>;
template class OperandWeight<runtime::Fp16Number>;

void plan_linear_buffers(NetworkScratchPlan& scratch, pmm::StepPlan const& step, LinearPlan const& linear,
                         NumberFormats const& formats) {
  auto const products = products_of(linear, formats);
  plan_buffers(scratch.workspace, step, products.product);
  plan_buffers(scratch.workspace, step, products.weight_back);
  plan_buffers(scratch.overlapped, step, products.input_back);
  auto const output = step.block(linear.output);
  pmm::reserve_column_sums(scratch.workspace, output.stored_rows.size(), output.columns.size());
}

void plan_linear_arrays(pmm::StepPlan& step, LinearPlan const& linear, char const* label,
                        NumberFormats const& formats) {
  plan_matrix(step, linear.output, label, pmm::Lifetime::training, formats.of_output(linear.makes_logits));
  plan_operand_weight(step, linear.weight, formats);
}

template<class T, class Result>
NetworkLinear<T, Result>::NetworkLinear(pmm::ProcessGrid const& grid, LinearPlan const& plan,
                                        NetworkLayerParameters<Sum> parameters,
                                        NetworkLayerOptions const& options, NetworkScratch<T> const& scratch,
                                        GrowingVector<Result>& output, GrowingVector<T>& weight)
    : plan_(plan),
      options_(options),
      parameters_(std::move(parameters)),
      weight_(parameters_.weight, weight),
      output_(grid, plan.output, output.reserve(pmm::block_of(grid, plan.output).num_padded)),
      workspace_(scratch.workspace),
      product_(grid, products_of(plan, options.formats).product, scratch.workspace),
      input_back_(grid, products_of(plan, options.formats).input_back, scratch.overlapped),
      weight_back_(grid, products_of(plan, options.formats).weight_back, scratch.workspace) {
  auto const& block = output_.block();
  pmm::reserve_column_sums(*workspace_, block.stored_rows.size(), block.columns.size());
}

template<class T, class Result>
template<class Features>
pmm::DistMatrix<Result> const& NetworkLinear<T, Result>::forward(runtime::DefaultExec const& exec,
                                                                 Features const& a) {
  // C[r,c] := sum_k A[r,k] W[k,c]
  weight_.update(exec);
  product_.run(exec, a, weight_.matrix(), output_);
  if (options_.has_bias && !options_.is_activated) pmm::add_bias(exec, output_, parameters_.bias);
  return output_;
}

template<class T, class Result>
template<class Features>
void NetworkLinear<T, Result>::backward(runtime::DefaultExec const& exec, Features const& a,
                                        pmm::DistMatrix<T> const& gradient,
                                        pmm::DistMatrix<T> const& a_gradient) {
  if (options_.has_bias && !options_.is_activated)
    pmm::sum_columns(exec, gradient, parameters_.bias_gradient, *workspace_);
  if (options_.has_bias) parameters_.reduce(exec, gradient, parameters_.bias_gradient);
  // dA[r,k] := sum_c dC[r,c] W[k,c]^T. Its reduction overlaps dW[k,c] := sum_r A[r,k]^T dC[r,c].
  if (options_.needs_input_gradient) {
    input_back_.start(exec, gradient, weight_.matrix(), a_gradient);
    if (!options_.overlaps) input_back_.finish();
  }
  weight_back_.run(exec, a, gradient, parameters_.weight_gradient);
  if (options_.needs_input_gradient && options_.overlaps) input_back_.finish();
}

#define ORTHANT_INSTANTIATE(T, Result)                                                                       \
  template class NetworkLinear<T, Result>;                                                                   \
  ORTHANT_INSTANTIATE_FOR(T, Result, pmm::DistMatrix<T>)                                                     \
  ORTHANT_INSTANTIATE_FOR(T, Result, pmm::DistSparse<runtime::SumOf<T>>)
#define ORTHANT_INSTANTIATE_FOR(T, Result, Features)                                                         \
  template pmm::DistMatrix<Result> const& NetworkLinear<T, Result>::forward(runtime::DefaultExec const&,     \
                                                                            Features const&);                \
  template void NetworkLinear<T, Result>::backward(runtime::DefaultExec const&, Features const&,             \
                                                   pmm::DistMatrix<T> const&, pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float, float)
ORTHANT_INSTANTIATE(double, double)
ORTHANT_INSTANTIATE(runtime::Bf16Number, runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number, runtime::Fp16Number)
ORTHANT_INSTANTIATE(runtime::Bf16Number, float)
ORTHANT_INSTANTIATE(runtime::Fp16Number, float)
#undef ORTHANT_INSTANTIATE_FOR
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
