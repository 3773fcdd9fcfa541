#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A communicator for tests, stores of small graphs, and training runs that return their losses.

#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"
#include "graph/read/open_graph.hpp"
#include "models/gnn/network/graph_network.hpp"
#include "models/training/trainer.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "support/dist_checks.hpp"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace orthant::testing {

inline graph::GraphStore
store_of_dataset(runtime::Communicator const& comm, std::string const& description,
                 graph::PermutationKind permutation = graph::PermutationKind::twofold,
                 std::int64_t num_clusters = 0) {
  graph::PartitionOptions how;
  how.permutation = permutation;
  how.num_clusters = num_clusters;
  how.seed = 3;
  return graph::partition_in_memory(
      comm, [&](runtime::Communicator const& self) { return graph::open_dataset(self, description, 5); },
      how);
}

/// Folder of the real graphs, or empty where they are not at hand.
inline std::filesystem::path datasets_folder() {
  auto const* const folder = std::getenv("ORTHANT_DATA");
  return folder == nullptr ? std::filesystem::path() : std::filesystem::path(folder) / "datasets";
}
inline std::filesystem::path reference_folder() {
  auto const* const folder = std::getenv("ORTHANT_DATA");
  return folder == nullptr ? std::filesystem::path() : std::filesystem::path(folder) / "reference";
}

inline graph::GraphStore
store_of_folder(runtime::Communicator const& comm, std::filesystem::path const& folder,
                graph::PermutationKind permutation = graph::PermutationKind::twofold) {
  graph::PartitionOptions how;
  how.permutation = permutation;
  graph::Input input;
  input.path = folder;
  return graph::partition_in_memory(
      comm, [&](runtime::Communicator const& self) { return graph::open_graph(self, input); }, how);
}

/// How far apart the same numbers of two double networks may be: on a device the faster of two products is
/// taken, whichever it is today, and they add in other orders.
inline constexpr double rounding = pmm::runs_on_host ? 0 : 1e-12;

/// Trains and returns every epoch's record.
template<class T>
std::vector<runtime::EpochRecord> train(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                        models::NetworkSettings const& model_settings,
                                        models::TrainSettings const& settings) {
  models::GraphNetwork<T> model(grid, store, model_settings);
  auto loss = models::make_vertex_loss<T>(grid, store, model.plan().logits(), settings.loss);
  models::Trainer<T> trainer(grid, model, loss, settings);
  std::vector<runtime::EpochRecord> records;
  trainer.run([&](runtime::EpochRecord const& record) { records.push_back(record); });
  return records;
}

/// Ranks that have copies of a vector or of a replicated matrix have the same bits.
template<class T>
void expect_equal_copies(pmm::ProcessGrid const& grid, std::vector<models::Parameter<T>> const& parameters) {
  for (auto const& parameter : parameters) {
    pmm::AxisSet copies;
    if (parameter.is_vector())
      copies = pmm::group_axes.without(parameter.vector.axes());
    else if (parameter.matrix.layout().storage == pmm::Storage::replicated)
      copies = parameter.matrix.layout().third();
    auto const& over = grid.over(copies.with(pmm::batch_axes(grid.shape())));
    auto const values = host_copy(parameter.value());
    std::vector<T> least(values.data(), values.data() + values.extent(0));
    auto most = least;
    runtime::all_reduce(runtime::host, over, least, runtime::Reduction::min);
    runtime::all_reduce(runtime::host, over, most, runtime::Reduction::max);
    EXPECT_EQ(least, most) << parameter.name;
  }
}

} // namespace orthant::testing
