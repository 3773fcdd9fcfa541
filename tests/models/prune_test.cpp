// SPDX-License-Identifier: Apache-2.0
//
// Training on the rows that training vertices depend on, beside training on all rows: the same losses,
// gradients, weights and scores to 1e-11, on every grid. And the list of a pruned step beside the ledgers, the
// counted arithmetic and the arrays that are allocated.
#include "models/gnn/pruning/pruned_network.hpp"

#include "models/plan/prune_cases.hpp"
#include "support/grids.hpp"
#include "support/live_arrays.hpp"

#include <algorithm>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using pmm::Lifetime;

class PruneTest : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  models::PrunedRows rows_of(graph::GraphStore const& store, models::NetworkSettings const& settings) const {
    return models::find_pruned_rows(grid_, store, models::plan_network(store, settings));
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
};

/// Of all epochs: losses, norms of gradients, scores; then what the last step left: values and gradients.
struct Course {
  std::vector<double> numbers;
  std::vector<double> parameters;
};

template<class Model, class Trainer>
Course course_of(Model& model, Trainer& trainer) {
  Course course;
  auto& numbers = course.numbers;
  trainer.run([&](runtime::EpochRecord const& record) {
    numbers.push_back(record.loss);
    numbers.insert(numbers.end(), record.grad_norms.begin(), record.grad_norms.end());
    for (auto const* const name : {"train_acc", "val_acc", "test_acc", "val_loss", "test_loss"})
      if (auto const score = record.score(name)) numbers.push_back(*score);
  });
  for (auto const& parameter : model.parameters())
    for (auto const& view : {parameter.value(), parameter.gradient()}) {
      auto const host = host_copy(view);
      course.parameters.insert(course.parameters.end(), host.data(), host.data() + host.extent(0));
    }
  return course;
}

void expect_near(std::vector<double> const& found, std::vector<double> const& expected, char const* what) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-11) << what << " " << i;
}

TEST_P(PruneTest, TrainsAsOnAllRows) {
  for (auto const& the_case : prune_cases()) {
    SCOPED_TRACE(the_case.name);
    auto const store = the_case.store(world_);
    models::TrainSettings training;
    training.num_epochs = 3;
    training.loss = the_case.loss();
    training.eval_every = 2;
    training.weight_decay = 1e-3;
    training.optimizer.kind = models::OptimizerKind::sgd;
    training.optimizer.learning_rate = 0.1;
    models::GraphNetwork<double> full(grid_, store, the_case.settings);
    auto loss = models::make_vertex_loss<double>(grid_, store, full.plan().logits(), training.loss);
    models::Trainer<double> trainer(grid_, full, loss, training);
    auto const expected = course_of(full, trainer);

    models::PrunedNetwork<double> pruned(grid_, store, the_case.settings, training,
                                         rows_of(store, the_case.settings));
    auto const found = course_of(pruned, pruned);

    expect_near(found.numbers, expected.numbers, "number");
    expect_near(found.parameters, expected.parameters, "parameter");
    EXPECT_GT(expected.numbers.front(), 0);
    EXPECT_GT(expected.numbers.at(1), 1e-6) << "the first weight has no gradient";
  }
}

TEST_P(PruneTest, AdamFollowsTheSameCourse) {
  auto const the_case = prune_cases().at(4); // all parts
  auto const store = the_case.store(world_);
  models::TrainSettings training;
  training.num_epochs = 6;
  training.eval_every = 0;
  auto const expected = train<double>(grid_, store, the_case.settings, training);
  models::PrunedNetwork<double> pruned(grid_, store, the_case.settings, training,
                                       rows_of(store, the_case.settings));
  std::vector<runtime::EpochRecord> found;
  pruned.run([&](runtime::EpochRecord const& record) { found.push_back(record); });

  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t epoch = 0; epoch < found.size(); ++epoch)
    EXPECT_NEAR(found[epoch].loss, expected[epoch].loss, 1e-12) << "epoch " << epoch;
  EXPECT_GT(pruned.evaluate()[0].num_counted, 0) << "all rows are read when they are asked for";
}

