// SPDX-License-Identifier: Apache-2.0
//
// Training over the fp16 wire, whose smallest number is 2^-24: gradients of a mean over 10^9 vertices arrive.
#include "models/training/gradient_sum.hpp"

#include "models_fixture.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using runtime::Wire;

constexpr auto graph_text = "sbm:vertices=203,edges=900,features=13,classes=5";

class HalfWire : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  /// Gradients' norms of one step as one of a mean over num_counted vertices.
  std::vector<double> norms_of(Wire wire, std::int64_t num_counted, bool is_scaled) {
    models::NetworkSettings settings;
    settings.set_layers(3, 9);
    settings.dropout = 0;
    settings.wire = wire;
    models::GraphNetwork<float> network(grid_, store_, settings);
    auto loss = models::make_vertex_loss<float>(grid_, store_, network.plan().logits());
    models::ParameterUpdate<float> update(grid_, network.parameters(), {});
    runtime::DefaultExec const exec;
    runtime::PhaseTimes phases;
    auto const scale =
        is_scaled ? models::gradient_scale(wire, models::RowObjective<float>(loss), num_counted) : 1.0;

    auto const& logits = network.forward(exec, models::Pass::training, 1, phases);
    loss.loss_and_gradient(exec, logits, network.logits_gradient(), num_counted, update.numbers().loss(),
                           scale);
    network.backward(exec, phases);
    update.run(exec, {}, phases, scale);
    return update.finish(exec).norms;
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
  graph::GraphStore store_ = store_of_dataset(world_, graph_text);
};

// A sum on the wire is wrong by u = 2^-11 of its terms, a gradient of the first layer by six such sums,
// forward and backward, of terms that cancel in part.
constexpr auto tolerance = 32 * 0x1p-11;

TEST_P(HalfWire, GradientsOfAMeanOverABillionVerticesArrive) {
  constexpr std::int64_t many = 1'000'000'000;

  auto const expected = norms_of(Wire::native, many, true);
  auto const found = norms_of(Wire::fp16, many, true);
  auto const unscaled = norms_of(Wire::fp16, many, false);

  for (std::size_t l = 0; l < expected.size(); ++l)
    EXPECT_NEAR(found[l], expected[l], tolerance * expected[l]) << "layer " << l;
  if (world_.size() > 1) {
    EXPECT_LT(unscaled[0], 0.5 * expected[0]) << "the scale is needed";
  }
}

TEST_P(HalfWire, TrainsAsTheNativeWireDoes) {
  models::NetworkSettings model;
  model.set_layers(3, 9);
  model.dropout = 0;
  models::TrainSettings settings;
  settings.num_epochs = 5;
  settings.clip_norm = 0.05; // of the gradients as they are, whatever the scale
  auto const expected = train<float>(grid_, store_, model, settings);

  model.wire = Wire::fp16;
  auto const found = train<float>(grid_, store_, model, settings);

  for (std::size_t e = 0; e < expected.size(); ++e) {
    EXPECT_NEAR(found[e].loss, expected[e].loss, tolerance * expected[e].loss) << "epoch " << e + 1;
    for (std::size_t l = 0; l < expected[e].grad_norms.size(); ++l)
      EXPECT_NEAR(found[e].grad_norms[l], expected[e].grad_norms[l],
                  2 * tolerance * expected[e].grad_norms[l]);
  }
}

TEST(GradientScale, IsAPowerOfTwoForTheHalfWireAlone) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  pmm::ProcessGrid const grid(self, {1, 1, 1, 1});
  pmm::Placement const logits{{pmm::Axis::x, pmm::Axis::y}, {10, 3}};
  pmm::RowLoss<float> of_classes(grid, logits, pmm::LossKind::softmax);
  pmm::RowLoss<float> of_labels(grid, logits, pmm::LossKind::binary);
  models::RowObjective<float> const softmax(of_classes);
  models::RowObjective<float> const binary(of_labels);

  EXPECT_EQ(models::gradient_scale(Wire::fp16, softmax, 0), 1);
  EXPECT_EQ(models::gradient_scale(Wire::fp16, softmax, 1), 1);
  EXPECT_EQ(models::gradient_scale(Wire::fp16, softmax, 1023), 2);
  EXPECT_EQ(models::gradient_scale(Wire::fp16, softmax, 1'000'000'000), 0x1p21);
  EXPECT_EQ(models::gradient_scale(Wire::fp16, binary, 1023), 8);
  EXPECT_EQ(models::gradient_scale(Wire::native, softmax, 1023), 1);
  EXPECT_EQ(models::gradient_scale(Wire::bf16, softmax, 1023), 1);
}

INSTANTIATE_TEST_SUITE_P(Grids, HalfWire, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
