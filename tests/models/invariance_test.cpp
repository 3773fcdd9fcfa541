// SPDX-License-Identifier: Apache-2.0
//
// The grid never changes the answer: the same seed gives the same losses on one rank and on every grid, for
// every permutation of the store, with dropout, any depth and either order of the products. Compiled once for
// each schedule; one rank always runs pmm3d.
#include "models/plan/predicted_bytes.hpp"
#include "models_fixture.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <span>

namespace orthant::testing {
namespace {

constexpr auto graph_text = "sbm:vertices=203,edges=900,features=13,classes=5";

constexpr auto tested_schedule = models::Schedule::ORTHANT_SCHEDULE;

models::NetworkSettings small_model() {
  models::NetworkSettings settings;
  settings.schedule = tested_schedule;
  settings.set_layers(3, 9);
  settings.dropout = 0.4;
  settings.seed = 11;
  return settings;
}

/// Along x, y and z in an epoch.
std::array<std::int64_t, 3> bytes_of_matrices(models::TrainResult const& result) {
  return {result.epoch_bytes.along(pmm::Axis::x), result.epoch_bytes.along(pmm::Axis::y),
          result.epoch_bytes.along(pmm::Axis::z)};
}

models::TrainSettings short_training(std::int64_t num_epochs) {
  models::TrainSettings settings;
  settings.num_epochs = num_epochs;
  settings.weight_decay = 1e-3;
  settings.weight_decay_first_layer = 5e-3;
  settings.eval_every = num_epochs;
  return settings;
}

class GridInvariance : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  GridInvariance()
      : world_(MPI_COMM_WORLD, "world"),
        self_(MPI_COMM_SELF, "self"),
        grid_(world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}),
        one_(self_, {1, 1, 1, 1}) {}

  /// The losses on the grid equal those of one rank, which every rank computes for itself.
  void expect_equal_losses(models::NetworkSettings const& model, models::TrainSettings const& settings,
                           std::string const& description = graph_text,
                           graph::PermutationKind permutation = graph::PermutationKind::twofold) {
    auto const expected =
        train<double>(one_, store_of_dataset(self_, description), on_one_rank(model), settings);
    auto const found =
        train<double>(grid_, store_of_dataset(world_, description, permutation), model, settings);

    ASSERT_EQ(found.size(), static_cast<std::size_t>(settings.num_epochs));
    ASSERT_EQ(expected.size(), found.size());
    for (std::size_t e = 0; e < found.size(); ++e) {
      EXPECT_NEAR(found[e].loss, expected[e].loss, 1e-10) << "epoch " << found[e].epoch;
      ASSERT_EQ(found[e].grad_norms.size(), num_norms(model));
      ASSERT_EQ(expected[e].grad_norms.size(), num_norms(model));
      for (std::size_t l = 0; l < found[e].grad_norms.size(); ++l)
        EXPECT_NEAR(found[e].grad_norms[l], expected[e].grad_norms[l], 1e-10) << "epoch " << found[e].epoch;
      EXPECT_EQ(found[e].score("test_acc"), expected[e].score("test_acc"));
    }
    // Equal numbers say nothing if they are absent or zero.
    EXPECT_GT(expected.front().loss, 0);
    EXPECT_TRUE(expected.back().score("test_acc").has_value());
    for (std::size_t l = 0; l < num_norms(model); ++l)
      EXPECT_GT(largest_norm(expected, l), 1e-6) << "matrix " << l << " never has a gradient";
  }

  static models::NetworkSettings on_one_rank(models::NetworkSettings model) {
    model.schedule = models::Schedule::pmm3d;
    return model;
  }

  /// Gradient norms in a record: one per matrix that is trained.
  static std::size_t num_norms(models::NetworkSettings const& model) {
    return static_cast<std::size_t>(model.num_layers() + (model.projected_width > 0 ? 1 : 0) +
                                    (model.has_head ? 1 : 0) + (model.trains_features ? 1 : 0));
  }
  static double largest_norm(std::vector<runtime::EpochRecord> const& records, std::size_t l) {
    auto largest = 0.0;
    for (auto const& record : records)
      largest = std::max(largest, record.grad_norms[l]);
    return largest;
  }

