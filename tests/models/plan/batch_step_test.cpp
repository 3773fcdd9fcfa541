// SPDX-License-Identifier: Apache-2.0
//
// The lists of mini-batch steps and of an evaluation beside a real epoch, on grids of one and of two data
// groups.
#include "models/gnn/batches/batch_plan.hpp"

#include "models/gnn/batches/mini_batch.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "models/plan/relation_cases.hpp"
#include "pmm/rows/norms.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

class BatchStep : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  BatchStep()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {}

  /// An epoch of batches, an evaluation of the full graph, and the last look at the parameters.
  template<class T>
  pmm::StepPlan listed(graph::GraphStore const& store, models::NetworkSettings const& settings,
                       sampling::Sampler const& sampler, models::MiniBatchSettings const& batches,
                       models::OptimizerSettings const& optimizer) {
    auto const plan = models::plan_network(store, settings);
    auto const full = models::make_full_graph_operands<T>(grid_, store, plan, settings);
    models::BatchMaker<T> source(grid_, store, sampler, plan, full.features,
                                 models::read_vertex_targets(grid_, store, plan.logits()), settings.gather);
    auto list = step_of<T>(grid_);
    for (std::int64_t s = 0; s < sampler.num_steps(); ++s) {
      std::vector<models::PreparedBatch<T>> sampled(static_cast<std::size_t>(batches.num_accumulated));
      std::vector<models::NetworkOperands<T>> operands;
      for (std::size_t k = 0; k < sampled.size(); ++k) {
        auto const group = grid_.coordinate(pmm::Axis::data);
        source.fill(1, sampler.batch_of(s, group, static_cast<std::int64_t>(k)), sampled[k]);
        operands.push_back(source.operands(sampled[k]));
      }
      std::vector<models::PlannedBatch> planned;
      for (auto const& of_batch : operands) {
        auto traits = first_pass_on(store, settings, of_batch);
        auto const shared = models::traits_of_batch(store.facts(), grid_.shape(), grid_.coordinates(),
                                                    of_batch.plan, settings, sampler.has_symmetric_factors());
        traits.dropped = shared.dropped;
        traits.num_dropped_ways = shared.num_dropped_ways;
        planned.push_back({of_batch.plan, std::move(traits)});
      }
      plan_batch_step(list, planned, settings, optimizer);
    }
    auto evaluated = first_pass_on(store, settings, full);
    evaluated.dropped.clear(); // evaluations drop no edges
    auto whole = plan;
    whole.drops_edges = false;
    plan_evaluation(list, whole, settings, evaluated);
    pmm::plan_squared_norms(list, updated_lengths_of(list, parameters_of(plan, settings)).normed);
    return list;
  }

  template<class T>
  models::NetworkEpochTraits first_pass_on(graph::GraphStore const& store,
                                           models::NetworkSettings const& settings,
                                           models::NetworkOperands<T> const& operands) {
    auto traits = traits_of_operands(store, settings, operands, grid_);
    traits.keeps_first_aggregate = false;
    return traits;
  }

  /// Trains an epoch, which must do what the list says. Graphs smaller than a batch are left out.
  void expect_listed_epoch(StepCase const& the_case, pmm::Gather gather,
                           runtime::Wire gradient_wire = runtime::Wire::native) {
    SCOPED_TRACE(the_case.name);
    models::MiniBatchSettings batches;
    batches.batch_size = 41;
    auto settings = the_case.settings;
    settings.gather = gather;
    auto const store = the_case.store(world_);
    if (store.facts().num_vertices < batches.batch_size) return;
    batches.num_accumulated = settings.dropout > 0 ? 2 : 1;
    models::TrainSettings training;
    training.num_epochs = 1;
    training.eval_every = 1;
    training.loss = the_case.loss();
    training.optimizer.gradient_wire = gradient_wire;
    models::MiniBatchNetwork<float> trainer(grid_, store, settings, training, batches);
    auto const list = listed<float>(store, settings, trainer.sampler(), batches, training.optimizer);
    CountedWork const counted(grid_);

    trainer.run([](runtime::EpochRecord const&) {});

    counted.expect_listed(list, the_case.has_dense_products());
  }

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

TEST_P(BatchStep, ListsWhatAnEpochOfBatchesCommunicatesAndMultiplies) {
  for (auto const& the_case : step_cases())
    expect_listed_epoch(the_case, pmm::Gather::all);
  for (auto const& the_case : relation_cases())
    expect_listed_epoch(the_case, pmm::Gather::all);
}

// Scales and filling bytes included, also of pieces that other ranks do not have.
TEST_P(BatchStep, ListsEncodedSumsOfGradients) {
  for (auto const& the_case : step_cases())
    if (the_case.settings.trains_features)
      for (auto const wire : {runtime::Wire::bf16, runtime::Wire::int8})
        expect_listed_epoch(the_case, pmm::Gather::all, wire);
}

TEST_P(BatchStep, ListsTheRowsThatOwnersNeed) {
  for (auto const& the_case : step_cases())
    if (the_case.settings.schedule == models::Schedule::rows && !reads_edges(the_case.settings))
      for (auto const gather : {pmm::Gather::needed, pmm::Gather::automatic})
        expect_listed_epoch(the_case, gather);
}

// With one stratum of vertices, and with two, whose columns have two scales.
TEST_P(BatchStep, NeededRowsGiveTheLossesOfAllRows) {
  models::TrainSettings training;
  training.num_epochs = 2;
  training.eval_every = 0;
  models::MiniBatchSettings batches;
  batches.batch_size = 37;
  for (auto const& the_case : step_cases()) {
    auto settings = the_case.settings;
    if (settings.schedule != models::Schedule::rows || reads_edges(settings)) continue;
    SCOPED_TRACE(the_case.name);
    settings.wire = settings.operand_format = runtime::Wire::native; // the others are for fp32
    auto const store = the_case.store(world_);
    if (store.facts().num_vertices < batches.batch_size) continue;
    for (auto const train_fraction : {std::optional<double>(), std::optional(0.5)}) {
      batches.train_fraction = train_fraction;
      auto const losses = [&](pmm::Gather gather) {
        settings.gather = gather;
        models::MiniBatchNetwork<double> trainer(grid_, store, settings, training, batches);
        trainer.run([](runtime::EpochRecord const&) {});
        return trainer.step_losses();
      };

      auto const all = losses(pmm::Gather::all);
      auto const needed = losses(pmm::Gather::needed);

      ASSERT_EQ(needed.size(), all.size());
      for (std::size_t step = 0; step < all.size(); ++step)
        EXPECT_NEAR(needed[step], all[step], 1e-10 * std::max(1.0, std::abs(all[step]))) << "step " << step;
    }
  }
}

/// Every grid of one and of two data groups.
std::vector<std::array<int, 4>> batch_grids(int num_ranks) {
  auto grids = grids_4d(num_ranks);
  std::erase_if(grids, [](std::array<int, 4> const& shape) { return shape[0] > 2; });
  return grids;
}

INSTANTIATE_TEST_SUITE_P(AllGrids, BatchStep, ::testing::ValuesIn(batch_grids(world_size())), GridName());

} // namespace
} // namespace orthant::testing
