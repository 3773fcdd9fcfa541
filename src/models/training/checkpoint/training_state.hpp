#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// State of a training of any model, by name: parameters, arrays of the optimizer, and parameters of the best epoch.
//
//   /parameters/NAME    /optimizer/exp_avg/NAME    /best/NAME

#include "models/parameters/parameter.hpp"
#include "models/parameters/weights_file.hpp"
#include "models/training/parameter_update.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orthant::models {

/// Host copies of this rank's pieces of all parameters, in their order.
template<class T>
using HostCopy = std::vector<std::vector<T>>;

/// An array of a checkpoint, and the position of this rank's piece in it. `numbers` is borrowed memory.
template<class T>
struct Tensor {
  std::string name;
  Parameter<T> place; // parameter with the same placement
  runtime::Vector<T>
      numbers; // empty for parameters of the best epoch, which are on the host, and for packed moments
  PackedMoment packed;
};

template<class T>
class TrainingState {
 public:
  /// `update` must outlive the state.
  TrainingState(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> parameters,
                ParameterUpdate<T>& update)
      : grid_(&grid),
        parameters_(std::move(parameters)),
        update_(&update) {}

  [[nodiscard]] pmm::ProcessGrid const& grid() const { return *grid_; }
  [[nodiscard]] ParameterUpdate<T>& update() const { return *update_; }
  [[nodiscard]] std::vector<Parameter<T>> const& parameters() const { return parameters_; }
  /// Parameters and arrays of the optimizer; with `with_best`, also the parameters of the best epoch.
  [[nodiscard]] std::vector<Tensor<T>> tensors(bool with_best) const;

  /// Parameters of the best epoch; null if there was none. The pointer shares ownership.
  [[nodiscard]] std::shared_ptr<HostCopy<T> const> const& best() const { return best_; }
  void set_best(std::shared_ptr<HostCopy<T> const> best) { best_ = std::move(best); }
  /// best() := a copy of the current parameters.
  void keep_best();

 private:
  pmm::ProcessGrid const* grid_;
  std::vector<Parameter<T>> parameters_;
  ParameterUpdate<T>* update_;
  std::shared_ptr<HostCopy<T> const> best_;
};

/// to := from, on the host. Fences all kernels.
template<class T>
void copy_to_host(runtime::Vector<T> const& from, std::vector<T>& to) {
  to.resize(from.extent(0));
  Kokkos::deep_copy(
      Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(to.data(), to.size()),
      from);
}
template<class T>
void copy_from_host(std::vector<T> const& from, runtime::Vector<T> const& to) {
  Kokkos::deep_copy(to,
                    Kokkos::View<T const*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
                        from.data(), from.size()));
}

/// The same for an array of a checkpoint, which has packed moments as widened numbers.
template<class T>
void copy_to_host(Tensor<T> const& from, std::vector<T>& to) {
  if (from.packed.length() > 0)
    from.packed.read(to);
  else
    copy_to_host(from.numbers, to);
}
template<class T>
void copy_from_host(std::vector<T> const& from, Tensor<T> const& to) {
  if (to.packed.length() > 0)
    to.packed.write(from);
  else
    copy_from_host(from, to.numbers);
}

extern template class TrainingState<float>;
extern template class TrainingState<double>;

} // namespace orthant::models
