// SPDX-License-Identifier: Apache-2.0
//
// GAT and GATv2 that read features of edges, beside figures of PyTorch Geometric (edge_features.py), on every grid: on the full graph, on
// batches of all vertices, and on the rows that training vertices need.
#include "graph/graph_probe.hpp"
#include "models/formula_parameters.hpp"
#include "models/gnn/batches/mini_batch.hpp"
#include "models/gnn/pruning/pruned_network.hpp"
#include "models/models_fixture.hpp"
#include "support/grids.hpp"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace orthant::testing {
namespace {

using models::Model;

// Numbers of size 1 and five steps in double.
constexpr auto tolerance = 1e-11;

class EdgeFeatures : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  EdgeFeatures()
      : world_(MPI_COMM_WORLD, "world"),
        scratch_(world_),
        grid_(world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}),
        figures_(nlohmann::json::parse(
            std::ifstream(std::filesystem::path(ORTHANT_REFERENCE_FOLDER) / "edge_features.json"))) {}

  [[nodiscard]] graph::GraphStore store(graph::PermutationKind order) const {
    auto const& given = figures_.at("graph");
    auto const list = [&](char const* name) { return given.at(name).get<std::vector<std::int64_t>>(); };
    auto const numbers = [&](char const* name) { return given.at(name).get<std::vector<float>>(); };
    auto ends = list("sources");
    auto const num_edges = std::ssize(ends);
    auto const targets = list("targets");
    ends.insert(ends.end(), targets.begin(), targets.end());
    auto const of_edges = numbers("edge_features");
    auto const of_vertices = numbers("features");
    auto const n = given.at("vertices").get<std::int64_t>();
    scratch_.write("g/edge_index.npy", npy<std::int64_t>("<i8", {2, num_edges}, ends));
    scratch_.write("g/edge_attr.npy",
                   npy<float>("<f4", {num_edges, std::ssize(of_edges) / num_edges}, of_edges));
    scratch_.write("g/x.npy", npy<float>("<f4", {n, std::ssize(of_vertices) / n}, of_vertices));
    scratch_.write("g/labels.npy", npy<std::int64_t>("<i8", {n}, list("labels")));
    auto const train = list("train");
    for (auto const* const part : {"valid", "test"})
      scratch_.write(std::string("g/") + part + "_idx.npy", npy<std::int64_t>("<i8", {0}, {}));
    scratch_.write("g/train_idx.npy", npy<std::int64_t>("<i8", {std::ssize(train)}, train));
    graph::PartitionOptions how;
    how.permutation = order;
    how.num_clusters = 5;
    how.replaces_output = true;
    auto const path = scratch_.path() / "g.h5";
    graph::Input const input{
        .path = scratch_.path() / "g", .is_directed = true, .edge_features = graph::EdgeFeatures::kept};
    graph::partition(world_, *graph::open_graph(world_, input), path, how);
    return graph::GraphStore::open(world_, path);
  }

  static models::NetworkSettings settings_of(Model model) {
    models::NetworkSettings settings;
    set_model(settings, model);
    settings.dropout = 0;
    settings.num_heads = 4;
    settings.num_output_heads = 2;
    settings.set_layers(3, 8);
    return settings;
  }

  static void expect_gradients(std::vector<models::Parameter<double>> const& parameters,
                               nlohmann::json const& expected) {
    ASSERT_EQ(parameters.size(), expected.size());
    for (auto const& parameter : parameters) {
      auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.gradient());
      auto const columns =
          parameter.is_vector() ? parameter.vector.length() : parameter.matrix.extents().columns;
      auto const& of_parameter = expected.at(parameter.name);
      for_each_element(parameter, [&](std::int64_t i, std::int64_t j, std::size_t place) {
        auto const number = static_cast<std::size_t>(i * columns + j);
        EXPECT_NEAR(numbers(place), of_parameter.at(number).get<double>(), tolerance)
            << parameter.name << " " << i << ", " << j;
      });
    }
  }

  static models::TrainSettings training() {
    models::TrainSettings training;
    training.optimizer.learning_rate = 0.01;
    training.weight_decay = 0;
    training.eval_every = 0;
    return training;
  }

  /// Steps of the full graph by another network, which `make` returns for a store, settings of the model and of the training.
  template<class Make>
  void expect_same_steps(Model model, Make const& make) const {
    auto const& expected = figures_.at(std::string(models::name_of(model)));
    auto const losses = expected.at("losses").get<std::vector<double>>();
    for (auto const order : {graph::PermutationKind::twofold, graph::PermutationKind::single}) {
      auto graph = store(order);
      auto settings = settings_of(model);
      settings.gather = order == graph::PermutationKind::single ? pmm::Gather::needed : pmm::Gather::all;
      models::use_operator(graph, settings);
      auto training_of_all = training();
      training_of_all.num_epochs = std::ssize(losses);
      auto const network = make(graph, settings, training_of_all);
      set_formula_parameters(network->parameters());
      std::vector<double> found;
      network->run([&](runtime::EpochRecord const& record) { found.push_back(record.loss); });
      ASSERT_EQ(found.size(), losses.size());
      for (std::size_t step = 0; step < losses.size(); ++step)
        EXPECT_NEAR(found[step], losses[step], tolerance) << "step " << step;
      expect_gradients(network->parameters(), expected.at("last"));
    }
  }

  void expect_training(Model model, graph::PermutationKind order, pmm::Gather gather) const {
    auto const& expected = figures_.at(std::string(models::name_of(model)));
    auto graph = store(order);
    auto settings = settings_of(model);
    settings.gather = gather;
    models::use_operator(graph, settings);
    models::GraphNetwork<double> network(grid_, graph, settings);
    set_formula_parameters(network.parameters());
    auto loss = models::make_vertex_loss<double>(grid_, graph, network.plan().logits());
    models::Trainer<double> trainer(grid_, network, loss, training());
    auto const losses = expected.at("losses").get<std::vector<double>>();
    for (std::size_t step = 0; step < losses.size(); ++step) {
      auto const record = trainer.train_epoch(static_cast<std::int64_t>(step) + 1);
      EXPECT_NEAR(record.loss, losses[step], tolerance) << "step " << step;
      if (step == 0) expect_gradients(network.parameters(), expected.at("first"));
    }
    expect_gradients(network.parameters(), expected.at("last"));
  }

  runtime::Communicator world_;
  ScratchFolder scratch_;
  pmm::ProcessGrid grid_;
  nlohmann::json figures_;
};

