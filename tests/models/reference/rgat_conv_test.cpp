// SPDX-License-Identifier: Apache-2.0
//
// R-GAT beside RGATConv of PyTorch Geometric (rgat_conv.py), on every grid: loss and all gradients of a network whose relations have the same
// attention vectors.
#include "graph/graph_probe.hpp"
#include "models/formula_parameters.hpp"
#include "models/models_fixture.hpp"
#include "runtime/comm/collectives.hpp"
#include "support/grids.hpp"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace orthant::testing {
namespace {

using Numbers = std::vector<double>;

class RgatConv : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  static constexpr auto tolerance = 1e-11; // numbers of size 1 in double

  RgatConv()
      : world_(MPI_COMM_WORLD, "world"),
        scratch_(world_),
        grid_(world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}),
        figures_(nlohmann::json::parse(
            std::ifstream(std::filesystem::path(ORTHANT_REFERENCE_FOLDER) / "rgat_conv.json"))) {}

  [[nodiscard]] graph::GraphStore store() const {
    auto const& given = figures_.at("graph");
    std::string lines;
    for (auto const& triple : given.at("triples")) {
      auto const number = [&](std::size_t k) { return std::to_string(triple.at(k).get<int>()); };
      lines += "vertex" + number(0) + "\trelation" + number(1) + "\tvertex" + number(2) + "\n";
    }
    auto const n = given.at("vertices").get<std::int64_t>();
    auto const features = given.at("features").get<std::vector<float>>();
    auto const train = given.at("train").get<std::vector<std::int64_t>>();
    scratch_.write("g/triples.tsv", lines);
    scratch_.write("g/x.npy", npy<float>("<f4", {n, std::ssize(features) / n}, features));
    scratch_.write("g/labels.npy",
                   npy<std::int64_t>("<i8", {n}, given.at("labels").get<std::vector<std::int64_t>>()));
    scratch_.write("g/train_idx.npy", npy<std::int64_t>("<i8", {std::ssize(train)}, train));
    for (auto const* const part : {"valid", "test"})
      scratch_.write(std::string("g/") + part + "_idx.npy", npy<std::int64_t>("<i8", {0}, {}));
    auto const path = scratch_.path() / "g.h5";
    graph::partition(world_, *graph::open_graph(world_, {.path = scratch_.path() / "g"}), path, {});
    return graph::GraphStore::open(world_, path);
  }

  /// Calls work(place in the whole parameter, this rank's number of `numbers`) for the numbers of this rank.
  template<class Vector, class Work>
  static void for_each_number(models::Parameter<double> const& parameter, Vector const& numbers,
                              Work const& work) {
    auto const columns =
        parameter.is_vector() ? parameter.vector.length() : parameter.matrix.extents().columns;
    for_each_element(parameter, [&](std::int64_t i, std::int64_t j, std::size_t place) {
      work(static_cast<std::size_t>(i * columns + j), numbers(place));
    });
  }

  runtime::Communicator world_;
  ScratchFolder scratch_;
  pmm::ProcessGrid grid_;
  nlohmann::json figures_;
};

TEST_P(RgatConv, HasTheLossAndTheGradientsOfPyG) {
  auto graph = store();
  models::NetworkSettings settings;
  set_model(settings, models::Model::rgat);
  settings.dropout = 0;
  settings.num_heads = 1;
  settings.set_layers(2, 6);
  models::use_operator(graph, settings);
  models::GraphNetwork<double> network(grid_, graph, settings);
  auto const& given = figures_.at("parameters");
  ASSERT_EQ(network.parameters().size(), given.size());
  for (auto const& parameter : network.parameters()) {
    auto const numbers = given.at(parameter.name).get<Numbers>();
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.value());
    for_each_number(parameter, host, [&](std::size_t k, double& number) { number = numbers.at(k); });
    Kokkos::deep_copy(parameter.value(), host);
  }
  auto loss = models::make_vertex_loss<double>(grid_, graph, network.plan().logits());
  models::TrainSettings training;
  training.weight_decay = 0;
  training.eval_every = 0;
  models::Trainer<double> trainer(grid_, network, loss, training);

  auto const record = trainer.train_epoch(1);

  EXPECT_NEAR(record.loss, figures_.at("loss").get<double>(), tolerance);
  for (auto const& parameter : network.parameters()) {
    auto const expected = figures_.at("gradients").at(parameter.name).get<Numbers>();
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.gradient());
    Numbers sums(expected.size()); // of attention: over the relations, which have q and k in common
    for_each_number(parameter, host,
                    [&](std::size_t k, double const& number) { sums[k % sums.size()] += number; });
    runtime::all_reduce(runtime::host, world_, std::span(sums));
    for (std::size_t k = 0; k < sums.size(); ++k)
      EXPECT_NEAR(sums[k], expected[k], tolerance) << parameter.name << " " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, RgatConv, ::testing::ValuesIn(grids_3d(world_size())), GridName());

} // namespace
} // namespace orthant::testing
