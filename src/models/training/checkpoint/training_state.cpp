// SPDX-License-Identifier: Apache-2.0
#include "models/training/checkpoint/training_state.hpp"

#include "runtime/comm/together.hpp"

#include <utility>

namespace orthant::models {

template<class T>
TrainingState<T>::TrainingState(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> parameters,
                                ParameterUpdate<T>& update, RowNumbers const& row_numbers)
    : grid_(&grid),
      parameters_(std::move(parameters)),
      update_(&update) {
  runtime::together(grid.world(), [&] {
    for (auto const& parameter : parameters_) {
      if (parameter.is_vector()) continue;
      auto const order = parameter.matrix.layout().row_order;
      if (order == pmm::natural_order) continue;
      row_numbers_[parameter.name] = row_numbers(order, parameter.matrix.block().rows);
    }
  });
}

template<class T>
std::span<std::int64_t const> TrainingState<T>::row_numbers_of(Parameter<T> const& parameter) const {
  auto const found = row_numbers_.find(parameter.name);
  return found == row_numbers_.end() ? std::span<std::int64_t const>() : found->second;
}

template<class T>
std::vector<Tensor<T>> TrainingState<T>::tensors(bool with_best) const {
  std::vector<Tensor<T>> list;
  for (auto const& parameter : parameters_)
    list.push_back({array_of(parameter.name), parameter, row_numbers_of(parameter), parameter.value()});
  for (auto const& [parameter, array] : update_->state())
    list.push_back({fmt::format("/optimizer/{}/{}", array.name, parameter.name), parameter,
                    row_numbers_of(parameter), array.numbers});
  for (auto const& parameter : parameters_)
    if (with_best) list.push_back({"/best/" + parameter.name, parameter, row_numbers_of(parameter), {}});
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
