// SPDX-License-Identifier: Apache-2.0
//
// The convolution of docs/extend/convolution.md (examples/own_convolution): against its equation, and its gradients on every grid and in
// both schedules.
#define main main_of_example
#include "own_convolution/main.cpp"
#undef main
#include "cpp_layer/gated_network.hpp"
#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"
#include "models/gnn/network/graph_network.hpp"
#include "support/dist_checks.hpp"

#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

/// The graph has vertices without neighbors.
graph::GraphStore store_of_logmean(runtime::Communicator const& comm) {
  auto store = graph::partition_in_memory(comm,
                                          [](auto const& self) {
                                            return graph::open_dataset(
                                                self, "sbm:vertices=31,edges=20,features=5,classes=3");
                                          },
                                          {});
  store.set_operator({graph::Normalization::row, graph::SelfLoops::dropped});
  return store;
}

models::NetworkSettings settings_of(std::int64_t num_layers, models::Schedule schedule) {
  static bool const is_registered = [] {
    own_convolution::register_log_mean();
    return true;
  }();
  EXPECT_TRUE(is_registered);
  models::NetworkSettings settings;
  set_model(settings, models::parse_model("logmean"));
  settings.set_layers(num_layers, 6);
  settings.schedule = schedule;
  settings.dropout = 0;
  settings.has_residuals = true;
  settings.norm = models::Norm::layer;
  return settings;
}

TEST(LogMean, ComputesItsEquation) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  pmm::ProcessGrid const grid(self, {1, 1, 1, 1});
  auto const store = store_of_logmean(self);
  auto const n = store.facts().num_vertices;
  auto const settings = settings_of(1, models::Schedule::pmm3d);
  models::GraphNetwork<double> network(grid, store, settings);
  runtime::PhaseTimes phases;
  auto const found = gathered(network.forward({}, models::Pass::evaluation, 0, phases));

  auto const f = gathered(
      models::read_dense_features<double>(grid, store, network.plan().features(), models::FeatureNorm::none));
  auto const w = gathered(network.parameters()[0].matrix);
  auto const own = gathered(network.parameters()[1].matrix);
  auto const pattern = store.read_block(graph::Parity::even, {0, n}, {0, n}); // rows in p1, columns in p2
  auto const row_ids = store.read_original_ids(graph::Order::p1, {0, n});
  auto const column_ids = store.read_original_ids(graph::Order::p2, {0, n});
  auto num_alone = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    auto const first = pattern.row_offsets[static_cast<std::size_t>(i)];
    auto const last = pattern.row_offsets[static_cast<std::size_t>(i + 1)];
    num_alone += first == last ? 1 : 0;
    auto const self_row =
        std::ranges::find(column_ids, row_ids[static_cast<std::size_t>(i)]) - column_ids.begin();
    for (std::int64_t j = 0; j < 3; ++j) {
      auto value = 0.0;
      for (std::int64_t d = 0; d < 5; ++d) {
        auto mean = 0.0;
        for (auto k = first; k < last; ++k)
          mean += std::exp(f(pattern.columns[static_cast<std::size_t>(k)], d)) /
                  static_cast<double>(last - first);
        value += (first < last ? std::log(mean) : 0) * w(d, j) + f(self_row, d) * own(d, j);
      }
      EXPECT_NEAR(found(i, j), value, 1e-12) << "row " << i << ", column " << j;
    }
  }
  EXPECT_GT(num_alone, 0);
}

/// Of all weights on a grid.
std::vector<double> derivatives_of(pmm::ProcessGrid const& grid, models::Schedule schedule) {
  auto const store = store_of_logmean(grid.world());
  models::GraphNetwork<double> network(grid, store, settings_of(3, schedule));
  auto loss = models::make_vertex_loss<double>(grid, store, network.plan().logits());
  std::vector<double> found;
  for (auto const& parameter : network.parameters()) {
    if (parameter.is_vector()) continue;
    auto const [adjoint, difference] = cpp_layer::check_gradient(network, loss, parameter);
    EXPECT_NEAR(adjoint, difference, 1e-7) << parameter.name << " on " << grid.shape().to_string();
    found.push_back(adjoint);
  }
  return found;
}

TEST(LogMean, HasTheSameGradientsOnEveryGrid) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world"), self(MPI_COMM_SELF, "self");
  auto const expected = derivatives_of(pmm::ProcessGrid(self, {1, 1, 1, 1}), models::Schedule::pmm3d);
  EXPECT_EQ(expected.size(), 6U);
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (auto const& shape : pmm::all_shapes(world.size())) {
      auto const found = derivatives_of(pmm::ProcessGrid(world, shape), schedule);
      for (std::size_t p = 0; p < expected.size(); ++p)
        EXPECT_NEAR(found[p], expected[p], 1e-11) << "parameter " << p << " on " << shape.to_string();
    }
}

} // namespace
} // namespace orthant::testing
