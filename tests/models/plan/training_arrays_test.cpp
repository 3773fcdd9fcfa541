// SPDX-License-Identifier: Apache-2.0
//
// The list of arrays beside those that a training allocates, label by label, on every grid.

#include "models/gnn/network/memory_estimate.hpp"
#include "models/plan/relation_cases.hpp"
#include "models/plan/step_cases.hpp"
#include "support/grids.hpp"
#include "support/live_arrays.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using pmm::Lifetime;

class TrainingArrays : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  TrainingArrays()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}) {}

  void SetUp() override {
    if (!pmm::runs_on_host)
      GTEST_SKIP() << "a device's libraries and sparse kernels have arrays of their own";
  }

  template<class T>
  pmm::StepPlan listed(graph::GraphStore const& store, models::NetworkSettings const& settings,
                       models::OptimizerSettings const& optimizer) {
    auto const plan = models::plan_network(store, settings);
    auto const operands = models::make_full_graph_operands<T>(grid_, store, plan, settings);
    auto step = step_of<T>(grid_);
    plan_full_graph_arrays(step, store.facts(), plan, settings,
                           traits_of_operands(store, settings, operands, grid_), optimizer);
    return step;
  }

  template<class T>
  void expect_listed(StepCase const& the_case, models::OptimizerKind optimizer) {
    auto const store = the_case.store(world_);
    auto const& settings = the_case.settings;
    models::TrainSettings training;
    training.optimizer.kind = optimizer;
    auto const step = listed<T>(store, settings, training.optimizer);
    LiveArrays const live;

    models::GraphNetwork<T> model(grid_, store, settings);
    auto loss = models::make_vertex_loss<T>(grid_, store, model.plan().logits(), the_case.loss());
    models::Trainer<T> trainer(grid_, model, loss, training);
    EXPECT_EQ(live.by_label(), live.planned(step, {Lifetime::training, Lifetime::first_step}));

    for (std::int64_t epoch = 1; epoch <= 2; ++epoch)
      static_cast<void>(trainer.train_epoch(epoch));
    static_cast<void>(trainer.evaluate());
    EXPECT_EQ(live.by_label(), live.planned(step, {Lifetime::training}));
  }

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

TEST_P(TrainingArrays, AreThoseThatAreListed) {
  for (auto const& the_case : step_cases()) {
    SCOPED_TRACE(the_case.name);
    expect_listed<float>(the_case, models::OptimizerKind::adam);
    auto const can_be_double = the_case.settings.operand_format == runtime::Wire::native;
    if (!the_case.settings.has_residuals || !can_be_double) continue;
    expect_listed<double>(the_case, models::OptimizerKind::sgd);
  }
}

TEST_P(TrainingArrays, OfGraphsWithRelationsAreThoseThatAreListed) {
  for (auto const& the_case : relation_cases()) {
    SCOPED_TRACE(the_case.name);
    expect_listed<float>(the_case, models::OptimizerKind::adam);
  }
}

TEST(LiveArraysOfKokkos, ShowAnArrayThatIsNotListed) {
  if (!pmm::runs_on_host) GTEST_SKIP() << "as above";
  LiveArrays const live;
  runtime::Vector<float> const unknown("orthant::testing::unknown", 5);
  runtime::Vector<float> const empty("orthant::testing::none", 0);
  pmm::StepPlan step({}, {}, sizeof(float));
  step.add_array("orthant::testing::listed", 20);

  EXPECT_EQ(live.by_label(), (ArraysByLabel{{"orthant::testing::unknown", {24}}})); // whole words
  EXPECT_EQ(live.planned(step, {Lifetime::training}), (ArraysByLabel{{"orthant::testing::listed", {24}}}));
}

int ranks_of_world() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

INSTANTIATE_TEST_SUITE_P(AllGrids, TrainingArrays, ::testing::ValuesIn(grids_3d(ranks_of_world())),
                         GridName());

} // namespace
} // namespace orthant::testing
