// SPDX-License-Identifier: Apache-2.0
//
// Training with activations and operands in 16 bits: the losses and gradients of fp64 to the bound of the format, on every grid
// and in both schedules, in mini-batches, pruned and with all parts; and gradients of a mean over many vertices.
#include "models/gnn/batches/mini_batch.hpp"
#include "models/training/gradient_sum.hpp"

#include "models_fixture.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using runtime::Wire;

constexpr auto graph_text = "sbm:vertices=203,edges=900,features=13,classes=5";

class OperandFormat : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  static models::NetworkSettings settings_of(models::Schedule schedule, Wire format) {
    models::NetworkSettings settings;
    settings.set_layers(3, 9);
    settings.dropout = 0.3;
    settings.schedule = schedule;
    settings.operand_format = format;
    return settings;
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
  graph::GraphStore store_ = store_of_dataset(world_, graph_text);
};

constexpr double unit_of(Wire format) {
  return format == Wire::bf16 ? 0x1p-8 : 0x1p-11;
}

// Each product rounds its result by u of it, three aggregations and three transforms forward, and reads a weight that is
// wrong by u / 2. Rows of A^ are averages with weights of sum about 1, so an activation is wrong by a few u / 2 of its
// neighbours' size in each layer. Gradients of the first layer have passed ten roundings, of terms that cancel in part.
constexpr double loss_slack = 8, gradient_slack = 32;

TEST_P(OperandFormat, LossesAndGradientsAreThoseOfFp64ToTheBound) {
  models::TrainSettings training;
  training.num_epochs = 4;
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first}) {
      auto settings = settings_of(schedule, Wire::native);
      settings.order = order;
      auto const expected = train<double>(grid_, store_, settings, training);
      for (auto const format : {Wire::bf16, Wire::fp16}) {
        settings.operand_format = format;

        auto const found = train<float>(grid_, store_, settings, training);

        auto const u = unit_of(format);
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t e = 0; e < expected.size(); ++e) {
          EXPECT_NEAR(found[e].loss, expected[e].loss, loss_slack * u * expected[e].loss)
              << models::name_of(schedule) << ", epoch " << e + 1;
          EXPECT_NE(static_cast<float>(found[e].loss), static_cast<float>(expected[e].loss))
              << "nothing was rounded";
          for (std::size_t l = 0; l < expected[e].grad_norms.size(); ++l)
            EXPECT_NEAR(found[e].grad_norms[l], expected[e].grad_norms[l],
                        gradient_slack * u * expected[e].grad_norms[l])
                << models::name_of(schedule) << ", epoch " << e + 1 << ", layer " << l;
        }
      }
    }
}

// dQ and dF of the only layer are there at once.
TEST_P(OperandFormat, OneLayerTrainsItsFeatures) {
  models::TrainSettings training;
  training.num_epochs = 4;
  for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first}) {
    auto settings = settings_of(models::Schedule::rows, Wire::native);
    settings.set_layers(1, 9);
    settings.dropout = 0;
    settings.order = order;
    settings.trains_features = true;
    auto const expected = train<double>(grid_, store_, settings, training);
    for (auto const format : {Wire::bf16, Wire::fp16}) {
      settings.operand_format = format;

      auto const found = train<float>(grid_, store_, settings, training);

      for (std::size_t e = 0; e < expected.size(); ++e) {
        EXPECT_NEAR(found[e].loss, expected[e].loss, loss_slack * unit_of(format) * expected[e].loss);
        for (std::size_t l = 0; l < expected[e].grad_norms.size(); ++l)
          EXPECT_NEAR(found[e].grad_norms[l], expected[e].grad_norms[l],
                      gradient_slack * unit_of(format) * expected[e].grad_norms[l])
              << "epoch " << e + 1 << ", parameter " << l;
      }
    }
  }
}

// Operands are rounded element by element, wherever they lie. On two grids they are equal but for the rounding of fp32
// sums, which now and then decides between two neighbours in 16 bits.
TEST_P(OperandFormat, TheGridChangesTheLossWithinTheBound) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  pmm::ProcessGrid const alone(self, {1, 1, 1, 1});
  auto const own_store = store_of_dataset(self, graph_text);
  models::TrainSettings training;
  training.num_epochs = 4;
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (auto const format : {Wire::bf16, Wire::fp16})
      for (auto const has_parts : {false, true}) {
        auto settings = settings_of(schedule, format);
        if (has_parts) {
          settings.norm = models::Norm::rms;
          settings.has_residuals = settings.has_head = settings.trains_features = true;
          settings.projected_width = 9;
          settings.set_layers(3, 9);
        }
        auto const expected = train<float>(alone, own_store, settings, training);

        auto const found = train<float>(grid_, store_, settings, training);

        for (std::size_t e = 0; e < expected.size(); ++e)
          EXPECT_NEAR(found[e].loss, expected[e].loss, loss_slack * unit_of(format) * expected[e].loss)
              << models::name_of(schedule) << ", parts " << has_parts << ", epoch " << e + 1;
      }
}

// Two more roundings in each layer, of the normalized and of the activated numbers.
TEST_P(OperandFormat, EveryNormAndActivationKeepsTheBound) {
  models::TrainSettings training;
  training.num_epochs = 4;
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (auto const& [norm, activation] : {std::pair(models::Norm::none, models::Activation::silu),
                                           {models::Norm::rms, models::Activation::tanh},
                                           {models::Norm::layer, models::Activation::relu},
                                           {models::Norm::batch, models::Activation::gelu}}) {
      auto settings = settings_of(schedule, Wire::native);
      settings.norm = norm;
      settings.activation = activation;
      settings.has_residuals = norm == models::Norm::rms;
      auto const expected = train<double>(grid_, store_, settings, training);
      for (auto const format : {Wire::bf16, Wire::fp16}) {
        settings.operand_format = format;

        auto const found = train<float>(grid_, store_, settings, training);

        for (std::size_t e = 0; e < expected.size(); ++e)
          EXPECT_NEAR(found[e].loss, expected[e].loss, loss_slack * unit_of(format) * expected[e].loss)
              << name_of(norm) << ", " << name_of(activation) << ", epoch " << e + 1;
      }
    }
}

