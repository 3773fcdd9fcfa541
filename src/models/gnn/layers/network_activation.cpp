// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/layers/network_activation.hpp"

#include "models/layers/activation_step.hpp"
#include "pmm/rows/activations.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"

#include <algorithm>
#include <utility>

namespace orthant::models {

using runtime::DefaultExec;

void plan_activation_scratch(NetworkScratchPlan& scratch, pmm::StepPlan const& step,
                             NetworkLayerPlan const& layer, ActivationParts const& parts) {
  if (parts.norm == Norm::none) return;
  auto const block = step.block(layer.output);
  scratch.row_sums =
      std::max(scratch.row_sums, parts.fuses_norm() ? block.rows.size() : num_norm_sums(parts.norm, block));
  if (parts.has_own_norm()) reserve_norm(scratch.workspace, parts.norm, block);
}

void plan_activation_arrays(pmm::StepPlan& step, pmm::Placement const& z, bool adds_residual,
                            ActivationParts const& parts, runtime::Wire format) {
  if (parts.keeps_mask) return plan_relu_mask(step, z);
  if (!parts.is_fused() && !adds_residual)
    plan_matrix(step, z, "orthant::models::activated", pmm::Lifetime::training, format);
  if (parts.has_own_norm()) return plan_norm_arrays(step, parts.norm, z);
  if (!parts.fuses_norm()) return;
  auto const block = step.block(z);
  auto const num_words = block.rows.size() * RmsNormState<float>::words_of(block.columns.size());
  step.add_array("orthant::models::inverse_rms", step.scalar_bytes(block.rows.size()));
  step.add_array("orthant::models::passed", num_words * std::int64_t{sizeof(std::uint32_t)});
}

template<class T>
NetworkActivation<T>::NetworkActivation(ActivationSite<T> site, ActivationParts const& parts,
                                        NetworkLayerParameters<Sum> const& parameters, BlockKeys keys,
                                        Residual<T> const* residual, NetworkScratch<T>& scratch,
                                        NetworkActivationMemory<T>& memory)
    : parts_(parts),
      parameters_(parameters),
      keys_(std::move(keys)),
      residual_(residual),
      z_(std::move(site.z)),
      z_gradient_(std::move(site.z_gradient)),
      output_(z_),
      gradient_(z_gradient_),
      workspace_(std::move(site.workspace)) {
  auto const& grid = z_.grid();
  if (parts.keeps_mask) {
    auto const num_words = num_mask_words(z_.block().stored_rows.size(), z_.block().columns.size());
    passed_ = runtime::part_of(memory.passed.reserve(num_words), {0, num_words});
  }
  if (residual_ != nullptr)
    output_ = residual_->output();
  else if (!parts.is_fused())
    output_ = pmm::DistMatrix<T>(grid, z_.placement(), memory.output.reserve(z_.block().num_padded));
  make_norm(scratch, memory);
  if (copies_gradient()) gradient_ = residual_->gradient();
}

template<class T>
void NetworkActivation<T>::make_norm(NetworkScratch<T>& scratch, NetworkActivationMemory<T>& memory) {
  auto const& block = z_.block();
  if (parts_.fuses_norm()) {
    auto const num_rows = block.rows.size();
    auto const num_words = num_rows * RmsNormState<Sum>::words_of(block.columns.size());
    norm_state_ = {memory.inverse_rms.reserve(num_rows), memory.passed.reserve(num_words)};
    row_sums_ = scratch.row_sums.reserve(num_rows);
  }
  if (!parts_.has_own_norm()) return;
  if (!memory.own_norm) memory.own_norm = std::make_unique<HiddenNormMemory<Sum>>();
  auto const& centered = parameters_.centered;
  own_norm_ = HiddenNorm<T>(
      z_,
      {parts_.norm, parameters_.norm_scale, parameters_.norm_scale_gradient,
       centered ? *centered : CenteredNormParameters<Sum>(), parameters_.has_partial_gradients()},
      workspace_, scratch.row_sums.reserve(num_norm_sums(parts_.norm, block)), *memory.own_norm);
}

template<class T>
void NetworkActivation<T>::forward(DefaultExec const& exec, Pass pass, Dropout const& dropout) {
  if (parts_.fuses_norm())
    return rms_norm_relu_dropout(exec, z_, parameters_.norm_scale, dropout, keys_, norm_state_,
                                 residual_ != nullptr ? &residual_->addend() : nullptr, output_);
  if (parts_.keeps_mask)
    return relu_with_mask(exec, passes(), z_.local(), parameters_.bias.local(), dropout, keys_, passed_);
  if (!parts_.is_fused()) return forward_in_passes(exec, pass, dropout);
  bias_relu_dropout(exec, passes(), z_.local(), parameters_.bias.local(), dropout, keys_);
  if (residual_ != nullptr) residual_->finish(exec, z_);
}

template<class T>
void NetworkActivation<T>::forward_in_passes(DefaultExec const& exec, Pass pass,
                                             Dropout const& dropout) const {
  // D, in the memory of gradients if F is added later
  auto const& d = residual_ != nullptr ? z_gradient_ : output_;
  if (own_norm_) own_norm_->forward(exec, pass, d);
  if (is_relu()) {
    bias_relu_dropout(exec, passes(), d.local(), runtime::Vector<Sum>(), dropout, keys_);
  } else {
    pmm::activate(exec, passes(), parts_.activation, (own_norm_ ? d : z_).local(), d.local());
    if (dropout.probability > 0) apply_dropout(exec, passes(), d.local(), dropout, keys_, d.local());
  }
  if (residual_ != nullptr) residual_->finish(exec, d);
}

template<class T>
void NetworkActivation<T>::backward_in_passes(DefaultExec const& exec, Dropout const& dropout) const {
  // dN := M dF' f'(N) / (1 - p). With ReLU, F' = D shows which elements passed; otherwise N is read, and recomputed if there is a norm.
  auto const& gradient = z_gradient_.local();
  auto const reads_n = !is_relu() || residual_ != nullptr;
  auto const draws_again = reads_n && dropout.probability > 0;
  if (draws_again) apply_dropout(exec, passes(), gradient, dropout, keys_, gradient);
  if (own_norm_ && reads_n) own_norm_->restore(exec, output_);
  auto const& n = own_norm_ ? output_ : z_;
  if (is_relu())
    relu_dropout_backward(exec, passes(), n.local(), draws_again ? 0 : dropout.probability, gradient);
  else
    pmm::activate_backward(exec, passes(), parts_.activation, n.local(), gradient);
  if (own_norm_) own_norm_->backward(exec, z_gradient_);
}

template<class T>
void NetworkActivation<T>::backward(DefaultExec const& exec, Dropout const& dropout) {
  auto const probability = dropout.probability;
  if (parts_.fuses_norm()) {
    rms_norm_relu_dropout_backward(exec, z_, parameters_.norm_scale, probability, norm_state_, row_sums_,
                                   gradient_, z_gradient_, parameters_.norm_scale_gradient, *workspace_);
    return parameters_.reduce(exec, z_gradient_, parameters_.norm_scale_gradient);
  }
  if (parts_.keeps_mask)
    return relu_backward_by_mask(exec, passes(), passed_, probability, z_gradient_.local(),
                                 parameters_.bias_gradient.local());
  // The kernels below work in place.
  if (copies_gradient()) copy_numbers(exec, gradient_, z_gradient_);
  if (!parts_.is_fused()) return backward_in_passes(exec, dropout);
  if (parameters_.bias.length() > 0)
    relu_dropout_backward_sum(exec, passes(), z_.local(), probability, z_gradient_.local(),
                              parameters_.bias_gradient.local(), *workspace_);
  else
    relu_dropout_backward(exec, passes(), z_.local(), probability, z_gradient_.local());
}

template<class T>
std::int64_t NetworkActivation<T>::num_positive(DefaultExec const& exec) const {
  return parts_.keeps_mask ? count_passed(exec, passed_) : count_positive(exec, z_);
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
