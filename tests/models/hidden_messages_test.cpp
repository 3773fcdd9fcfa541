// SPDX-License-Identifier: Apache-2.0
//
// Training in the schedule rows whose messages travel while it multiplies, beside training that waits for
// them: the same bits wherever sums have one order.

#include "models/gnn/batches/mini_batch.hpp"
#include "models/models_fixture.hpp"
#include "support/grids.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

models::NetworkSettings network() {
  models::NetworkSettings settings;
  settings.schedule = models::Schedule::rows;
  settings.set_layers(3, 9);
  settings.norm = models::Norm::rms;
  settings.has_residuals = settings.trains_features = true;
  settings.dropout = 0.3;
  settings.seed = 7;
  return settings;
}

class HiddenMessages : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  template<class T>
  std::vector<double> numbers(graph::GraphStore const& store, models::NetworkSettings settings,
                              pmm::AxisSet hidden_axes) {
    settings.hidden_axes = hidden_axes;
    models::TrainSettings training;
    training.num_epochs = 2;
    training.eval_every = 0;
    std::vector<double> all;
    for (auto const& record : train<T>(grid_, store, settings, training)) {
      all.push_back(record.loss);
      all.insert(all.end(), record.grad_norms.begin(), record.grad_norms.end());
    }
    return all;
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
};

/// If all rows move, a reduce_scatter over three ranks or more adds numbers as the library likes; without it
/// they are added in the order of the ranks, as those of needed rows always are.
TEST_P(HiddenMessages, ChangeNoBitOfATraining) {
  for (auto const is_directed : {false, true}) {
    auto const store =
        store_of_dataset(world_, std::string("sbm:vertices=203,edges=500,features=13,classes=5") +
                                     (is_directed ? ",directed=1" : ""));
    auto settings = network();
    settings.order =
        is_directed ? models::ProductOrder::transform_first : models::ProductOrder::aggregate_first;
    auto const all = numbers<double>(store, settings, {});
    auto const all_hidden = numbers<double>(store, settings, pmm::group_axes);
    settings.gather = pmm::Gather::needed;
    auto const needed = numbers<double>(store, settings, {});
    ASSERT_GT(needed.front(), 0);
    // To the bit on a host. A device may choose another product of the same numbers.
    auto const are_those = [](std::vector<double> const& numbers) {
      return ::testing::Pointwise(::testing::DoubleNear(rounding), numbers);
    };
    EXPECT_THAT(numbers<double>(store, settings, pmm::group_axes), are_those(needed));
    EXPECT_THAT(all_hidden, are_those(needed));
    if (grid_.size(pmm::Axis::x) <= 2 && grid_.size(pmm::Axis::z) <= 2) {
      EXPECT_THAT(all_hidden, are_those(all));
    }
  }
}

TEST_P(HiddenMessages, ChangeNoBitOnA16BitWire) {
  if (!pmm::runs_on_host) GTEST_SKIP() << "a device may choose another product";
  auto const store = store_of_dataset(world_, "sbm:vertices=203,edges=500,features=13,classes=5");
  for (auto const gather : {pmm::Gather::all, pmm::Gather::needed}) {
    auto settings = network();
    settings.gather = gather;
    settings.wire = runtime::Wire::bf16;
    EXPECT_EQ(numbers<float>(store, settings, pmm::group_axes), numbers<float>(store, settings, {}));
  }
}

/// Some cells are empty on many ranks.
TEST_P(HiddenMessages, ChangeNoBitOfMiniBatches) {
  auto const store = store_of_dataset(world_, "sbm:vertices=203,edges=900,features=13,classes=5");
  auto const trained = [&](pmm::AxisSet hidden_axes) {
    auto settings = network();
    settings.trains_features = false;
    settings.wire = runtime::Wire::bf16; // sums have one order
    settings.hidden_axes = hidden_axes;
    models::TrainSettings training;
    training.num_epochs = 1;
    training.eval_every = 0;
    models::MiniBatchSettings batches;
    batches.batch_size = 21;
    models::MiniBatchNetwork<float> trainer(grid_, store, settings, training, batches);
    std::vector<double> losses;
    trainer.run([&](runtime::EpochRecord const& record) { losses.push_back(record.loss); });
    return losses;
  };
  EXPECT_EQ(trained(pmm::group_axes), trained({}));
}

INSTANTIATE_TEST_SUITE_P(Grids, HiddenMessages, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