TEST_P(OperandFormat, TrainingRepeatsToTheBitAndReachesTheAccuracyOfFp32) {
  if (world_.size() > 2) GTEST_SKIP() << "MPI may add more than two numbers in any order";
  auto const karate = store_of_dataset(world_, "karate");
  models::TrainSettings training;
  training.num_epochs = training.eval_every = 60;
  training.optimizer.learning_rate = 0.02;
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows}) {
    auto settings = settings_of(schedule, Wire::native);
    settings.dropout = 0;
    auto const expected = train<float>(grid_, karate, settings, training).back();
    for (auto const format : {Wire::bf16, Wire::fp16}) {
      settings.operand_format = format;

      auto const found = train<float>(grid_, karate, settings, training).back();
      auto const again = train<float>(grid_, karate, settings, training).back();

      EXPECT_EQ(found.loss, again.loss);
      EXPECT_EQ(found.grad_norms, again.grad_norms);
      for (auto const* const name : {"train_acc", "val_acc", "test_acc"}) {
        ASSERT_TRUE(expected.score(name).has_value()) << name;
        EXPECT_NEAR(*found.score(name), *expected.score(name), 2.01 / 16) << name; // two of 16 vertices
      }
    }
  }
}

TEST_P(OperandFormat, MiniBatchesTrainAsInFp64) {
  models::TrainSettings training;
  training.num_epochs = 2;
  training.eval_every = 0;
  models::MiniBatchSettings batches;
  batches.batch_size = 53;
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows}) {
    auto settings = settings_of(schedule, Wire::native);
    models::MiniBatchNetwork<double> exact(grid_, store_, settings, training, batches);
    exact.run([](runtime::EpochRecord const&) {});
    for (auto const format : {Wire::bf16, Wire::fp16}) {
      settings.operand_format = format;
      models::MiniBatchNetwork<float> rounded(grid_, store_, settings, training, batches);

      rounded.run([](runtime::EpochRecord const&) {});

      auto const expected = exact.step_losses();
      auto const found = rounded.step_losses();
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t s = 0; s < expected.size(); ++s)
        EXPECT_NEAR(found[s], expected[s], loss_slack * unit_of(format) * expected[s]) << "step " << s;
    }
  }
}

// Steps 1 and 2 carry the rounded numbers as they are. Along z alone there are no others: a wire of the same format
// changes no bit. (The graph is symmetric: backward, too, rows are gathered over z.)
TEST_P(OperandFormat, AWireOfTheSameFormatChangesNoGather) {
  if (grid_.size(pmm::Axis::x) > 1 || grid_.size(pmm::Axis::y) > 1)
    GTEST_SKIP() << "steps 4 and 5 are rounded by the wire";
  models::TrainSettings training;
  training.num_epochs = 3;
  auto settings = settings_of(models::Schedule::rows, Wire::bf16);
  for (auto const gather : {pmm::Gather::all, pmm::Gather::needed}) {
    settings.gather = gather;
    settings.wire = Wire::native;
    auto const expected = train<float>(grid_, store_, settings, training);
    settings.wire = Wire::bf16;

    auto const found = train<float>(grid_, store_, settings, training);

    for (std::size_t e = 0; e < expected.size(); ++e) {
      EXPECT_EQ(found[e].loss, expected[e].loss) << "epoch " << e + 1;
      EXPECT_EQ(found[e].sent_bytes, expected[e].sent_bytes);
    }
  }
}

TEST_P(OperandFormat, GradientsOfAMeanOverABillionVerticesArriveInFp16) {
  constexpr std::int64_t many = 1'000'000'000;
  auto const norms_of = [&](Wire format, bool is_scaled) {
    auto settings = settings_of(models::Schedule::rows, format);
    settings.dropout = 0;
    models::GraphNetwork<float> network(grid_, store_, settings);
    auto loss = models::make_vertex_loss<float>(grid_, store_, network.plan().logits());
    models::ParameterUpdate<float> update(grid_, network.parameters(), {});
    runtime::DefaultExec const exec;
    runtime::PhaseTimes phases;
    auto const scale = is_scaled ? models::gradient_scale(network.narrowest_format(),
                                                          models::RowObjective<float>(loss), many)
                                 : 1.0;
    auto const& logits = network.forward(exec, models::Pass::training, 1, phases);
    loss.loss_and_gradient(exec, logits, network.logits_gradient(), many, update.numbers().loss(), scale);
    network.backward(exec, phases);
    update.run(exec, {}, phases, scale);
    return update.finish(exec).norms;
  };

  auto const expected = norms_of(Wire::native, true);
  auto const found = norms_of(Wire::fp16, true);
  auto const unscaled = norms_of(Wire::fp16, false);

  for (std::size_t l = 0; l < expected.size(); ++l)
    EXPECT_NEAR(found[l], expected[l], gradient_slack * 0x1p-11 * expected[l]) << "layer " << l;
  EXPECT_LT(unscaled[0], 0.5 * expected[0]) << "the scale is needed";
}

INSTANTIATE_TEST_SUITE_P(Grids, OperandFormat, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