/// Serial sets, by places in order p1.
TEST_P(PruneTest, KeepsWhatTrainingVerticesDependOn) {
  for (auto const& the_case : prune_cases()) {
    SCOPED_TRACE(the_case.name);
    auto const store = the_case.store(world_);
    auto const plan = models::plan_network(store, the_case.settings);
    auto const rows = rows_of(store, the_case.settings);
    auto const n = store.facts().num_vertices;
    auto const csr = store.read_block(graph::Parity::even, {0, n}, {0, n});
    auto columns = csr.columns; // places in p1
    if (store.facts().has_two_orders()) {
      auto const places = store.read_other_positions(graph::Order::p2, {0, n});
      for (auto& column : columns)
        column = static_cast<std::int32_t>(places[static_cast<std::size_t>(column)]);
    }
    auto const mask = store.read_mask(graph::Split::train, graph::Order::p1, {0, n});
    std::vector<bool> is_kept(mask.begin(), mask.end());
    auto const own = pmm::part_of(grid_.shape(), grid_.coordinates(), pmm::group_axes, n);
    auto const kept_here = [&] {
      std::vector<runtime::LocalColumn> places;
      for (auto v = own.begin; v < own.end; ++v)
        if (is_kept[static_cast<std::size_t>(v)])
          places.push_back(static_cast<runtime::LocalColumn>(v - own.begin));
      return places;
    };
    EXPECT_EQ(rows.kept.back().own, kept_here());
    auto const ids = store.read_original_ids(graph::Order::p1, {0, n});
    auto const has_root = [&](std::size_t i) {
      auto const& relations = plan.layers.front().relations;
      return relations && std::ranges::count(relations->root_types, store.facts().type_of(ids[i])) > 0;
    };
    for (auto l = plan.layers.size(); l-- > 0;) {
      auto const& layer = plan.layers[l];
      auto const keeps_outputs = layer.needs_own_rows() || !layer.aggregates();
      auto inputs = keeps_outputs ? is_kept : std::vector<bool>(is_kept.size());
      auto num_nonzeros = std::int64_t{0};
      for (std::size_t i = 0; i < is_kept.size() && layer.aggregates(); ++i) {
        if (is_kept[i] && has_root(i)) {
          inputs[i] = true;
          ++num_nonzeros;
        }
        for (auto k = csr.row_offsets[i]; is_kept[i] && k < csr.row_offsets[i + 1]; ++k, ++num_nonzeros)
          inputs[static_cast<std::size_t>(columns[static_cast<std::size_t>(k)])] = true;
      }
      EXPECT_EQ(rows.layers[l].num_nonzeros, num_nonzeros) << "layer " << l;
      EXPECT_EQ(rows.layers[l].num_rows, std::ranges::count(is_kept, true)) << "layer " << l;
      is_kept = inputs;
      if (l == 0 && the_case.settings.trains_features) is_kept.assign(is_kept.size(), true);
      EXPECT_EQ(rows.kept[l].own, kept_here()) << "F_" << l;
    }
  }
}

TEST(Prune, LeavesOutMostRowsOfThisGraph) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  pmm::ProcessGrid const grid(world, {1, world.size(), 1, 1});
  auto const share = [&](StepCase const& the_case) {
    auto const store = the_case.store(world);
    return models::find_pruned_rows(grid, store, models::plan_network(store, the_case.settings)).share();
  };
  auto const all = prune_cases();
  EXPECT_LT(share(all.front()), 0.5);
  EXPECT_LT(share(all.at(11)), 0.1);
  EXPECT_EQ(share(all.back()), 1);
}

template<class T>
struct ListedOperands {
  models::NetworkPlan plan;
  models::NetworkOperands<T> operands;
  models::NetworkEpochTraits whole_traits, pruned_traits;
};

