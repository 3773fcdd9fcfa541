// SPDX-License-Identifier: Apache-2.0
//
// The optimizer of docs/extend/optimizer.md: against its formula, and in a training on every grid.
#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"
#include "models/gnn/network/graph_network.hpp"
#include "models/parameters/device_copy.hpp"
#include "models/training/vertex_loss.hpp"
#include "support/dist_checks.hpp"

#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {

// [docs:optimizer]
/// Lion (Chen et al., arXiv 2302.06675). With g the gradient, w the value, and m what is kept for each number:
///
///   w := w - lr (sign(b1 m + (1 - b1) g) + wd w)        m := b2 m + (1 - b2) g
///
/// Each rank updates the pieces that it stores, so a step communicates nothing.
template<class T>
class Lion {
 public:
  struct Settings {
    double learning_rate = 0.01, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  };

  Lion(Settings const& settings, std::vector<models::Parameter<T>> const& parameters) : settings_(settings) {
    for (auto const& parameter : parameters) {
      if (!parameter.is_trained()) continue; // running means of a batch norm
      parameters_.push_back(parameter);      // a copy shares the numbers
      momenta_.emplace_back("extend::momentum", parameter.value().extent(0));
    }
  }

  /// One update of every parameter. Enqueues on exec; does not fence.
  void step(runtime::DefaultExec const& exec) const {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      auto const is_decayed =
          parameters_[p].role == models::ParameterRole::weight; // biases and scales are not
      update(exec, parameters_[p].value(), parameters_[p].gradient(), momenta_[p], settings_,
             is_decayed ? settings_.weight_decay : 0);
    }
  }

  static void update(runtime::DefaultExec const& exec, runtime::Vector<T> const& value,
                     runtime::Vector<T> const& gradient, runtime::Vector<T> const& momentum,
                     Settings const& settings, double weight_decay) {
    auto* const w = value.data();
    auto const* const g = gradient.data();
    auto* const m = momentum.data();
    auto const rate = static_cast<T>(settings.learning_rate);
    auto const b1 = static_cast<T>(settings.beta1);
    auto const b2 = static_cast<T>(settings.beta2);
    auto const decay = static_cast<T>(weight_decay);
    Kokkos::parallel_for(
        "extend::lion", Kokkos::RangePolicy<runtime::DefaultExec, std::size_t>(exec, 0, value.extent(0)),
        KOKKOS_LAMBDA(std::size_t i) {
          auto const direction = b1 * m[i] + (T{1} - b1) * g[i];
          auto const sign = static_cast<T>((direction > 0) - (direction < 0));
          w[i] -= rate * (sign + decay * w[i]);
          m[i] = b2 * m[i] + (T{1} - b2) * g[i];
        });
  }

 private:
  Settings settings_;
  std::vector<models::Parameter<T>> parameters_;
  std::vector<runtime::Vector<T>> momenta_;
};
// [docs:end]

// [docs:loop]
/// Trains any network on one batch, and returns the loss of each epoch. Collective over the grid's group.
template<class T>
std::vector<double> train(models::Network<T>& network, pmm::RowLoss<T>& loss, Lion<T> const& optimizer,
                          std::uint64_t num_epochs) {
  runtime::DefaultExec const exec;
  runtime::PhaseTimes phases;
  std::vector<double> losses;
  for (std::uint64_t epoch = 1; epoch <= num_epochs; ++epoch) {
    auto const& logits = network.forward(exec, models::Pass::training, epoch, phases);
    losses.push_back(loss.loss_and_gradient(exec, logits, network.logits_gradient()));
    network.backward(exec, phases);
    optimizer.step(exec);
  }
  return losses;
}
// [docs:end]

namespace {

// [docs:use]
std::vector<double> losses_on(pmm::ProcessGrid const& grid, std::uint64_t num_epochs) {
  auto const store = graph::partition_in_memory(
      grid.world(),
      [](auto const& self) { return graph::open_dataset(self, "sbm:vertices=200,features=8,classes=4"); },
      {});
  models::NetworkSettings settings;
  settings.set_layers(2, 16);
  models::GraphNetwork<double> network(grid, store, settings);
  auto loss = models::make_vertex_loss<double>(grid, store, network.plan().logits());
  Lion<double>::Settings const lion{.learning_rate = 0.005, .weight_decay = 0.1};
  return train(network, loss, Lion<double>(lion, network.parameters()), num_epochs);
}
// [docs:end]

TEST(Lion, FollowsItsFormula) {
  auto const value = models::to_vector<double>("value", std::vector{1.0, -2.0, 3.0});
  auto const gradient = models::to_vector<double>("gradient", std::vector{0.5, -1.0, 0.0});
  auto const momentum = models::to_vector<double>("momentum", std::vector{-0.1, 0.0, 0.0});
  runtime::DefaultExec const exec;

  Lion<double>::update(exec, value, gradient, momentum, {.learning_rate = 0.1}, 0.5);

  auto const w = host_copy(value);
  auto const m = host_copy(momentum);
  EXPECT_DOUBLE_EQ(w(0), 1.0 - 0.1 * (-1 + 0.5 * 1.0)); // 0.9 (-0.1) + 0.1 (0.5) is negative
  EXPECT_DOUBLE_EQ(w(1), -2.0 - 0.1 * (-1 + 0.5 * -2.0));
  EXPECT_DOUBLE_EQ(w(2), 3.0 - 0.1 * (0 + 0.5 * 3.0));
  EXPECT_DOUBLE_EQ(m(0), 0.99 * -0.1 + 0.01 * 0.5);
}

TEST(Lion, TrainsAlikeOnEveryGrid) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world"), self(MPI_COMM_SELF, "self");
  auto const expected = losses_on(pmm::ProcessGrid(self, {1, 1, 1, 1}), 40);
  EXPECT_LT(expected.back(), 0.6 * expected.front());
  for (auto const& shape : pmm::all_shapes(world.size())) {
    // A few epochs alone: if a direction is about 0, its sign may follow from rounding.
    auto const found = losses_on(pmm::ProcessGrid(world, shape), 5);
    for (std::size_t epoch = 0; epoch < found.size(); ++epoch)
      EXPECT_NEAR(found[epoch], expected[epoch], 1e-9) << "epoch " << epoch << " on " << shape.to_string();
  }
}

} // namespace
} // namespace orthant::testing
