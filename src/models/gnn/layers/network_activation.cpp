// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/layers/network_activation.hpp"

#include "models/layers/activation_step.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"

#include <algorithm>
#include <type_traits>

namespace orthant::models {

using runtime::DefaultExec;

void plan_activation_scratch(NetworkScratchPlan& scratch, pmm::StepPlan const& step,
                             NetworkLayerPlan const& layer, ActivationParts const& parts) {
  if (layer.is_residual)
    scratch.residual_gradient = std::max(scratch.residual_gradient, step.block(layer.input).num_padded);
  if (parts.norm == Norm::none) return;
  auto const block = step.block(layer.output);
  auto const is_rms = parts.norm == Norm::rms;
  scratch.row_sums =
      std::max(scratch.row_sums, is_rms ? block.rows.size() : num_centered_sums(parts.norm, block));
  if (!is_rms) reserve_centered_norm(scratch.workspace, parts.norm, block);
}

void plan_activation_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer, ActivationParts const& parts,
                            runtime::Wire format) {
  if (parts.keeps_mask) return plan_relu_mask(step, layer.output);
  if (!parts.is_fused() || layer.is_residual)
    plan_matrix(step, layer.output, "orthant::models::activated", pmm::Lifetime::training, format);
  if (is_centered(parts.norm)) return plan_centered_norm_arrays(step, parts.norm, layer.output);
  if (parts.norm == Norm::none) return;
  auto const block = step.block(layer.output);
  auto const num_words = block.rows.size() * RmsNormState<float>::words_of(block.columns.size());
  step.add_array("orthant::models::inverse_rms", step.scalar_bytes(block.rows.size()));
  step.add_array("orthant::models::passed", num_words * std::int64_t{sizeof(std::uint32_t)});
}

template<class T>
NetworkActivation<T>::NetworkActivation(NetworkLayer<T> const& layer, ActivationParts const& parts,
                                        NetworkLayerParameters<Sum> const& parameters, BlockKeys keys,
                                        ResidualPath<Sum> residual, NetworkScratch<T>& scratch,
                                        NetworkActivationMemory<T>& memory)
    : activation_(parts.activation),
      parameters_(parameters),
      keys_(std::move(keys)),
      residual_(std::move(residual)),
      z_(layer.output()),
      z_gradient_(layer.output_gradient()),
      output_(z_),
      gradient_(z_gradient_),
      keeps_mask_(parts.keeps_mask),
      workspace_(layer.workspace()) {
  auto const& grid = z_.grid();
  if (keeps_mask_) {
    auto const num_words = num_mask_words(z_.block().stored_rows.size(), z_.block().columns.size());
    passed_ = runtime::part_of(memory.passed.reserve(num_words), {0, num_words});
  }
  if (has_norm() || is_smooth() || residual_.exists())
    output_ = pmm::DistMatrix<T>(grid, z_.placement(), memory.output.reserve(z_.block().num_padded));
  if (is_centered(parts.norm)) {
    make_centered(layer, parts.norm, scratch, memory);
  } else if (has_norm()) {
    auto const num_rows = z_.block().rows.size();
    auto const num_words = num_rows * RmsNormState<Sum>::words_of(z_.block().columns.size());
    norm_state_ = {memory.inverse_rms.reserve(num_rows), memory.passed.reserve(num_words)};
    row_sums_ = scratch.row_sums.reserve(num_rows);
  }
  if (!residual_.exists()) return;
  auto const& input = layer.plan().input;
  auto const length = pmm::block_of(grid, input).num_padded;
  if (residual_.is_local)
    gradient_ = pmm::DistMatrix<T>(grid, input, scratch.gradient.reserve(length));
  else
    residual_gradient_ = pmm::DistMatrix<T>(grid, input, scratch.residual_gradient.reserve(length));
}

