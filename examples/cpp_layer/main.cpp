// SPDX-License-Identifier: Apache-2.0
//
// Trains a network of a layer of its own: cpp_layer [GRID], such as cpp_layer 1x2x2x1

#include "gated_network.hpp"
#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"
#include "models/training/trainer.hpp"
#include "runtime/job/job_end.hpp"

#include <fmt/format.h>

namespace graph = orthant::graph;

namespace {

/// A graph of four communities, which every rank generates and partitions by itself. Large graphs come from a file:
/// graph::GraphStore::open(world, "graph.h5").
graph::GraphStore make_store(cpp_layer::runtime::Communicator const& world) {
  graph::PartitionOptions how;
  how.normalization = graph::Normalization::row; // A^ = D^-1 (A + I), the mean
  return graph::partition_in_memory(
      world,
      [](auto const& self) {
        return graph::open_dataset(self, "sbm:vertices=400,edges=2400,features=16,classes=4,separation=1");
      },
      how);
}

int run(orthant::runtime::Environment& environment) {
  using namespace cpp_layer;
  auto const& world = environment.world();
  auto const& arguments = environment.arguments();
  pmm::ProcessGrid const grid(world,
                              pmm::parse_grid(arguments.empty() ? "auto" : arguments.front(), world.size()));
  auto const store = make_store(world);
  GatedNetwork<double> network(grid, store, 16);
  auto loss = models::make_vertex_loss<double>(grid, store, network.logits_gradient().placement());

  for (auto const& parameter : network.parameters()) {
    auto const [adjoint, difference] = check_gradient(network, loss, parameter);
    if (world.is_root())
      fmt::print("{:<14}  derivative {:.6f}, by finite differences {:.6f}\n", parameter.name, adjoint,
                 difference);
    ORTHANT_REQUIRE(std::abs(adjoint - difference) < 1e-8, "the gradient of ", parameter.name, " is wrong");
  }

  models::TrainSettings settings;
  settings.num_epochs = 60;
  models::Trainer<double> trainer(grid, network, loss, settings);
  auto const result = trainer.run([&](runtime::EpochRecord const& record) {
    if (world.is_root() && record.epoch % 20 == 0)
      fmt::print("epoch {:>3}  loss {:.6f}\n", record.epoch, record.loss);
  });
  auto const& scores = *result.progress.last;
  if (world.is_root())
    fmt::print("accuracy  train {:.4f}, valid {:.4f}, test {:.4f}\n", scores[0].accuracy(),
               scores[1].accuracy(), scores[2].accuracy());
  return orthant::runtime::exit_done;
}

} // namespace

int main(int argc, char** argv) {
  return orthant::runtime::run_main(argc, argv, {}, run);
}
