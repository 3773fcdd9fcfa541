// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/gcn_layer.hpp"

#include "pmm/rows/bias.hpp"
#include "pmm/rows/column_sums.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

template<class T>
runtime::Vector<T> lent(pmm::ProcessGrid const& grid, pmm::Placement const& placement,
                        GrowingVector<T>& memory) {
  return memory.reserve(pmm::block_of(grid, placement).num_padded);
}

template<class T>
GrowingVector<T>& gradient_memory(GcnLayerPlan const& plan, GcnScratch<T>& scratch) {
  auto const is_local = plan.is_residual && plan.owners && !plan.owners->kept;
  return is_local ? scratch.residual_gradient : scratch.gradient;
}

} // namespace

void GcnScratchPlan::add(pmm::StepPlan const& step, GcnLayerPlan const& layer, bool needs_input_gradient,
                         NumberFormats const& formats) {
  auto const output = step.block(layer.output);
  gradient = std::max(gradient, output.num_padded);
  if (needs_input_gradient) gradient = std::max(gradient, step.block(layer.input).num_padded);
  middle = std::max(middle, step.block(layer.middle).num_padded);
  auto const products = products_of(layer, {});
  for (auto const& product : {products.transform, products.weight_back})
    plan_buffers(workspace, step, product);
  plan_aggregation_buffers(workspace, step, layer, formats);
  plan_buffers(overlapped, step, products.transform_back);
  pmm::reserve_column_sums(workspace, output.stored_rows.size(), output.columns.size());
}

void GcnScratchPlan::list(pmm::StepPlan& step) const {
  step.add_array("orthant::models::gradient", step.scalar_bytes(gradient));
  step.add_array("orthant::models::residual_gradient", step.scalar_bytes(residual_gradient));
  step.add_array("orthant::models::row_sums", step.scalar_bytes(row_sums));
  step.add_array("orthant::models::middle", step.scalar_bytes(middle));
  workspace.list(step);
  overlapped.list(step);
}

void plan_layer_arrays(pmm::StepPlan& step, GcnLayerPlan const& layer) {
  if (layer.aggregates_first) plan_matrix(step, layer.middle, "orthant::models::aggregated");
  plan_matrix(step, layer.output, "orthant::models::output");
}

template<class T>
GcnLayer<T>::GcnLayer(pmm::ProcessGrid const& grid, GcnLayerPlan const& p, Adjacency<T> adjacency,
                      GcnLayerParameters<T> parameters, GcnLayerOptions const& options,
                      GcnScratch<T>& scratch, GcnLayerMemory<T>& memory)
    : GcnLayer(grid, p, products_of(p, options.formats), std::move(adjacency), std::move(parameters), options,
               scratch, memory) {}

template<class T>
GcnLayer<T>::GcnLayer(pmm::ProcessGrid const& grid, GcnLayerPlan const& p, GcnLayerProducts const& products,
                      Adjacency<T> adjacency, GcnLayerParameters<T> parameters,
                      GcnLayerOptions const& options, GcnScratch<T>& scratch, GcnLayerMemory<T>& memory)
    : plan_(p),
      options_(options),
      parameters_(std::move(parameters)),
      workspace_(scratch.workspace),
      // H is kept for dW; U is no longer needed once Q is there.
      middle_(grid, p.middle, lent(grid, p.middle, p.aggregates_first ? memory.middle : scratch.middle)),
      middle_gradient_(grid, p.middle, lent(grid, p.middle, scratch.middle)),
      output_(grid, p.output, lent(grid, p.output, memory.output)),
      output_gradient_(grid, p.output, lent(grid, p.output, gradient_memory(p, scratch))),
      input_gradient_(
          options.needs_input_gradient
              ? pmm::DistMatrix<T>(grid, p.input, lent(grid, p.input, gradient_memory(p, scratch)))
              : pmm::DistMatrix<T>()),
      aggregation_(make_aggregation<T>(grid, p, options.formats, std::move(adjacency), scratch.workspace)),
      transform_(grid, products.transform, scratch.workspace),
      weight_back_(grid, products.weight_back, scratch.workspace),
      transform_back_(grid, products.transform_back, scratch.overlapped) {
  auto const& block = output_.block();
  pmm::reserve_column_sums(*workspace_, block.stored_rows.size(), block.columns.size());
}

