// SPDX-License-Identifier: Apache-2.0
//
// The end of a step: norms, clipping and update against serial sums on every grid; what the host is told; and
// epochs that a device replays.
#include "models/training/parameter_update.hpp"

#include "models_fixture.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

constexpr auto updated_graph = "sbm:vertices=103,edges=500,features=13,classes=5";

KOKKOS_INLINE_FUNCTION double gradient_at(std::int64_t p, std::int64_t i, std::int64_t j) {
  return static_cast<double>((7 * i + 3 * j + 5 * p) % 11 - 5);
}

struct BiasGradient {
  runtime::Vector<double> gradient;
  std::int64_t p;
  std::int64_t begin;
  KOKKOS_FUNCTION void operator()(std::int64_t j) const {
    gradient(static_cast<std::size_t>(j)) = gradient_at(p, 0, begin + j);
  }
};
struct MatrixGradient {
  std::int64_t p;
  KOKKOS_FUNCTION double operator()(std::int64_t i, std::int64_t j) const { return gradient_at(p, i, j); }
};

class UpdateTest : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
  runtime::DefaultExec exec_;

  /// gradient(i, j) := gradient_at(p, i, j). Returns the global squared norm.
  double set_gradient(models::Parameter<double> const& parameter, std::int64_t p) {
    auto const is_bias = parameter.is_vector();
    auto const num_rows = is_bias ? 1 : parameter.matrix.extents().rows;
    auto const num_columns = is_bias ? parameter.vector.length() : parameter.matrix.extents().columns;
    if (is_bias) {
      auto const gradient = parameter.vector_gradient.local();
      auto const begin = parameter.vector_gradient.range().begin;
      Kokkos::parallel_for(
          "orthant::testing::bias_gradient",
          Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec_, 0, parameter.vector.range().size()),
          BiasGradient{gradient, p, begin});
    } else {
      pmm::fill(exec_, parameter.matrix_gradient, MatrixGradient{p});
    }
    auto squared = 0.0;
    for (std::int64_t i = 0; i < num_rows; ++i)
      for (std::int64_t j = 0; j < num_columns; ++j)
        squared += gradient_at(p, i, j) * gradient_at(p, i, j);
    return squared;
  }
};

TEST_P(UpdateTest, NormsClippingAndStepEqualSerialOnes) {
  auto const store = store_of_dataset(world_, updated_graph);
  models::NetworkSettings model;
  model.set_layers(3, 9);
  models::TrainSettings settings;
  settings.optimizer.kind = models::OptimizerKind::sgd;
  settings.optimizer.momentum = 0;
  settings.optimizer.learning_rate = 0.5;
  // No clipping, clipping to less than there is, and to more.
  for (auto const& [clip_norm, nominal_count, count] :
       {std::tuple(0.0, 0, 0.0), std::tuple(3.0, 0, 0.0), std::tuple(1e6, 0, 0.0), std::tuple(0.0, 6, 4.0),
        std::tuple(3.0, 6, 4.0), std::tuple(3.0, 6, 0.0)}) {
    SCOPED_TRACE(::testing::Message() << "clip " << clip_norm << ", " << nominal_count << " over " << count);
    models::NetworkParameters<double> parameters(grid_, models::plan_network(store, model), model);
    settings.clip_norm = clip_norm > 0 ? std::optional(clip_norm) : std::nullopt;
    models::ParameterUpdate<double> update(grid_, parameters.list(), settings);
    auto const factor = nominal_count == 0 ? 1.0 : count == 0 ? 0.0 : nominal_count / count;
    auto squared = 0.0;
    std::vector<double> norms;
    std::vector<std::vector<double>> before;
    for (std::size_t p = 0; p < parameters.list().size(); ++p) {
      auto const& parameter = parameters.list()[p];
      auto const of_parameter = set_gradient(parameter, static_cast<std::int64_t>(p));
      squared += factor * factor * of_parameter;
      if (!parameter.is_vector()) norms.push_back(factor * std::sqrt(of_parameter));
      auto const values = host_copy(parameter.value());
      before.emplace_back(values.data(), values.data() + values.extent(0));
    }
    for (auto const& [k, weight, of_batch] : {std::tuple(0, 8.0, count - 1), std::tuple(1, 4.0, 1.0)}) {
      Kokkos::deep_copy(update.numbers().loss_and_count(), of_batch);
      Kokkos::deep_copy(update.numbers().loss(), 0.25);
      update.numbers().add_to_sums(exec_, k, weight);
    }

    runtime::PhaseTimes phases;
    update.run(exec_, nominal_count == 0 ? std::nullopt : std::optional<std::int64_t>(nominal_count), phases);
    auto const result = update.finish(exec_);

    EXPECT_EQ(result.loss, 0.25);
    EXPECT_EQ(result.sum, 3);
    EXPECT_EQ(result.count, count);
    ASSERT_EQ(result.norms.size(), norms.size());
    for (std::size_t n = 0; n < norms.size(); ++n)
      EXPECT_NEAR(result.norms[n], norms[n], 1e-12 * norms[n]);
    auto const clip = clip_norm > 0 ? std::min(1.0, clip_norm / (std::sqrt(squared) + 1e-6)) : 1.0;
    for (std::size_t p = 0; p < before.size(); ++p) {
      auto const value = host_copy(parameters.list()[p].value());
      auto const gradient = host_copy(parameters.list()[p].gradient());
      for (std::size_t i = 0; i < value.extent(0); ++i)
        EXPECT_NEAR(value(i), before[p][i] - 0.5 * factor * clip * gradient(i), 1e-13) << p << " " << i;
    }
  }
}

