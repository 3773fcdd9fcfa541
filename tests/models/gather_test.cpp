// SPDX-License-Identifier: Apache-2.0
//
// Training in the schedule rows with the rows that blocks touch, beside training with all rows: the same
// losses to rounding, and an epoch's calls as the list says, so no list of rows is sent in any epoch.

#include "models/plan/step_cases.hpp"
#include "models/training/trainer.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>
#include <set>

namespace orthant::testing {
namespace {

/// Those between owners that aggregate in another way each, and graphs of few neighbors.
std::vector<StepCase> cases() {
  std::set<std::string> const names{"plain",
                                    "8-bit wire",
                                    "directed",
                                    "all parts",
                                    "fewer vertices than ranks",
                                    "a pattern of features, projection, weights, one order",
                                    "several classes per vertex"};
  auto all = step_cases();
  std::erase_if(all, [&](StepCase const& c) {
    return c.settings.schedule != models::Schedule::rows ||
           !names.contains(c.name.substr(0, c.name.rfind(", between owners")));
  });
  auto sparse = all.front();
  for (auto const* const dataset : {"sbm:vertices=203,edges=200,features=13,classes=5,directed=1",
                                    "ring:vertices=101,features=8,classes=3"}) {
    sparse.name = sparse.dataset = dataset;
    all.push_back(sparse);
  }
  for (auto& the_case : all)
    the_case.settings.gather = pmm::Gather::needed;
  return all;
}

class GatherTest : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
};

TEST(Gather, CasesAreThere) {
  EXPECT_EQ(cases().size(), 12U);
}

TEST_P(GatherTest, LossesAreThoseOfWholeSlabs) {
  models::TrainSettings training;
  training.num_epochs = 2;
  training.eval_every = 0;
  for (auto const& the_case : cases()) {
    SCOPED_TRACE(the_case.name);
    auto settings = the_case.settings;
    settings.wire = settings.operand_format = runtime::Wire::native; // the others are for fp32
    auto const store = the_case.store(world_);

    auto const needed = train<double>(grid_, store, settings, training);
    settings.gather = pmm::Gather::all;
    auto const all = train<double>(grid_, store, settings, training);

    ASSERT_EQ(needed.size(), all.size());
    for (std::size_t epoch = 0; epoch < needed.size(); ++epoch)
      EXPECT_NEAR(needed[epoch].loss, all[epoch].loss, 1e-10) << "epoch " << epoch;
  }
}

TEST_P(GatherTest, AnEpochCallsWhatTheListSays) {
  for (auto const& the_case : cases()) {
    SCOPED_TRACE(the_case.name);
    models::GraphNetwork<float> const model(grid_, the_case.store(world_), the_case.settings);
    EXPECT_EQ(model.needed_rows()->over_c.has_value(), grid_.size(pmm::Axis::z) > 1);
    EXPECT_EQ(model.needed_rows()->over_a.has_value(), grid_.size(pmm::Axis::x) > 1);
    expect_listed_epoch<float>(grid_, the_case);
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, GatherTest, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