TEST_P(EdgeFeatures, OfGatAreThoseOfPyG) {
  expect_training(Model::gat, graph::PermutationKind::twofold, pmm::Gather::all);
  expect_training(Model::gat, graph::PermutationKind::single, pmm::Gather::needed);
}

TEST_P(EdgeFeatures, OfGatv2AreThoseOfPyG) {
  expect_training(Model::gatv2, graph::PermutationKind::twofold, pmm::Gather::all);
  expect_training(Model::gatv2, graph::PermutationKind::single, pmm::Gather::needed);
}

// Every vertex is in the batch, so no sampler has another loss.
TEST_P(EdgeFeatures, OfABatchOfAllVerticesAreThoseOfPyG) {
  using models::SamplerKind;
  for (auto const model : {Model::gat, Model::gatv2})
    for (auto const kind : {SamplerKind::uniform, SamplerKind::degree, SamplerKind::clusters}) {
      SCOPED_TRACE(::testing::Message() << name_of(model) << ", sampler " << static_cast<int>(kind));
      models::MiniBatchSettings batches;
      batches.batch_size = figures_.at("graph").at("vertices").get<std::int64_t>();
      batches.kind = kind;
      expect_same_steps(model, [&](auto const& graph, auto const& settings, auto const& training) {
        return std::make_unique<models::MiniBatchNetwork<double>>(grid_, graph, settings, training, batches);
      });
    }
}

TEST_P(EdgeFeatures, OfPrunedStepsAreThoseOfPyG) {
  for (auto const model : {Model::gat, Model::gatv2})
    expect_same_steps(model, [&](auto const& graph, auto const& settings, auto const& training) {
      auto const rows = models::find_pruned_rows(grid_, graph, models::plan_network(graph, settings));
      return std::make_unique<models::PrunedNetwork<double>>(grid_, graph, settings, training, rows);
    });
}

INSTANTIATE_TEST_SUITE_P(AllGrids, EdgeFeatures, ::testing::ValuesIn(grids_3d(world_size())), GridName());

} // namespace
} // namespace orthant::testing
