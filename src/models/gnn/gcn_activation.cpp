// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/gcn_activation.hpp"

#include <algorithm>

namespace orthant::models {

using runtime::DefaultExec;

void GcnActivationScratchPlan::add(pmm::StepPlan const& step, GcnLayerPlan const& layer, bool has_norm) {
  if (layer.is_residual) residual_gradient = std::max(residual_gradient, step.block(layer.input).num_padded);
  if (has_norm) row_sums = std::max(row_sums, step.block(layer.output).rows.size());
}

void GcnActivationScratchPlan::list(pmm::StepPlan& step) const {
  step.add_array("orthant::models::residual_gradient", step.scalar_bytes(residual_gradient));
  step.add_array("orthant::models::row_sums", step.scalar_bytes(row_sums));
}

void plan_activation_arrays(pmm::StepPlan& step, GcnLayerPlan const& layer, bool has_norm) {
  if (has_norm || layer.is_residual) plan_matrix(step, layer.output, "orthant::models::activated");
  if (!has_norm) return;
  auto const block = step.block(layer.output);
  auto const num_words = block.rows.size() * RmsNormState<float>::words_of(block.columns.size());
  step.add_array("orthant::models::inverse_rms", step.scalar_bytes(block.rows.size()));
  step.add_array("orthant::models::passed", num_words * std::int64_t{sizeof(std::uint32_t)});
}

template<class T>
GcnActivation<T>::GcnActivation(GcnLayer<T> const& layer, GcnLayerParameters<T> parameters, BlockKeys keys,
                                ResidualPath<T> residual, GcnActivationScratch<T>& scratch,
                                GcnActivationMemory<T>& memory)
    : parameters_(std::move(parameters)),
      keys_(std::move(keys)),
      residual_(std::move(residual)),
      z_(layer.output()),
      gradient_(layer.output_gradient()),
      output_(z_),
      workspace_(layer.workspace()) {
  auto const& grid = z_.grid();
  if (has_norm() || residual_.exists())
    output_ = pmm::DistMatrix<T>(grid, z_.placement(), memory.output.reserve(z_.block().num_padded));
  if (has_norm()) {
    auto const num_rows = z_.block().rows.size();
    auto const num_words = num_rows * RmsNormState<T>::words_of(z_.block().columns.size());
    norm_state_ = {memory.inverse_rms.reserve(num_rows), memory.passed.reserve(num_words)};
    row_sums_ = scratch.row_sums.reserve(num_rows);
  }
  if (residual_.exists()) {
    auto const& input = layer.plan().input;
    residual_gradient_ = pmm::DistMatrix<T>(
        grid, input, scratch.residual_gradient.reserve(pmm::block_of(grid, input).num_padded));
  }
}

template<class T>
void GcnActivation<T>::start(DefaultExec const& exec, pmm::DistMatrix<T> const& layer_input) {
  // F' := F
  if (residual_.exists()) residual_.bring(exec, layer_input, output_);
}

template<class T>
void GcnActivation<T>::forward(DefaultExec const& exec, Dropout const& dropout) {
  if (has_norm())
    return rms_norm_relu_dropout(exec, z_, parameters_.norm_scale, dropout, keys_, norm_state_, output_,
                                 residual_.exists() ? Write::add : Write::replace);
  bias_relu_dropout(exec, z_.local(), parameters_.bias.local(), dropout, keys_);
  if (residual_.exists()) add(exec, z_, output_);
}

template<class T>
void GcnActivation<T>::backward(DefaultExec const& exec, double probability) {
  if (residual_.exists()) residual_.bring_back(exec, gradient_, residual_gradient_);
  if (has_norm()) {
    rms_norm_relu_dropout_backward(exec, z_, parameters_.norm_scale, probability, norm_state_, row_sums_,
                                   gradient_, parameters_.norm_scale_gradient, *workspace_);
    return parameters_.reduce(exec, gradient_, parameters_.norm_scale_gradient);
  }
  if (parameters_.bias.length() > 0)
    relu_dropout_backward_sum(exec, z_.local(), probability, gradient_.local(),
                              parameters_.bias_gradient.local(), *workspace_);
  else
    relu_dropout_backward(exec, z_.local(), probability, gradient_.local());
}

template<class T>
void GcnActivation<T>::finish_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& input_gradient) {
  if (residual_.exists()) add(exec, residual_gradient_, input_gradient);
}

template class GcnActivation<float>;
template class GcnActivation<double>;

} // namespace orthant::models
