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
#include <optional>
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
  std::optional<KeptPlaces> kept = std::nullopt; // places of the numbers in the piece, of a pruned weight
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

/// The same for an array of a checkpoint, which has packed moments as widened numbers, and 0 for entries that are pruned.
template<class T>
void copy_to_host(Tensor<T> const& from, std::vector<T>& to);
template<class T>
void copy_from_host(std::vector<T> const& from, Tensor<T> const& to);

extern template class TrainingState<float>;
extern template class TrainingState<double>;
extern template void copy_to_host(Tensor<float> const&, std::vector<float>&);
extern template void copy_to_host(Tensor<double> const&, std::vector<double>&);
extern template void copy_from_host(std::vector<float> const&, Tensor<float> const&);
extern template void copy_from_host(std::vector<double> const&, Tensor<double> const&);

} // namespace orthant::models
