// SPDX-License-Identifier: Apache-2.0
//
// What is predicted of mini-batch training beside the ledgers of real epochs, on every grid with data groups: in the mean, and
// of the very batches that are drawn.
#include "models/gnn/batches/batch_plan.hpp"

#include "models/gnn/batches/mini_batch.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "models/plan/graph_facts.hpp"
#include "models/plan/relation_cases.hpp"
#include "pmm/rows/norms.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using models::NetworkSettings;
using pmm::Gather;

/// Cases that together have every kind of message.
bool has_other_messages(std::string const& name) {
  for (auto const* const part : {"dropout", "all parts", "a pattern of features", "sage", "gin", "appnp",
                                 "gcnii", "gat", "batch norm"})
    if (name.starts_with(part) && !name.ends_with("hidden")) return true;
  return false;
}

class BatchCost : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  BatchCost()
      : world_(MPI_COMM_WORLD, "world"),
        self_(MPI_COMM_SELF, "self"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {}

  /// Trains an epoch, and sets the ledgers to what it did.
  runtime::EpochRecord train(graph::GraphStore const& store, NetworkSettings const& settings,
                             models::MiniBatchSettings const& batches) {
    models::TrainSettings training;
    training.num_epochs = 1;
    training.eval_every = 0;
    models::MiniBatchNetwork<float> trainer(grid_, store, settings, training, batches);
    clear_ledgers(grid_);
    runtime::EpochRecord epoch;
    trainer.run([&](runtime::EpochRecord const& record) { epoch = record; });
    return epoch;
  }

  /// The last look at the parameters, which no epoch's record counts.
  void plan_end(pmm::StepPlan& list, graph::GraphStore const& store, NetworkSettings const& settings) {
    auto const plan = models::plan_network(store, settings);
    pmm::plan_squared_norms(list, updated_lengths_of(list, parameters_of(plan, settings)).normed);
  }

  void expect_exact(StepCase const& the_case, Gather gather) {
    SCOPED_TRACE(the_case.name);
    auto settings = the_case.settings;
    settings.gather = gather;
    models::MiniBatchSettings batches;
    batches.batch_size = 41;
    batches.num_accumulated = settings.dropout > 0 ? 2 : 1;
    auto const store = the_case.store(world_);
    if (store.facts().num_vertices < batches.batch_size * grid_.size(pmm::Axis::data)) return;
    auto const sampler = models::make_sampler(grid_, store, batches, settings.seed);
    auto const plan = models::plan_network(store, settings);
    models::SampledBatch batch(self_, store, *sampler, models::SampledBatch::needs_edges(plan, settings));
    auto list = step_of<float>(grid_);
    for (std::int64_t s = 0; s < sampler->num_steps(); ++s) {
      std::vector<models::PlannedBatch> planned;
      for (std::int64_t k = 0; k < batches.num_accumulated; ++k) {
        batch.draw(1, sampler->batch_of(s, grid_.coordinate(pmm::Axis::data), k));
        planned.push_back(batch.planned(grid_.shape(), grid_.coordinates(), plan, settings,
                                        batch.needed_on(grid_.shape(), plan, gather)));
      }
      plan_batch_step(list, planned, settings);
    }
    plan_end(list, store, settings);
    auto const sums = models::sent_in_epoch(batch, *sampler, 1, grid_.shape(), store.facts(), settings,
                                            batches.num_accumulated);

    auto const epoch = train(store, settings, batches);

    EXPECT_EQ(counted_calls(grid_), planned_calls(list));
    EXPECT_EQ(sums.comm_bytes, epoch.comm_bytes);
    EXPECT_EQ(sums.sent_bytes, epoch.sent_bytes);
  }

  /// Over all ranks of the grid, by communicator: calls, and bytes sent.
  using Sums = std::map<std::string, std::array<double, 2>>;
  Sums sums_of(std::function<CallTotals(pmm::Coordinates const&)> const& totals_of) const {
    Sums sums;
    for (int rank = 0; rank < grid_.shape().num_ranks(); ++rank)
      for (auto const& [call, totals] : totals_of(coordinates_of(grid_.shape(), rank))) {
        auto& [calls, sent] = sums[call.first];
        calls += static_cast<double>(std::get<0>(totals));
        sent += static_cast<double>(std::get<2>(totals));
      }
    return sums;
  }

  void expect_mean(std::string const& name, NetworkSettings settings, Gather gather) {
    SCOPED_TRACE(name);
    constexpr auto tolerance = 0.03;
    settings.gather = gather;
    models::MiniBatchSettings batches;
    batches.batch_size = 200; // of 10,000 vertices: 50 batches
    models::BatchSizes const sizes{batches.batch_size, 1, false, false};
    auto const store = store_of_dataset(world_, "sbm:vertices=10000,edges=100000,features=13,classes=5");
    auto const plan = models::plan_network(store, settings);
    auto const num_steps =
        models::num_batches_of(10000, sizes, grid_.shape().data).value() / grid_.shape().data;
    auto const expected = sums_of([&](pmm::Coordinates const& at) {
      auto const step = list_of_batches(grid_.shape(), at, store.facts(), plan, settings, sizes);
      return planned_calls(step);
    });
    auto end = step_of<float>(grid_);
    plan_end(end, store, settings);

    train(store, settings, batches);

    for (auto const& axis : {"x", "y", "z", "data", "group"}) {
      std::array found{0.0, 0.0};
      for (auto const& [call, totals] : counted_calls(grid_))
        if (call.first == axis) {
          found[0] += static_cast<double>(std::get<0>(totals));
          found[1] += static_cast<double>(std::get<2>(totals));
        }
      for (auto const& [call, totals] : planned_calls(end))
        if (call.first == axis) {
          found[0] -= static_cast<double>(std::get<0>(totals));
          found[1] -= static_cast<double>(std::get<2>(totals));
        }
      runtime::all_reduce(runtime::host, world_, std::span(found));
      auto const wanted = expected.contains(axis) ? expected.at(axis) : std::array{0.0, 0.0};
      EXPECT_EQ(found[0], wanted[0] * static_cast<double>(num_steps)) << axis;
      EXPECT_NEAR(found[1], wanted[1] * static_cast<double>(num_steps), tolerance * found[1]) << axis;
    }
  }

  runtime::Communicator world_;
  runtime::Communicator self_;
  pmm::ProcessGrid grid_;
};