TEST_P(UpdateTest, TheFirstLayerThatIsNotFiniteIsNamed) {
  auto const store = store_of_dataset(world_, updated_graph);
  models::NetworkSettings model;
  model.set_layers(3, 9);
  model.has_head = true;
  models::TrainSettings settings;
  settings.num_epochs = 3;
  for (auto const optimizer : {models::OptimizerKind::adam, models::OptimizerKind::sgd})
    for (std::int64_t layer = 0; layer < 3; ++layer) {
      settings.optimizer.kind = optimizer;
      models::GraphNetwork<double> network(grid_, store, model);
      auto loss = models::make_vertex_loss<double>(grid_, store, network.plan().logits());
      models::Trainer<double> trainer(grid_, network, loss, settings);
      static_cast<void>(trainer.train_epoch(1));
      for (auto const& parameter : network.parameters())
        if (parameter.layer == layer && !parameter.is_vector())
          Kokkos::deep_copy(parameter.value(), std::numeric_limits<double>::infinity());

      try {
        static_cast<void>(trainer.train_epoch(2));
        ADD_FAILURE() << "an infinity in layer " << layer << " went unnoticed";
      } catch (runtime::Error const& error) {
        EXPECT_EQ(error.exit_status(), runtime::exit_internal);
        EXPECT_NE(std::string(error.what())
                      .find(fmt::format("the output of layer {} is the first that is not finite", layer)),
                  std::string::npos)
            << error.what();
        EXPECT_NE(std::string(error.what()).find("epoch 2: the loss is nan"), std::string::npos)
            << error.what();
      }
    }
}

/// The same network, trained from the same weights with and without. Kernels are chosen by measurement, once
/// a network, so that both trainings run the same.
TEST(DeviceGraph, AReplayedEpochTrainsLikeAPlainOne) {
  if (runtime::DeviceQueue().native() == nullptr) GTEST_SKIP() << "needs a device";
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  pmm::ProcessGrid const grid(self, {1, 1, 1, 1});
  auto const store = store_of_dataset(self, updated_graph);
  for (auto const parts : {0, 1, 2})
    for (auto const clip_norm : {0.0, 0.1}) {
      SCOPED_TRACE(::testing::Message() << "parts " << parts << ", clip " << clip_norm);
      models::NetworkSettings model;
      model.norm = parts > 0 ? models::Norm::rms : models::Norm::none;
      model.has_residuals = parts > 0;
      model.projected_width = parts > 1 ? 9 : 0;
      model.has_head = parts > 1;
      model.set_layers(3, 9);
      model.dropout = 0;
      models::TrainSettings settings;
      settings.num_epochs = 8;
      settings.eval_every = 3;
      settings.optimizer.schedule = {models::RateDecay::cosine, 3, 1e-3};
      if (clip_norm > 0) settings.clip_norm = clip_norm;
      models::GraphNetwork<double> network(grid, store, model);
      auto loss = models::make_vertex_loss<double>(grid, store, network.plan().logits());
      std::vector<runtime::Vector<double>> weights;
      for (auto const& parameter : network.parameters()) {
        weights.emplace_back("weights", parameter.value().extent(0));
        Kokkos::deep_copy(weights.back(), parameter.value());
      }
      auto const train = [&](bool uses_graph) {
        for (std::size_t p = 0; p < weights.size(); ++p)
          Kokkos::deep_copy(network.parameters()[p].value(), weights[p]);
        settings.uses_device_graph = uses_graph;
        models::Trainer<double> trainer(grid, network, loss, settings);
        std::vector<runtime::EpochRecord> records;
        trainer.run([&](runtime::EpochRecord const& record) { records.push_back(record); });
        return records;
      };

      auto const plain = train(false);
      auto const replayed = train(true);

      EXPECT_EQ(plain[2].learning_rate, 0.01);
      EXPECT_EQ(plain.back().learning_rate, 1e-3);
      for (std::size_t e = 0; e < plain.size(); ++e) {
        EXPECT_EQ(replayed[e].phases.seconds("step") > 0, e > 0) << "epoch " << e + 1 << " is a replayed one";
        EXPECT_EQ(replayed[e].learning_rate, plain[e].learning_rate)
            << "the rate is not recorded with the step";
        EXPECT_NEAR(replayed[e].loss, plain[e].loss, 1e-12) << "epoch " << e + 1;
        EXPECT_EQ(replayed[e].score("val_acc"), plain[e].score("val_acc"));
        for (std::size_t l = 0; l < plain[e].grad_norms.size(); ++l)
          EXPECT_NEAR(replayed[e].grad_norms[l], plain[e].grad_norms[l], 1e-11);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Grids, UpdateTest, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
