#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Two gated mean layers as a network of the library, and the check of its gradients.

#include "gated_mean_layer.hpp"
#include "models/parameters/network.hpp"
#include "models/training/vertex_loss.hpp"

#include <vector>

namespace cpp_layer {

// [docs:network]
template<class T>
class GatedNetwork final : public models::Network<T> {
 public:
  using Matrix = pmm::DistMatrix<T>;

  /// On the whole graph of a store with dense features. Collective over the grid's group; the store must outlive the call only.
  GatedNetwork(pmm::ProcessGrid const& grid, orthant::graph::GraphStore const& store, std::int64_t width,
               std::uint64_t seed = 1) {
    auto const& facts = store.facts();
    models::AdjacencyBlocks<T> blocks(grid, store); // layers share what they can of A^
    LayerPlan const first{0, {}, facts.num_vertices, facts.num_features, width};
    LayerPlan const second{1, first.roles.next(), facts.num_vertices, width, facts.num_classes};
    features_ = models::read_dense_features<T>(grid, store, first.input(), models::FeatureNorm::none);
    hidden_gradient_ = Matrix(grid, second.input(), "cpp_layer::hidden_gradient");
    logits_gradient_ = Matrix(grid, second.output(), "cpp_layer::logits_gradient");
    for (auto const& plan : {first, second}) {
      layers_.emplace_back(grid, blocks, plan, seed);
      auto const& added = layers_.back().parameters();
      parameters_.insert(parameters_.end(), added.begin(), added.end());
    }
  }

  Matrix const& forward(runtime::DefaultExec const& exec, models::Pass /*pass*/, std::uint64_t /*step*/,
                        runtime::PhaseTimes& /*phases*/) override {
    return layers_[1].forward(exec, layers_[0].forward(exec, features_));
  }
  void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& /*phases*/) override {
    layers_[1].backward(exec, logits_gradient_, &hidden_gradient_);
    layers_[0].backward(exec, hidden_gradient_, nullptr);
  }
  [[nodiscard]] Matrix const& logits_gradient() const override { return logits_gradient_; }
  [[nodiscard]] std::vector<models::Parameter<T>>& parameters() override { return parameters_; }

 private:
  std::vector<GatedMeanLayer<T>> layers_;
  std::vector<models::Parameter<T>> parameters_; // share their numbers with those of the layers
  Matrix features_, hidden_gradient_, logits_gradient_;
};
// [docs:end]

// [docs:check]
/// The derivative of a loss by one parameter W along a random direction D, in two ways:
///
///   adjoint    := sum_ij dW_ij D_ij
///   difference := (loss(W + h D) - loss(W - h D)) / 2h
struct Derivative {
  double adjoint = 0, difference = 0;
};

/// Collective over the grid's group.
template<class T>
Derivative check_gradient(models::Network<T>& network, pmm::RowLoss<T>& loss,
                          models::Parameter<T> const& parameter) {
  runtime::DefaultExec const exec;
  runtime::PhaseTimes phases;
  auto const& grid = parameter.matrix.grid();
  auto const loss_now = [&] {
    auto const& logits = network.forward(exec, models::Pass::evaluation, 0, phases);
    return loss.loss_and_gradient(exec, logits, network.logits_gradient());
  };
  pmm::DistMatrix<T> const direction(grid, parameter.matrix.placement(), "cpp_layer::direction");
  runtime::RandomStream const stream(7, runtime::Purpose::test);
  pmm::fill(
      exec, direction, KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        return stream.normal<T>(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j));
      });
  auto const move = [&](double step) { // W := W + step D, on this rank's piece
    auto* const w = parameter.matrix.storage().data();
    auto const* const d = direction.storage().data();
    Kokkos::parallel_for(
        "cpp_layer::move",
        Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, direction.block().num_stored),
        KOKKOS_LAMBDA(std::int64_t i) { w[i] += static_cast<T>(step) * d[i]; });
  };

  Derivative result;
  static_cast<void>(loss_now());
  network.backward(exec, phases);
  auto const* const g = parameter.matrix_gradient.storage().data();
  auto const* const d = direction.storage().data();
  Kokkos::parallel_reduce(
      "cpp_layer::inner_product",
      Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, direction.block().num_stored),
      KOKKOS_LAMBDA(std::int64_t i, double& sum) { sum += static_cast<double>(g[i] * d[i]); },
      result.adjoint);
  // Pieces of a flat-sharded matrix are on one rank of the group each, so their sum is over all of it.
  runtime::all_reduce(runtime::host, grid.group(), std::span(&result.adjoint, 1));

  constexpr auto h = 1e-5; // the error of the difference is about h^2 + 1e-16 / h
  move(h);
  auto const above = loss_now();
  move(-2 * h);
  auto const below = loss_now();
  move(h);
  result.difference = (above - below) / (2 * h);
  return result;
}
// [docs:end]

} // namespace cpp_layer
