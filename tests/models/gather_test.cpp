// SPDX-License-Identifier: Apache-2.0
//
// Training in the schedule rows with the rows that blocks touch, beside training with all rows: the same
// losses to rounding, an epoch's calls as the list says, and so no list of rows in any epoch.

#include "models/plan/gcn_step.hpp"
#include "models_fixture.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

struct Case {
  std::string name;
  std::string graph;
  models::GcnSettings settings;
};

std::vector<Case> cases() {
  models::GcnSettings plain;
  plain.schedule = models::Schedule::rows;
  plain.gather = pmm::Gather::needed;
  plain.dropout = 0;
  plain.set_layers(3, 9);
  std::string const sparse = "sbm:vertices=203,edges=300,features=13,classes=5";
  std::vector<Case> all{{"symmetric", sparse, plain},
                        {"directed", sparse + ",directed=1", plain},
                        {"ring", "ring:vertices=101,features=8,classes=3", plain},
                        {"fewer vertices than ranks", "ring:vertices=5,features=2,classes=2", plain}};
  auto settings = plain;
  settings.dropout = 0.4;
  settings.norm = models::Norm::rms;
  settings.has_residuals = settings.has_head = settings.trains_features = true;
  settings.order = models::ProductOrder::transform_first;
  settings.set_layers(3, 9);
  all.push_back({"all parts", sparse + ",directed=1", settings});
  return all;
}

class GatherTest : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
};

TEST_P(GatherTest, LossesAreThoseOfWholeSlabs) {
  models::TrainSettings training;
  training.num_epochs = 5;
  training.eval_every = 0;
  for (auto const& [name, graph, settings] : cases()) {
    SCOPED_TRACE(name);
    auto const store = store_of_dataset(world_, graph);
    auto all_rows = settings;
    all_rows.gather = pmm::Gather::all;

    auto const needed = train<double>(grid_, store, settings, training);
    auto const all = train<double>(grid_, store, all_rows, training);

    ASSERT_EQ(needed.size(), 5U);
    for (std::size_t epoch = 0; epoch < needed.size(); ++epoch)
      EXPECT_NEAR(needed[epoch].loss, all[epoch].loss, 1e-10) << "epoch " << epoch;
  }
}

TEST_P(GatherTest, AnEpochCallsWhatTheListSays) {
  for (auto const& [name, graph, settings] : cases()) {
    SCOPED_TRACE(name);
    auto const store = store_of_dataset(world_, graph);
    models::Gcn<float> model(grid_, store, settings);
    auto loss = models::make_vertex_loss<float>(grid_, store, model.plan().logits());
    models::FullGraphTrainer<float> trainer(grid_, model, loss, {});
    static_cast<void>(trainer.train_epoch(1));
    auto const& needed = *model.needed_rows();
    EXPECT_EQ(needed.over_c.has_value(), grid_.size(pmm::Axis::z) > 1);
    EXPECT_EQ(needed.over_a.has_value(), grid_.size(pmm::Axis::x) > 1);
    auto traits = models::traits_of(store.facts(), grid_.shape(), model.plan(), settings);
    traits.needed = needed.counts();
    auto step = step_of<float>(grid_);
    plan_epoch(step, model.plan(), settings, traits);
    clear_ledgers(grid_);

    static_cast<void>(trainer.train_epoch(2));

    EXPECT_EQ(counted_calls(grid_), planned_calls(step));
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, GatherTest, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