template<class T>
void NetworkActivation<T>::make_centered(NetworkLayer<T> const& layer, Norm kind, NetworkScratch<T>& scratch,
                                         NetworkActivationMemory<T>& memory) {
  if constexpr (std::is_same_v<T, Sum>) {
    if (!memory.centered) memory.centered = std::make_unique<CenteredNormMemory<T>>();
    centered_ = CenteredNorm<T>(
        z_,
        {kind, parameters_.norm_scale, parameters_.norm_scale_gradient, *parameters_.centered,
         parameters_.has_partial_gradients()},
        layer.workspace(), scratch.row_sums.reserve(num_centered_sums(kind, z_.block())), *memory.centered);
  }
}

template<class T>
void NetworkActivation<T>::start(DefaultExec const& exec, pmm::DistMatrix<T> const& layer_input) {
  if (!residual_.exists()) return;
  addend_ = residual_.is_local ? layer_input : output_;
  if (!residual_.is_local) residual_.bring(exec, layer_input, output_);
}

template<class T>
void NetworkActivation<T>::forward(DefaultExec const& exec, Pass pass, Dropout const& dropout) {
  if (centered_) return forward_centered(exec, pass, dropout);
  if (has_norm())
    return rms_norm_relu_dropout(exec, z_, parameters_.norm_scale, dropout, keys_, norm_state_,
                                 residual_.exists() ? &addend_ : nullptr, output_);
  if (is_smooth()) return forward_smooth(exec, dropout);
  if (keeps_mask_)
    return relu_with_mask(exec, passes(), z_.local(), parameters_.bias.local(), dropout, keys_, passed_);
  bias_relu_dropout(exec, passes(), z_.local(), parameters_.bias.local(), dropout, keys_);
  if (residual_.exists()) add(exec, addend_, z_, output_);
}

template<class T>
void NetworkActivation<T>::forward_smooth(DefaultExec const& exec, Dropout const& dropout) {
  if constexpr (std::is_same_v<T, Sum>) {
    // D := dropout(f(Z)), in the memory of gradients if F is added later
    auto const& d = residual_.exists() ? z_gradient_ : output_;
    activate(exec, passes(), activation_, z_.local(), d.local());
    if (dropout.probability > 0) apply_dropout(exec, passes(), d.local(), dropout, keys_, d.local());
    if (residual_.exists()) add(exec, addend_, d, output_);
  }
}

template<class T>
void NetworkActivation<T>::backward_smooth(DefaultExec const& exec, Dropout const& dropout) {
  if constexpr (std::is_same_v<T, Sum>) {
    // dZ := M dF' f'(Z) / (1 - p)
    auto const& gradient = z_gradient_.local();
    if (dropout.probability > 0) apply_dropout(exec, passes(), gradient, dropout, keys_, gradient);
    activate_backward(exec, passes(), activation_, z_.local(), gradient);
  }
}

template<class T>
void NetworkActivation<T>::forward_centered(DefaultExec const& exec, Pass pass, Dropout const& dropout) {
  if constexpr (std::is_same_v<T, Sum>) {
    // D, in the memory of gradients if F is added later
    auto const& d = residual_.exists() ? z_gradient_ : output_;
    centered_->forward(exec, pass, d);
    if (is_smooth()) {
      activate(exec, passes(), activation_, d.local(), d.local());
      if (dropout.probability > 0) apply_dropout(exec, passes(), d.local(), dropout, keys_, d.local());
    } else {
      bias_relu_dropout(exec, passes(), d.local(), runtime::Vector<T>(), dropout, keys_);
    }
    if (residual_.exists()) add(exec, addend_, d, output_);
  }
}