/// Operands are made once more, for their counts.
template<class T>
ListedOperands<T> listed_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                  models::NetworkSettings const& settings, models::PrunedRows const& rows) {
  ListedOperands<T> listed;
  auto& plan = listed.plan;
  plan = models::plan_network(store, settings);
  auto const full = models::make_full_graph_operands<T>(grid, store, plan, settings);
  models::OwnedAdjacency<T> whole;
  if (full.relations.empty())
    whole = std::get<models::OwnedAdjacency<T>>(full.adjacency.front());
  else
    whole.relations = full.relations.front(), whole.sizes = whole.relations.sizes;
  listed.operands = models::make_pruned_operands<T>(grid, store, plan, settings, rows, full.features,
                                                    models::BlockOfLayers<T>{whole, full.dropped});
  auto const count = [](models::NetworkOperands<T> const& operands, std::int64_t of_adjacency) {
    auto const of_features = operands.features.is_sparse ? *num_nonzeros_of(operands.features.sparse) : 0;
    return [=, adjacency = operands.plan.layers.front().adjacency.layout](pmm::Placement const& placement) {
      return placement.layout == adjacency ? of_adjacency : of_features;
    };
  };
  auto const& relations = whole.relations.block;
  auto const& edges = whole.relations.edges;
  auto const num_selves = relations ? relations->num_self_pairs() : 0;
  auto const of_adjacency = relations ? relations->num_entries() - num_selves
                            : edges   ? edges->counts().edges
                                      : whole.forward.block().csr.num_nonzeros();
  listed.whole_traits = models::traits_of(store.facts(), grid.shape(), grid.coordinates(), plan, settings);
  listed.whole_traits.needed = needed_counts_of(whole);
  if (edges)
    listed.whole_traits.num_relation_edges = [counts = edges->counts()](auto const&) { return counts; };
  if (relations) {
    listed.whole_traits.num_pairs = [=, count = relations->num_pairs() - num_selves](auto const&) {
      return count;
    };
    listed.whole_traits.num_self_pairs = [=, roots = relations->num_root_pairs()](auto const&) {
      return models::NetworkEpochTraits::SelfPairs{num_selves, roots};
    };
  }
  listed.pruned_traits = models::pruned_traits_of(listed.whole_traits, rows);
  listed.whole_traits.num_nonzeros = count(full, of_adjacency);
  listed.pruned_traits.num_nonzeros = count(listed.operands, of_adjacency);
  return listed;
}

TEST_P(PruneTest, AStepIsWhatIsListed) {
  for (auto const& the_case : prune_cases()) {
    SCOPED_TRACE(the_case.name);
    auto const& settings = the_case.settings;
    auto const store = the_case.store(world_);
    auto const rows = rows_of(store, settings);
    auto const listed = listed_operands<float>(grid_, store, settings, rows);
    auto step = step_of<float>(grid_);
    plan_epoch(step, listed.operands.plan, settings, listed.pruned_traits);
    models::TrainSettings training;
    training.uses_device_graph = false; // as in expect_listed_epoch()
    training.loss = the_case.loss();
    training.eval_every = 0;
    models::PrunedNetwork<float> model(grid_, store, settings, training, rows);
    static_cast<void>(model.trainer().train_epoch(1));
    CountedWork const counted(grid_);

    static_cast<void>(model.trainer().train_epoch(2));

    counted.expect_listed(step);
  }
}

TEST_P(PruneTest, ArraysAreThoseThatAreListed) {
  if (!pmm::runs_on_host) GTEST_SKIP() << "a device's libraries and sparse kernels have arrays of their own";
  for (auto const& the_case : prune_cases()) {
    if (the_case.settings.gather != pmm::Gather::all) continue; // the lists of needed rows are not listed
    SCOPED_TRACE(the_case.name);
    auto const& settings = the_case.settings;
    auto const store = the_case.store(world_);
    auto const rows = rows_of(store, settings);
    auto const listed = listed_operands<float>(grid_, store, settings, rows);
    for (auto const eval_every : {0, 1}) {
      models::TrainSettings training;
      training.eval_every = eval_every;
      training.loss = the_case.loss();
      auto step = step_of<float>(grid_);
      plan_pruned_arrays(step, store.facts(),
                         {listed.plan, listed.operands.plan, listed.whole_traits, listed.pruned_traits},
                         settings, training.optimizer, eval_every > 0);
      LiveArrays const live;

      models::PrunedNetwork<float> model(grid_, store, settings, training, rows);
      EXPECT_EQ(live.by_label(), live.planned(step, {Lifetime::training, Lifetime::first_step}));

      for (std::int64_t epoch = 1; epoch <= 2; ++epoch)
        static_cast<void>(model.trainer().train_epoch(epoch));
      if (eval_every > 0) static_cast<void>(model.evaluate());
      EXPECT_EQ(live.by_label(), live.planned(step, {Lifetime::training}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, PruneTest, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
