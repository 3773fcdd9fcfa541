// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/layers/residual.hpp"

#include "models/gnn/plan/network_products.hpp"

#include <algorithm>
#include <type_traits>

namespace orthant::models {

using runtime::DefaultExec;

namespace {

/// Whether V is moved after it is computed.
bool moves_mapped(NetworkLayerPlan const& layer) {
  return layer.residual_map && layer.residual_source() != layer.result();
}

} // namespace

void plan_residual_scratch(NetworkScratchPlan& scratch, pmm::StepPlan const& step,
                           NetworkLayerPlan const& layer, NumberFormats const& formats) {
  if (!layer.is_residual) return;
  auto const num_source = step.block(layer.residual_source()).num_padded;
  scratch.residual_gradient = std::max(scratch.residual_gradient, num_source);
  if (!layer.residual_map) return;
  auto const products = residual_products_of(*layer.residual_map, formats);
  for (auto const& product : {products.product, products.input_back, products.weight_back})
    plan_buffers(scratch.workspace, step, product);
  if (moves_mapped(layer)) scratch.middle = std::max(scratch.middle, num_source);
}

void plan_residual_memory(pmm::StepPlan& step, NetworkLayerPlan const& layer, NumberFormats const& formats) {
  if (!layer.is_residual) return;
  plan_matrix(step, layer.result(), "orthant::models::activated", pmm::Lifetime::training, formats.operand);
  if (layer.residual_map) plan_operand_weight(step, layer.residual_map->weight, formats);
}

template<class T>
Residual<T>::Residual(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, ResidualPath<Sum> path,
                      NetworkLayerParameters<Sum> const* map, NetworkLayerOptions const& options,
                      NetworkScratch<T>& scratch, ResidualMemory<T>& memory)
    : path_(std::move(path)),
      is_in_place_(has_residual_in_place(plan)) {
  auto const lent = [&](pmm::Placement const& placement, GrowingVector<T>& numbers) {
    return pmm::DistMatrix<T>(grid, placement, numbers.reserve(pmm::block_of(grid, placement).num_padded));
  };
  output_ = lent(plan.result(), memory.output);
  gradient_ = lent(plan.residual_source(), is_in_place_ ? scratch.gradient : scratch.residual_gradient);
  if (map == nullptr) return;
  auto const products = residual_products_of(*plan.residual_map, options.formats);
  map_ = std::make_unique<Map>(Map{OperandWeight<T>(map->weight, memory.weight), map->weight_gradient,
                                   pmm::Product<T>(grid, products.product, scratch.workspace),
                                   pmm::Product<T, Sum>(grid, products.weight_back, scratch.workspace),
                                   pmm::Product<T>(grid, products.input_back, scratch.workspace),
                                   options.needs_input_gradient});
  mapped_ = moves_mapped(plan) ? lent(plan.residual_source(), scratch.middle) : output_;
}

template<class T>
template<class Features>
void Residual<T>::start(DefaultExec const& exec, Features const& features) {
  auto const move = [&](pmm::DistMatrix<T> const& source) {
    addend_ = path_.is_local ? source : output_;
    if (!path_.is_local) path_.bring(exec, source, output_);
  };
  if (map_) {
    // V[a,c] := sum_b F[a,b] W_r[b,c]
    map_->weight.update(exec);
    map_->product.run(exec, features, map_->weight.matrix(), mapped_);
    move(mapped_);
  } else if constexpr (std::is_same_v<Features, pmm::DistMatrix<T>>) {
    move(features);
  }
}

template<class T>
void Residual<T>::start_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& gradient) const {
  if (is_in_place_) return;
  if (path_.is_local)
    copy_numbers(exec, gradient, gradient_);
  else
    path_.bring_back(exec, gradient, gradient_);
}

template<class T>
template<class Features>
pmm::DistMatrix<T> const& Residual<T>::finish_backward(DefaultExec const& exec, Features const& features,
                                                       pmm::DistMatrix<T> const& input_gradient) {
  if (map_) {
    map_->weight_back.run(exec, features, gradient_, map_->weight_gradient);
    // dF[a,b] += sum_c dV[a,c] W_r[b,c]^T
    if (map_->needs_input_gradient)
      map_->input_back.run(exec, gradient_, map_->weight.matrix(), input_gradient);
    return input_gradient;
  }
  auto const& sum = is_in_place_ ? gradient_ : input_gradient;
  add(exec, input_gradient, gradient_, sum);
  return sum;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template class Residual<T>;                                                                                \
  ORTHANT_INSTANTIATE_FOR(T, pmm::DistMatrix<T>)                                                             \
  ORTHANT_INSTANTIATE_FOR(T, pmm::DistSparse<runtime::SumOf<T>>)
#define ORTHANT_INSTANTIATE_FOR(T, Features)                                                                 \
  template void Residual<T>::start(DefaultExec const&, Features const&);                                     \
  template pmm::DistMatrix<T> const& Residual<T>::finish_backward(DefaultExec const&, Features const&,       \
                                                                  pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE_FOR
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