template<class T>
void NetworkActivation<T>::backward_centered(DefaultExec const& exec, Dropout const& dropout) {
  if constexpr (std::is_same_v<T, Sum>) {
    auto const& gradient = z_gradient_.local();
    auto const draws_again = dropout.probability > 0 && (is_smooth() || residual_.exists());
    if (draws_again) apply_dropout(exec, passes(), gradient, dropout, keys_, gradient);
    // F' = D shows which elements passed; if it does not, N is recomputed.
    if (is_smooth() || residual_.exists()) centered_->restore(exec, output_);
    if (is_smooth())
      activate_backward(exec, passes(), activation_, output_.local(), gradient);
    else
      relu_dropout_backward(exec, passes(), output_.local(), draws_again ? 0 : dropout.probability, gradient);
    centered_->backward(exec, z_gradient_);
  }
}

template<class T>
void NetworkActivation<T>::backward(DefaultExec const& exec, Dropout const& dropout) {
  auto const probability = dropout.probability;
  if (residual_.exists() && !residual_.is_local) residual_.bring_back(exec, gradient_, residual_gradient_);
  if (centered_) {
    if (residual_.is_local) copy_numbers(exec, gradient_, z_gradient_);
    return backward_centered(exec, dropout);
  }
  if (has_norm()) {
    rms_norm_relu_dropout_backward(exec, z_, parameters_.norm_scale, probability, norm_state_, row_sums_,
                                   gradient_, z_gradient_, parameters_.norm_scale_gradient, *workspace_);
    return parameters_.reduce(exec, z_gradient_, parameters_.norm_scale_gradient);
  }
  if (keeps_mask_)
    return relu_backward_by_mask(exec, passes(), passed_, probability, z_gradient_.local(),
                                 parameters_.bias_gradient.local());
  // The kernels below work in place.
  if (residual_.is_local) copy_numbers(exec, gradient_, z_gradient_);
  if (is_smooth()) return backward_smooth(exec, dropout);
  if (parameters_.bias.length() > 0)
    relu_dropout_backward_sum(exec, passes(), z_.local(), probability, z_gradient_.local(),
                              parameters_.bias_gradient.local(), *workspace_);
  else
    relu_dropout_backward(exec, passes(), z_.local(), probability, z_gradient_.local());
}

template<class T>
std::int64_t NetworkActivation<T>::num_positive(DefaultExec const& exec) const {
  return keeps_mask_ ? count_passed(exec, passed_) : count_positive(exec, z_);
}

template<class T>
pmm::DistMatrix<T> const& NetworkActivation<T>::finish_backward(DefaultExec const& exec,
                                                                pmm::DistMatrix<T> const& input_gradient) {
  if (!residual_.exists()) return input_gradient;
  auto const& sum = residual_.is_local ? gradient_ : input_gradient;
  add(exec, input_gradient, residual_.is_local ? gradient_ : residual_gradient_, sum);
  return sum;
}

template class NetworkActivation<float>;
template class NetworkActivation<double>;
template class NetworkActivation<runtime::Bf16Number>;
template class NetworkActivation<runtime::Fp16Number>;

template<class T>
bool is_finite(DefaultExec const& exec, pmm::DistMatrix<T> const& matrix) {
  auto const data = matrix.storage();
  auto num_bad = std::int64_t{0};
  Kokkos::parallel_reduce(
      "orthant::models::is_finite",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, matrix.block().num_stored),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t & bad) {
        runtime::SumOf<T> const number = data(static_cast<std::size_t>(i));
        auto const difference = number - number;
        bad += difference == 0 ? 0 : 1; // inf - inf and NaN - NaN are NaN
      },
      num_bad);
  return num_bad == 0;
}

template<class T>
std::int64_t count_positive(DefaultExec const& exec, pmm::DistMatrix<T> const& matrix) {
  auto const data = matrix.storage();
  std::int64_t count = 0;
  Kokkos::parallel_reduce(
      "orthant::models::count_positive",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, matrix.block().num_stored),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t & sum) {
        runtime::SumOf<T> const number = data(static_cast<std::size_t>(i));
        sum += number > 0 ? 1 : 0;
      },
      count);
  return count;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template bool is_finite(DefaultExec const&, pmm::DistMatrix<T> const&);                                    \
  template std::int64_t count_positive(DefaultExec const&, pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
