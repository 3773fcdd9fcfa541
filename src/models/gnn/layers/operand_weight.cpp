// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/layers/network_layer.hpp"

#include "models/layers/propagation_terms.hpp"
#include "pmm/kernels/rounding.hpp"

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

} // namespace orthant::models