  runtime::Communicator world_;
  runtime::Communicator self_;
  pmm::ProcessGrid grid_;
  pmm::ProcessGrid one_;
};

TEST_P(GridInvariance, TwentyEpochsWithDropoutInEveryProductOrder) {
  for (auto const order : {models::ProductOrder::automatic, models::ProductOrder::aggregate_first,
                           models::ProductOrder::transform_first}) {
    auto model = small_model();
    model.order = order;
    expect_equal_losses(model, short_training(20));
  }
}

TEST_P(GridInvariance, EveryLoss) {
  using models::ClassWeights;
  using models::LossFunction;
  for (auto const& loss : {models::VertexLossSettings{ClassWeights::balanced, 0.1},
                           {ClassWeights::balanced, 0.1, LossFunction::binary},
                           {ClassWeights::none, 0.1, LossFunction::focal, 1.5}}) {
    SCOPED_TRACE(static_cast<int>(loss.function));
    auto settings = short_training(5);
    settings.loss = loss;
    expect_equal_losses(small_model(), settings);
  }
}

TEST_P(GridInvariance, EveryPermutationOfTheStore) {
  for (auto const permutation : {graph::PermutationKind::natural, graph::PermutationKind::single,
                                 graph::PermutationKind::cluster, graph::PermutationKind::pieces})
    expect_equal_losses(small_model(), short_training(5), graph_text, permutation);
}

TEST_P(GridInvariance, SixLayers) {
  auto model = small_model();
  model.set_layers(6, 9);
  for (auto const permutation : {graph::PermutationKind::twofold, graph::PermutationKind::single})
    expect_equal_losses(model, short_training(5), graph_text, permutation);
}

TEST_P(GridInvariance, DirectedGraphAndTrainedFeatures) {
  auto model = small_model();
  model.trains_features = true;
  expect_equal_losses(model, short_training(5),
                      "sbm:vertices=203,edges=900,features=13,classes=5,directed=1");
}

TEST_P(GridInvariance, CachedAggregateWithoutDropoutAndClippedSgd) {
  auto model = small_model();
  model.dropout = 0;
  model.order = models::ProductOrder::aggregate_first;
  auto settings = short_training(6);
  settings.optimizer.kind = models::OptimizerKind::sgd;
  settings.clip_norm = 0.01;
  expect_equal_losses(model, settings);
}

TEST_P(GridInvariance, FewerVerticesAndFeaturesThanRanks) {
  auto model = small_model();
  model.set_layers(3, 2);
  model.seed = 1; // small_model() has no gradient at all here: no unit of two passes a ReLU
  expect_equal_losses(model, short_training(4), "ring:vertices=5,features=1,classes=2");
}

/// Four bits: norm, residual, projection, head.
models::NetworkSettings model_with_parts(int parts, std::int64_t num_layers) {
  auto model = small_model();
  model.norm = (parts & 1) != 0 ? models::Norm::rms : models::Norm::none;
  model.has_residuals = (parts & 2) != 0;
  model.projected_width = (parts & 4) != 0 ? 9 : 0;
  model.has_head = (parts & 8) != 0;
  model.set_layers(num_layers, 9);
  return model;
}

TEST_P(GridInvariance, EveryCombinationOfParts) {
  for (int parts = 1; parts < 16; ++parts) {
    SCOPED_TRACE(parts);
    expect_equal_losses(model_with_parts(parts, 3), short_training(2));
  }
}

/// A vector of the model on every rank, replicas counted once.
std::vector<double> gathered(pmm::DistVector<double> const& vector) {
  std::vector<double> whole(static_cast<std::size_t>(vector.length()));
  auto const local = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), vector.local());
  for (std::int64_t i = 0; vector.is_first_replica() && i < vector.range().size(); ++i)
    whole[static_cast<std::size_t>(vector.range().begin + i)] = local(static_cast<std::size_t>(i));
  runtime::all_reduce(runtime::host, vector.grid().group(), whole);
  return whole;
}

struct NormScales {
  std::vector<double> values;    // of all norms, one after the other
  std::vector<double> gradients; // of the last step
};