template<class T>
template<class Features>
pmm::DistMatrix<T> const& GcnLayer<T>::forward(runtime::DefaultExec const& exec, Features const& features) {
  if (plan_.aggregates_first) {
    // H[c,b] := sum_a A^[c,a] F[a,b]
    if constexpr (std::is_same_v<Features, pmm::DistMatrix<T>>)
      aggregation_->forward(exec, features, middle_);
    return forward_from_middle(exec);
  }
  // U[a,c] := sum_b F[a,b] W[b,c];  Q[b,c] := sum_a A^[b,a] U[a,c]
  transform_.run(exec, features, parameters_.weight, middle_);
  aggregation_->forward(exec, middle_, output_);
  if (options_.has_bias && !options_.is_activated) pmm::add_bias(exec, output_, parameters_.bias);
  return output_;
}

template<class T>
pmm::DistMatrix<T> const& GcnLayer<T>::forward_from_middle(runtime::DefaultExec const& exec) {
  ORTHANT_REQUIRE(plan_.aggregates_first, "layer ", plan_.index, " keeps no aggregate");
  // Q[c,a] := sum_b H[c,b] W[b,a]
  transform_.run(exec, middle_, parameters_.weight, output_);
  if (options_.has_bias && !options_.is_activated) pmm::add_bias(exec, output_, parameters_.bias);
  return output_;
}

template<class T>
template<class Features>
pmm::DistMatrix<T> const& GcnLayer<T>::backward(runtime::DefaultExec const& exec, Features const& features) {
  if (options_.has_bias && !options_.is_activated)
    pmm::sum_columns(exec, output_gradient_, parameters_.bias_gradient, *workspace_);
  if (options_.has_bias) parameters_.reduce(exec, output_gradient_, parameters_.bias_gradient);
  if (plan_.aggregates_first) {
    // dH[c,b] := sum_a dQ[c,a] W[b,a]^T is reduced while dW[b,a] := sum_c H[c,b]^T dQ[c,a] is computed.
    if (options_.needs_input_gradient) {
      transform_back_.start(exec, output_gradient_, parameters_.weight, middle_gradient_);
      if (!options_.overlaps) transform_back_.finish();
    }
    auto const prefetches = plan_.owners && options_.needs_input_gradient && options_.overlaps;
    if (prefetches) {
      // dH is whole: its columns are sent while dW is computed.
      transform_back_.finish();
      aggregation_->prefetch_backward(exec, middle_gradient_);
    }
    weight_back_.run(exec, middle_, output_gradient_, parameters_.weight_gradient);
    if (!options_.needs_input_gradient) return input_gradient_;
    if (options_.overlaps && !prefetches) transform_back_.finish();
    // dF[a,b] := sum_c A^[c,a]^T dH[c,b]
    aggregation_->backward(exec, middle_gradient_, input_gradient_);
    return input_gradient_;
  }
  // dU[a,c] := sum_b A^[b,a]^T dQ[b,c]
  aggregation_->backward(exec, output_gradient_, middle_gradient_);
  // dF[a,b] := sum_c dU[a,c] W[b,c]^T is reduced while dW[b,c] := sum_a F[a,b]^T dU[a,c] is computed.
  if constexpr (std::is_same_v<Features, pmm::DistMatrix<T>>) {
    if (options_.needs_input_gradient) {
      transform_back_.start(exec, middle_gradient_, parameters_.weight, input_gradient_);
      if (!options_.overlaps) transform_back_.finish();
    }
  }
  weight_back_.run(exec, features, middle_gradient_, parameters_.weight_gradient);
  if (options_.needs_input_gradient && options_.overlaps) transform_back_.finish();
  return input_gradient_;
}

template class GcnLayer<float>;
template class GcnLayer<double>;
#define ORTHANT_INSTANTIATE(T, Features)                                                                     \
  template pmm::DistMatrix<T> const& GcnLayer<T>::forward(runtime::DefaultExec const&, Features const&);     \
  template pmm::DistMatrix<T> const& GcnLayer<T>::backward(runtime::DefaultExec const&, Features const&);
ORTHANT_INSTANTIATE(float, pmm::DistMatrix<float>)
ORTHANT_INSTANTIATE(float, pmm::DistSparse<float>)
ORTHANT_INSTANTIATE(double, pmm::DistMatrix<double>)
ORTHANT_INSTANTIATE(double, pmm::DistSparse<double>)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