TEST_P(BatchCost, IsExactOfTheBatchesThatAreDrawn) {
  for (auto const& the_case : relation_cases())
    expect_exact(the_case, Gather::all);
  for (auto const& the_case : step_cases()) {
    if (!has_other_messages(the_case.name)) continue;
    auto const is_rows = the_case.settings.schedule == models::Schedule::rows;
    auto const moves_needed = is_rows && !reads_edges(the_case.settings);
    expect_exact(the_case, moves_needed ? Gather::needed : Gather::automatic);
    if (is_rows && the_case.name.starts_with("dropout")) {
      expect_exact(the_case, Gather::automatic);
      expect_exact(the_case, Gather::all);
    }
  }
}

TEST_P(BatchCost, IsTheMeanOverFiftyBatches) {
  NetworkSettings settings;
  settings.set_layers(3, 24);
  settings.norm = models::Norm::rms;
  settings.has_residuals = true;
  expect_mean("pmm3d", settings, Gather::all);
  settings.norm = models::Norm::none;
  settings.wire = runtime::Wire::bf16;
  settings.schedule = models::Schedule::rows;
  settings.set_layers(2, 24);
  expect_mean("rows, needed", settings, Gather::needed);
  settings.wire = runtime::Wire::native;
  settings.num_heads = 3;
  set_model(settings, models::Model::gat);
  expect_mean("attention", settings, Gather::automatic);
}

/// Every grid; of eight ranks and more those with at most two data groups.
std::vector<std::array<int, 4>> batch_grids() {
  auto grids = grids_4d(world_size());
  if (world_size() >= 8) std::erase_if(grids, [](std::array<int, 4> const& shape) { return shape[0] > 2; });
  return grids;
}

INSTANTIATE_TEST_SUITE_P(AllGrids, BatchCost, ::testing::ValuesIn(batch_grids()), GridName());

/// Bytes that all ranks of a grid send in a step, by communicator. `list_of(coordinates)`: a rank's list.
template<class ListOf>
std::map<std::string, double> sent_by_axis(pmm::GridShape const& shape, ListOf const& list_of) {
  std::map<std::string, double> sent;
  for (int rank = 0; rank < shape.num_ranks(); ++rank)
    for (auto const& call : calls_of(list_of(coordinates_of(shape, rank))))
      sent[call.axis] += static_cast<double>(call.sent_bytes);
  return sent;
}

