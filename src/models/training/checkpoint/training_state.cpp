// SPDX-License-Identifier: Apache-2.0
#include "models/training/checkpoint/training_state.hpp"

#include "models/parameters/device_copy.hpp"

#include <utility>

namespace orthant::models {

template<class T>
std::vector<Tensor<T>> TrainingState<T>::tensors(bool with_best) const {
  std::vector<Tensor<T>> list;
  for (auto const& parameter : parameters_)
    list.push_back({array_of(parameter.name), parameter, parameter.value(), {}});
  for (auto const& [parameter, array] : update_->state())
    list.push_back({fmt::format("/optimizer/{}/{}", array.name, parameter.name), parameter, array.numbers,
                    array.packed, array.kept});
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

template<class T>
void copy_to_host(Tensor<T> const& from, std::vector<T>& to) {
  if (from.packed.length() > 0) {
    from.packed.read(to);
  } else if (from.kept) {
    HostNumbers<std::int32_t> const places(*from.kept);
    std::vector<T> numbers;
    copy_to_host(from.numbers, numbers);
    to.assign(from.place.value().extent(0), T{0});
    for (std::size_t i = 0; i < numbers.size(); ++i)
      to[static_cast<std::size_t>(places.values()[i])] = numbers[i];
  } else {
    copy_to_host(from.numbers, to);
  }
}

template<class T>
void copy_from_host(std::vector<T> const& from, Tensor<T> const& to) {
  if (to.packed.length() > 0) {
    to.packed.write(from);
  } else if (to.kept) {
    HostNumbers<std::int32_t> const places(*to.kept);
    std::vector<T> numbers;
    for (auto const place : places.values())
      numbers.push_back(from[static_cast<std::size_t>(place)]);
    copy_from_host(numbers, to.numbers);
  } else {
    copy_from_host(from, to.numbers);
  }
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template class TrainingState<T>;                                                                           \
  template void copy_to_host(Tensor<T> const&, std::vector<T>&);                                             \
  template void copy_from_host(std::vector<T> const&, Tensor<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