NormScales trained_scales(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                          models::NetworkSettings const& settings, models::TrainSettings const& training) {
  models::GraphNetwork<double> model(grid, store, settings);
  auto loss = models::make_vertex_loss<double>(grid, store, model.plan().logits());
  models::Trainer<double> trainer(grid, model, loss, training);
  trainer.run([](runtime::EpochRecord const&) {});
  NormScales scales;
  for (auto const& parameter : model.parameters()) {
    if (!parameter.name.ends_with(".norm")) continue;
    for (auto const value : gathered(parameter.vector))
      scales.values.push_back(value);
    for (auto const gradient : gathered(parameter.vector_gradient))
      scales.gradients.push_back(gradient);
  }
  return scales;
}

TEST_P(GridInvariance, ScalesOfNormsAreThereAndAreTrainedAlike) {
  for (auto const parts : {1, 15}) {
    auto const settings = model_with_parts(parts, 3);
    auto const expected =
        trained_scales(one_, store_of_dataset(self_, graph_text), on_one_rank(settings), short_training(5));
    auto const found =
        trained_scales(grid_, store_of_dataset(world_, graph_text), settings, short_training(5));

    // 9 columns; without a head the last of 3 layers gives the logits and has no norm.
    ASSERT_EQ(found.values.size(), parts == 1 ? 18U : 27U);
    EXPECT_THAT(found.values, ::testing::Pointwise(::testing::DoubleNear(1e-10), expected.values));
    EXPECT_THAT(found.gradients, ::testing::Pointwise(::testing::DoubleNear(1e-10), expected.gradients));
    // Five steps of Adam at 0.01 move each scale away from its 1.
    for (auto const value : expected.values)
      EXPECT_GT(std::abs(value - 1), 1e-4);
    // A column of which no element passed its ReLU has no gradient; no norm is all such columns.
    for (std::size_t first = 0; first < expected.gradients.size(); first += 9) {
      auto const largest = std::ranges::max(std::span(expected.gradients).subspan(first, 9), {},
                                            [](double gradient) { return std::abs(gradient); });
      EXPECT_GT(std::abs(largest), 1e-6) << "norm " << first / 9;
    }
  }
}

TEST_P(GridInvariance, AllPartsInEveryProductOrderAndPermutation) {
  for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first})
    for (auto const permutation : {graph::PermutationKind::twofold, graph::PermutationKind::natural}) {
      auto model = model_with_parts(15, 4);
      model.order = order;
      expect_equal_losses(model, short_training(6), graph_text, permutation);
    }
}

TEST_P(GridInvariance, AllPartsOnADirectedGraphWithTrainedFeatures) {
  auto model = model_with_parts(15, 3);
  model.trains_features = true;
  expect_equal_losses(model, short_training(5),
                      "sbm:vertices=203,edges=900,features=13,classes=5,directed=1");
}

TEST_P(GridInvariance, AllPartsWithFewerVerticesAndFeaturesThanRanks) {
  auto model = model_with_parts(15, 2);
  model.projected_width = 2;
  model.set_layers(2, 2);
  expect_equal_losses(model, short_training(4), "ring:vertices=5,features=1,classes=2");
}

TEST_P(GridInvariance, AnEpochWithPartsSendsTheBytesThatWerePredicted) {
  auto const store = store_of_dataset(world_, graph_text);
  for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first})
    for (auto const parts : {5, 10, 15})
      for (auto const trains_features : {false, true}) {
        auto settings = model_with_parts(parts, 3);
        settings.order = order;
        settings.trains_features = trains_features;
        models::GraphNetwork<double> model(grid_, store, settings);
        auto loss = models::make_vertex_loss<double>(grid_, store, model.plan().logits());
        models::Trainer<double> trainer(grid_, model, loss, short_training(2));

        auto const result = trainer.run([](runtime::EpochRecord const&) {});

        EXPECT_EQ(bytes_of_matrices(result), predicted_bytes<double>(grid_.shape(), model.plan(), settings))
            << "parts " << parts;
      }
}