// The batches are drawn here: IsExactOfTheBatchesThatAreDrawn holds them beside ledgers. Chance leaves the mean of n batches within
// four standard errors, which are of the batches themselves; 1 % is for whole rows and for the formula.
TEST(BatchCosts, AreTheMeanOfManyBatches) {
  if (world_size() > 1) GTEST_SKIP() << "one process lists all ranks";
  constexpr auto num_batches = 400;
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  pmm::ProcessGrid const grid(self, {1, 1, 1, 1});
  auto const store = store_of_dataset(self, "sbm:vertices=10000,edges=100000,features=13,classes=5");
  models::MiniBatchSettings batches;
  batches.batch_size = 200;
  models::BatchSizes const sizes{batches.batch_size, 1, false, false};
  NetworkSettings settings;
  settings.schedule = models::Schedule::rows;
  settings.wire = runtime::Wire::bf16;
  settings.set_layers(2, 24);
  settings.gather = Gather::needed;
  auto const plan = models::plan_network(store, settings);
  auto const sampler = models::make_sampler(grid, store, batches, settings.seed);
  models::SampledBatch batch(self, store, *sampler, true);
  for (auto const& shape :
       {pmm::GridShape{1, 1, 1, 2}, pmm::GridShape{1, 2, 2, 1}, pmm::GridShape{1, 4, 2, 2},
        pmm::GridShape{1, 2, 4, 2}, pmm::GridShape{1, 1, 4, 4}}) {
    auto const expected = sent_by_axis(shape, [&](pmm::Coordinates const& at) {
      return list_of_batches(shape, at, store.facts(), plan, settings, sizes);
    });
    std::map<std::string, std::array<double, 2>> sums; // and squares
    for (std::int64_t k = 0; k < num_batches; ++k) {
      batch.draw(1 + k / sampler->num_steps(), sampler->batch_of(k % sampler->num_steps(), 0));
      auto const needed = batch.needed_on(shape, plan, settings.gather);
      auto const sent = sent_by_axis(shape, [&](pmm::Coordinates const& at) {
        pmm::StepPlan step(shape, at, sizeof(float));
        plan_batch_step(step, {batch.planned(shape, at, plan, settings, needed)}, settings);
        return step;
      });
      for (auto const& [axis, bytes] : sent) {
        sums[axis][0] += bytes;
        sums[axis][1] += bytes * bytes;
      }
    }
    for (auto const& [axis, sum] : sums) {
      auto const mean = sum[0] / num_batches;
      auto const error = std::sqrt(std::max(0.0, sum[1] / num_batches - mean * mean) / num_batches);
      EXPECT_NEAR(expected.at(axis), mean, 4 * error + 0.01 * mean) << shape.to_string() << " " << axis;
    }
  }
}

TEST(BatchCosts, CoverEveryGridThatCanTrain) {
  auto const facts = facts_of(10000, 500000, 100, 40);
  NetworkSettings settings;
  models::BatchSizes const sizes{3000, 1, true, false}; // 4 batches: no more than 4 groups have work
  auto const costs = models::costs_of_batches(16, facts, settings, sizes, 1, pmm::assumed_machine());
  std::size_t num_shapes = 0;
  for (auto const data : {1, 2, 4})
    num_shapes += pmm::all_shapes(16, data).size();
  ASSERT_EQ(costs.size(), num_shapes);
  auto const seconds = models::mini_batch_seconds(facts, settings, sizes, pmm::assumed_machine());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    auto const& cost = costs[i];
    EXPECT_EQ(cost.num_steps, 4 / cost.shape.data);
    EXPECT_EQ(cost.num_vertices, 2500);
    EXPECT_GE(cost.seconds.total(), costs[i > 0 ? i - 1 : 0].seconds.total());
    EXPECT_NEAR(seconds(cost.shape, cost.schedule).total(), cost.seconds.total(),
                1e-9 * cost.seconds.total());
    pmm::StepPlan arrays(cost.shape, {}, sizeof(float));
    plan_mini_batch_arrays(arrays, facts, models::plan_network(facts, settings), settings, {}, sizes);
    EXPECT_GE(cost.array_bytes, bytes_held(arrays));
  }
  EXPECT_TRUE(std::isinf(seconds({8, 1, 1, 2}, models::Schedule::pmm3d).total()));
  EXPECT_FALSE(models::num_batches_of(100, {30, 1000, false, false}, 1).has_value());
}

} // namespace
} // namespace orthant::testing
