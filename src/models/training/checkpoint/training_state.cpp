// SPDX-License-Identifier: Apache-2.0
#include "models/training/checkpoint/training_state.hpp"

#include <utility>

namespace orthant::models {

template<class T>
std::vector<Tensor<T>> TrainingState<T>::tensors(bool with_best) const {
  std::vector<Tensor<T>> list;
  for (auto const& parameter : parameters_)
    list.push_back({array_of(parameter.name), parameter, parameter.value(), {}});
  for (auto const& [parameter, array] : update_->state())
    list.push_back({fmt::format("/optimizer/{}/{}", array.name, parameter.name), parameter, array.numbers,
                    array.packed});
  for (auto const& parameter : parameters_)
    if (with_best) list.push_back({"/best/" + parameter.name, parameter, {}, {}});
  return list;
}

template<class T>
void TrainingState<T>::keep_best() {
  auto copy = std::make_shared<HostCopy<T>>(parameters_.size());
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    copy_to_host(parameters_[p].value(), (*copy)[p]);
  best_ = std::move(copy);
}

template class TrainingState<float>;
template class TrainingState<double>;

} // namespace orthant::models