TEST_P(GridInvariance, ResidualsSendWhatTheirRelayoutsList) {
  auto const store = store_of_dataset(world_, graph_text);
  auto const settings = model_with_parts(15, 3);
  auto const plan = models::plan_network(store, settings);
  auto const operands = models::make_full_graph_operands<double>(grid_, store, plan, settings);
  auto listed = std::int64_t{0};
  for (auto const& residual : operands.residuals) {
    ASSERT_TRUE(residual.exists());
    if (residual.is_local) continue;
    for (auto const& relayout : {residual.forward, residual.backward})
      for (auto const& call : relayout->calls())
        listed += call.bytes;
  }
  models::GraphNetwork<double> network(
      grid_, settings, std::make_shared<models::NetworkParameters<double>>(grid_, plan, settings));
  network.rebind(operands);
  auto const exchanged = [&] { return grid_.group().ledger()[runtime::Operation::all_to_all].bytes; };
  auto const before = exchanged();

  runtime::PhaseTimes phases;
  network.forward({}, models::Pass::training, 1, phases);
  Kokkos::deep_copy(network.logits_gradient().storage(), 1.0);
  network.backward({}, phases);

  EXPECT_EQ(exchanged() - before, listed);
  if (tested_schedule == models::Schedule::rows) {
    EXPECT_EQ(listed, 0) << "input and output of a layer have one owner";
  }
}

/// The training loss of a network as it is, and its gradients.
std::vector<double> loss_and_gradients(models::GraphNetwork<double>& model, pmm::ProcessGrid const& grid,
                                       graph::GraphStore const& store) {
  auto loss = models::make_vertex_loss<double>(grid, store, model.plan().logits());
  runtime::PhaseTimes phases;
  auto const& logits = model.forward({}, models::Pass::training, 3, phases);
  std::vector<double> numbers{loss.loss_and_gradient({}, logits, model.logits_gradient())};
  model.backward({}, phases);
  for (auto const& parameter : model.parameters()) {
    auto const gradient = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.gradient());
    numbers.insert(numbers.end(), gradient.data(), gradient.data() + gradient.extent(0));
  }
  return numbers;
}

TEST_P(GridInvariance, ANetworkMovesBetweenGraphsOfOtherSizes) {
  for (auto const parts : {0, 15}) {
    auto const settings = model_with_parts(parts, 3);
    models::NetworkPlan plan;
    std::optional<models::GraphNetwork<double>> network;
    for (auto const* const size : {"60,edges=200", "203,edges=900", "41,edges=120"}) {
      auto const store = store_of_dataset(world_, std::string("sbm:features=13,classes=5,vertices=") + size);
      if (!network) {
        plan = models::plan_network(store, settings);
        network.emplace(grid_, settings,
                        std::make_shared<models::NetworkParameters<double>>(grid_, plan, settings));
      }
      auto const here = models::with_num_vertices(plan, store.facts().num_vertices);
      network->rebind(models::make_full_graph_operands<double>(grid_, store, here, settings));
      models::GraphNetwork<double> fresh(grid_, store, settings);

      EXPECT_THAT(
          loss_and_gradients(*network, grid_, store),
          ::testing::Pointwise(::testing::DoubleNear(rounding), loss_and_gradients(fresh, grid_, store)));
    }
  }
}

TEST_P(GridInvariance, AnEpochSendsTheBytesThatWerePredicted) {
  auto const store = store_of_dataset(world_, graph_text);
  for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first})
    for (auto const dropout : {0.0, 0.4})
      for (auto const trains_features : {false, true}) {
        auto settings = small_model();
        settings.order = order;
        settings.dropout = dropout;
        settings.trains_features = trains_features;
        models::GraphNetwork<double> model(grid_, store, settings);
        auto loss = models::make_vertex_loss<double>(grid_, store, model.plan().logits());
        models::Trainer<double> trainer(grid_, model, loss, short_training(2));

        auto const result = trainer.run([](runtime::EpochRecord const&) {});

        EXPECT_EQ(bytes_of_matrices(result), predicted_bytes<double>(grid_.shape(), model.plan(), settings));
      }
}

int num_ranks() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

INSTANTIATE_TEST_SUITE_P(AllGrids, GridInvariance, ::testing::ValuesIn(grids_3d(num_ranks())), GridName());

} // namespace
} // namespace orthant::testing
