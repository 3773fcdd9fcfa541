// SPDX-License-Identifier: Apache-2.0
//
// The layer of docs/extend/layer.md (examples/cpp_layer): against its equation, and its gradients on every grid.
#include "cpp_layer/gated_network.hpp"
#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"
#include "support/dist_checks.hpp"

#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using cpp_layer::GatedMeanLayer;
using cpp_layer::GatedNetwork;

graph::GraphStore small_store(runtime::Communicator const& comm) {
  graph::PartitionOptions how;
  how.normalization = graph::Normalization::row;
  return graph::partition_in_memory(
      comm,
      [](auto const& self) {
        return graph::open_dataset(self, "sbm:vertices=31,edges=90,features=5,classes=3");
      },
      how);
}

TEST(GatedMeanLayer, ComputesItsEquation) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  pmm::ProcessGrid const grid(self, {1, 1, 1, 1});
  auto const store = small_store(self);
  auto const n = store.facts().num_vertices;
  cpp_layer::LayerPlan const plan{0, {}, n, 5, 4};
  models::AdjacencyBlocks<double> blocks(grid, store);
  GatedMeanLayer<double> layer(grid, blocks, plan, 1);
  auto const features =
      models::read_dense_features<double>(grid, store, plan.input(), models::FeatureNorm::none);

  auto const found = gathered(layer.forward({}, features));

  auto const f = gathered(features);
  auto const w = gathered(layer.parameters()[0].matrix);
  auto const u = gathered(layer.parameters()[1].matrix);
  auto const pattern = store.read_block(graph::Parity::even, {0, n}, {0, n});
  for (std::int64_t i = 0; i < n; ++i) {
    auto const first = pattern.row_offsets[static_cast<std::size_t>(i)];
    auto const last = pattern.row_offsets[static_cast<std::size_t>(i + 1)];
    for (std::int64_t j = 0; j < 4; ++j) {
      auto value = 0.0;
      auto gate = 0.0;
      for (std::int64_t d = 0; d < 5; ++d) {
        auto mean = 0.0;
        for (auto k = first; k < last; ++k)
          mean += f(pattern.columns[static_cast<std::size_t>(k)], d) / static_cast<double>(last - first);
        value += mean * w(d, j);
        gate += mean * u(d, j);
      }
      EXPECT_NEAR(found(i, j), value / (1 + std::exp(-gate)), 1e-12) << "row " << i << ", column " << j;
    }
  }
}

/// Of all parameters on a grid.
std::vector<double> derivatives_on(pmm::ProcessGrid const& grid) {
  auto const store = small_store(grid.world());
  GatedNetwork<double> network(grid, store, 4);
  auto loss = models::make_vertex_loss<double>(grid, store, network.logits_gradient().placement());
  std::vector<double> found;
  for (auto const& parameter : network.parameters()) {
    auto const [adjoint, difference] = cpp_layer::check_gradient(network, loss, parameter);
    EXPECT_NEAR(adjoint, difference, 1e-8) << parameter.name << " on " << grid.shape().to_string();
    found.push_back(adjoint);
  }
  return found;
}

TEST(GatedMeanLayer, HasTheSameGradientsOnEveryGrid) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world"), self(MPI_COMM_SELF, "self");
  auto const expected = derivatives_on(pmm::ProcessGrid(self, {1, 1, 1, 1}));
  for (auto const& shape : pmm::all_shapes(world.size())) {
    auto const found = derivatives_on(pmm::ProcessGrid(world, shape));
    for (std::size_t p = 0; p < expected.size(); ++p)
      EXPECT_NEAR(found[p], expected[p], 1e-12) << "parameter " << p << " on " << shape.to_string();
  }
}

} // namespace
} // namespace orthant::testing
