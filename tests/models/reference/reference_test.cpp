// SPDX-License-Identifier: Apache-2.0
//
// Logits, every gradient and 20 steps of Adam of every model, in double, beside its equations on dense matrices: on every
// grid, in both schedules and orders of the products, on the whole graph and in mini-batches.
#include "models/formula_parameters.hpp"
#include "models/gnn/batches/mini_batch.hpp"
#include "models/models_fixture.hpp"
#include "models/reference/reference_cases.hpp"
#include "models/reference/reference_network.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using models::ProductOrder;
using models::Schedule;

// Numbers of size 1 and 20 steps: rounding stays below 1e-12, and 1e-10 leaves room for other libraries.
constexpr auto tolerance = 1e-10;
constexpr auto num_steps = 20;
constexpr auto rate = 0.01;
constexpr auto weight_decay = 1e-3;

graph::GraphStore store_of_case(runtime::Communicator const& comm, ReferenceCase const& c) {
  auto store = store_of(comm, c.recipe);
  auto settings = c.settings;
  models::use_operator(store, settings);
  return store;
}

/// The whole parameters that a list has pieces of, on one rank.
NamedMatrices whole_of(std::vector<models::Parameter<double>> const& list) {
  NamedMatrices whole;
  for (auto const& parameter : list) {
    auto const extents =
        parameter.is_vector() ? pmm::Extents{1, parameter.vector.length()} : parameter.matrix.extents();
    Dense values(extents.rows, extents.columns);
    auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.value());
    for_each_element(
        parameter, [&](std::int64_t i, std::int64_t j, std::size_t place) { values(i, j) = numbers(place); });
    whole.emplace(parameter.name, values);
  }
  return whole;
}

/// Gives all parameters but trained features numbers by a formula.
void set_formula_weights(std::vector<models::Parameter<double>> list) {
  std::erase_if(list, [](auto const& parameter) { return parameter.name == "features"; });
  set_formula_parameters(list);
}

class Reference : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  Reference()
      : world_(MPI_COMM_WORLD, "world"),
        self_(MPI_COMM_SELF, "self"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}),
        one_(self_, {1, 1, 1, 1}) {}

  /// The parameters that set_formula_parameters() gives such a network.
  NamedMatrices formula_parameters(ReferenceCase const& c, graph::GraphStore const& store) {
    auto settings = c.settings;
    settings.trains_features = false;
    if (!traits_of(settings.model, settings.aggregator).needs_owners()) settings.schedule = Schedule::pmm3d;
    models::NetworkParameters<double> parameters(one_, models::plan_network(store, settings), settings);
    set_formula_parameters(parameters.list());
    auto whole = whole_of(parameters.list());
    if (c.settings.trains_features) whole.emplace("features", dense_graph_of(store).features);
    return whole;
  }

  template<class Value>
  static void expect_near(std::vector<models::Parameter<double>> const& list, graph::GraphStore const& store,
                          NamedMatrices const& expected, Value const& value_of) {
    ASSERT_EQ(list.size(), expected.size());
    for (auto const& parameter : list) {
      auto rows = first_numbers(std::max(store.facts().num_vertices, expected.at(parameter.name).rows));
      if (parameter.name == "features")
        rows = store.read_original_ids(models::order_of(parameter.matrix.layout().row_order),
                                       {0, store.facts().num_vertices});
      auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), value_of(parameter));
      for_each_element(parameter, [&](std::int64_t i, std::int64_t j, std::size_t place) {
        EXPECT_NEAR(numbers(place), expected.at(parameter.name)(rows[position(i)], j), tolerance)
            << parameter.name << " " << i << ", " << j;
      });
    }
  }

  static models::TrainSettings training() {
    models::TrainSettings settings;
    settings.optimizer.learning_rate = rate;
    settings.weight_decay = weight_decay;
    settings.eval_every = 0;
    return settings;
  }

  void expect_full_graph(ReferenceCase const& c) {
    auto const alone = store_of_case(self_, c);
    auto const graph = dense_graph_of(alone);
    auto const whole_operator = operator_of(graph.adjacency, alone.facts().graph_operator());
    ReferencePass whole{whole_operator, graph.features, graph.classes, graph.trains};
    auto parameters = formula_parameters(c, alone);
    ReferenceAdam adam(rate, weight_decay);

    auto const store = store_of_case(world_, c);
    models::GraphNetwork<double> model(grid_, store, c.settings);
    set_formula_weights(model.parameters());
    auto loss = models::make_vertex_loss<double>(grid_, store, model.plan().logits());
    models::Trainer<double> trainer(grid_, model, loss, training());
    auto const overwrites = model.overwrites_outputs(); // a step leaves no logits
    for (std::int64_t epoch = 1; epoch <= num_steps; ++epoch) {
      whole.a = with_dropped_edges(whole_operator, c.settings, static_cast<std::uint64_t>(epoch),
                                   first_numbers(whole_operator.rows));
      auto const expected = reference_step(c.settings, parameters, {whole});
      auto const record = trainer.train_epoch(epoch);
      EXPECT_NEAR(record.loss, expected.loss, tolerance) << "step " << epoch;
      if (epoch == 1 || epoch == num_steps)
        expect_near(model.parameters(), store, expected.gradients,
                    [](auto const& parameter) { return parameter.gradient(); });
      if (epoch == 1 && !overwrites) expect_logits(model, store, expected.logits);
      adam.step(parameters, expected.gradients);
    }
    expect_near(model.parameters(), store, parameters,
                [](auto const& parameter) { return parameter.value(); });
    if (c.settings.norm != models::Norm::batch && c.settings.edge_dropout == 0 && !overwrites) return;
    static_cast<void>(trainer.evaluate()); // by running statistics, and with all edges
    Tape tape;
    NamedNumbers leaves;
    for (auto const& [name, values] : parameters)
      leaves.emplace(name, tape.leaf(values));
    expect_logits(model, store,
                  logits_of(tape, c.settings, whole_operator, features_of(tape, whole, leaves), leaves,
                            models::Pass::evaluation)
                      ->value);
  }

  /// Those of the last pass.
  void expect_logits(models::GraphNetwork<double> const& model, graph::GraphStore const& store,
                     Dense const& expected) {
    auto const& logits = model.logits();
    auto const& block = logits.block();
    auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), logits.storage());
    auto const ids = store.read_original_ids(models::order_of(logits.layout().row_order), block.rows);
    for (std::int64_t i = 0; i < block.rows.size(); ++i)
      for (std::int64_t j = 0; j < block.columns.size(); ++j)
        EXPECT_NEAR(numbers(position(i * block.columns.size() + j)),
                    expected(ids[position(i)], block.columns.begin + j), tolerance);
  }

  /// What the batches of a step see. Edges are rescaled by (n-1)/(b-1), self loops are not; or the operator is that of
  /// the subgraph.
  static std::vector<ReferencePass> passes_of(std::vector<sampling::BatchKeys> const& batches,
                                              DenseGraph const& graph, graph::GraphOperator const& by,
                                              sampling::BatchEdges edges) {
    std::vector<ReferencePass> passes;
    auto const columns = first_numbers(graph.features.columns);
    for (auto const& batch : batches) {
      auto const& vertices = batch.keys; // of one stratum
      auto const n = static_cast<double>(graph.adjacency.rows);
      auto const b = static_cast<double>(vertices.size());
      auto const renormalizes = edges == sampling::BatchEdges::renormalize;
      auto a = renormalizes ? operator_of(part_of(graph.adjacency, vertices, vertices), by)
                            : part_of(operator_of(graph.adjacency, by), vertices, vertices);
      for (std::int64_t i = 0; !renormalizes && i < a.rows; ++i)
        for (std::int64_t j = 0; j < a.columns; ++j)
          if (i != j) a(i, j) *= (n - 1) / (b - 1);
      ReferencePass pass{a, part_of(graph.features, vertices, columns), {}, {}};
      pass.vertices = vertices;
      for (auto const vertex : vertices) {
        pass.classes.push_back(graph.classes[position(vertex)]);
        pass.counts.push_back(graph.trains[position(vertex)]);
      }
      passes.push_back(std::move(pass));
    }
    return passes;
  }

  void expect_mini_batches(ReferenceCase const& c, sampling::BatchEdges edges) {
    auto const alone = store_of_case(self_, c);
    auto const graph = dense_graph_of(alone);
    auto const by = alone.facts().graph_operator();
    auto parameters = formula_parameters(c, alone);
    ReferenceAdam adam(rate, weight_decay);

    auto const store = store_of_case(world_, c);
    models::MiniBatchSettings batches;
    batches.batch_size = 13; // of 61 vertices
    batches.edges = edges;
    auto settings = training();
    auto const num_groups = grid_.size(pmm::Axis::data);
    settings.num_epochs = num_steps * num_groups / 5 + 1;
    models::MiniBatchNetwork<double> trainer(grid_, store, c.settings, settings, batches);
    set_formula_weights(trainer.parameters());
    auto const& sampler = trainer.sampler();
    std::int64_t num_taken = 0;
    trainer.run([&](runtime::EpochRecord const& record) {
      for (std::size_t s = 0; s < trainer.step_losses().size(); ++s, ++num_taken) {
        std::vector<sampling::BatchKeys> drawn(static_cast<std::size_t>(num_groups));
        for (std::int64_t group = 0; group < num_groups; ++group)
          sampler.draw(record.epoch, sampler.batch_of(static_cast<std::int64_t>(s), group),
                       drawn[position(group)]);
        auto passes = passes_of(drawn, graph, by, edges);
        for (std::int64_t group = 0; group < num_groups; ++group) {
          // The key of a batch's dropout: its number of the epoch's batches, and the epoch.
          auto const number = sampler.batch_of(static_cast<std::int64_t>(s), group);
          auto const key = static_cast<std::uint64_t>((number + 1) << 32 | record.epoch);
          auto& pass = passes[position(group)];
          pass.a = with_dropped_edges(pass.a, c.settings, key, drawn[position(group)].keys);
        }
        auto const expected = reference_step(c.settings, parameters, passes);
        EXPECT_NEAR(trainer.step_losses()[s], expected.loss, tolerance) << "step " << num_taken;
        adam.step(parameters, expected.gradients, num_groups);
      }
    });
    EXPECT_GE(num_taken, num_steps);
    expect_near(trainer.parameters(), store, parameters,
                [](auto const& parameter) { return parameter.value(); });
  }

  runtime::Communicator world_;
  runtime::Communicator self_;
  pmm::ProcessGrid grid_;
  pmm::ProcessGrid one_;
};

bool goes_with(ReferenceCase const& c, Schedule schedule, pmm::Gather gather) {
  return schedule == Schedule::rows || (gather == pmm::Gather::all && !weighs_neighbours(c.settings));
}

// Cases take turns with the orders of the products.
TEST_P(Reference, IsRepeatedOnTheWholeGraph) {
  if (grid_.size(pmm::Axis::data) > 1) GTEST_SKIP() << "full-graph work has no data axis";
  auto cases = all_cases();
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (auto const schedule : {Schedule::pmm3d, Schedule::rows}) {
      auto& c = cases[i];
      auto const aggregates_first = (schedule == Schedule::pmm3d) == (i % 2 == 0);
      c.settings.schedule = schedule;
      if (c.settings.model != Model::gcnii)
        c.settings.order = aggregates_first ? ProductOrder::aggregate_first : ProductOrder::transform_first;
      SCOPED_TRACE(c.name + ", " + std::string(name_of(schedule)) +
                   (aggregates_first ? ", aggregate first" : ", transform first"));
      expect_full_graph(c);
    }
}

TEST_P(Reference, IsRepeatedWithDroppedEdges) {
  if (grid_.size(pmm::Axis::data) > 1) GTEST_SKIP() << "full-graph work has no data axis";
  for (auto c : cases_of_dropped_edges())
    for (auto const schedule : {Schedule::pmm3d, Schedule::rows})
      for (auto const gather : {pmm::Gather::all, pmm::Gather::needed}) {
        if (!goes_with(c, schedule, gather)) continue;
        SCOPED_TRACE(c.name + ", " + std::string(name_of(schedule)));
        c.settings.schedule = schedule;
        c.settings.gather = gather;
        expect_full_graph(c);
      }
}

TEST_P(Reference, IsRepeatedWithDroppedEdgesInMiniBatches) {
  using sampling::BatchEdges;
  auto const cases = cases_of_dropped_edges();
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (auto const schedule : {Schedule::pmm3d, Schedule::rows})
      for (auto const gather : {pmm::Gather::all, pmm::Gather::needed}) {
        if (!goes_with(cases[i], schedule, gather)) continue;
        auto c = cases[i];
        SCOPED_TRACE(c.name + ", " + std::string(name_of(schedule)));
        c.settings.schedule = schedule;
        c.settings.gather = gather;
        auto const renormalizes = c.settings.model == Model::gcn && i % 2 == 0 && schedule == Schedule::rows;
        expect_mini_batches(c, renormalizes ? BatchEdges::renormalize : BatchEdges::rescale);
      }
}

TEST_P(Reference, OfMaximaIsRepeated) {
  for (auto c : cases_of_maximum())
    for (auto const schedule : {Schedule::pmm3d, Schedule::rows}) {
      SCOPED_TRACE(c.name + ", " + std::string(name_of(schedule)));
      c.settings.schedule = schedule;
      if (grid_.size(pmm::Axis::data) == 1) expect_full_graph(c);
      expect_mini_batches(c, sampling::BatchEdges::rescale);
    }
}

TEST_P(Reference, OfPowersIsRepeated) {
  for (auto const& c : cases_of_powers()) {
    SCOPED_TRACE(c.name);
    if (grid_.size(pmm::Axis::data) == 1) expect_full_graph(c);
    expect_mini_batches(c, sampling::BatchEdges::rescale);
  }
}

TEST_P(Reference, OfTrainedFeaturesIsRepeated) {
  for (auto c : cases_of_trained_features())
    for (auto const schedule : {Schedule::pmm3d, Schedule::rows}) {
      if (traits_of(c.settings.model, c.settings.aggregator).needs_owners() && schedule == Schedule::pmm3d)
        continue;
      SCOPED_TRACE(c.name + ", " + std::string(name_of(schedule)));
      c.settings.schedule = schedule;
      if (grid_.size(pmm::Axis::data) == 1) expect_full_graph(c);
      expect_mini_batches(c, sampling::BatchEdges::rescale);
    }
}

TEST_P(Reference, OfAttentionIsRepeatedOnTheWholeGraph) {
  if (grid_.size(pmm::Axis::data) > 1) GTEST_SKIP() << "full-graph work has no data axis";
  for (auto const& c : cases_of_attention()) {
    SCOPED_TRACE(c.name);
    expect_full_graph(c);
  }
}

TEST_P(Reference, IsRepeatedInMiniBatches) {
  using sampling::BatchEdges;
  auto cases = all_cases();
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (auto const schedule : {Schedule::pmm3d, Schedule::rows}) {
      auto& c = cases[i];
      auto const can_renormalize = c.settings.normalization != graph::Normalization::none;
      auto const renormalizes = can_renormalize && (schedule == Schedule::rows) == (i % 2 == 0);
      c.settings.schedule = schedule;
      if (c.settings.model != Model::gcnii)
        c.settings.order = i % 2 == 0 ? ProductOrder::aggregate_first : ProductOrder::transform_first;
      SCOPED_TRACE(c.name + ", " + std::string(name_of(schedule)) +
                   (renormalizes ? ", renormalized" : ", rescaled"));
      expect_mini_batches(c, renormalizes ? BatchEdges::renormalize : BatchEdges::rescale);
    }
}

TEST_P(Reference, OfAttentionIsRepeatedInMiniBatches) {
  for (auto const& c : cases_of_attention()) {
    SCOPED_TRACE(c.name);
    expect_mini_batches(c, sampling::BatchEdges::rescale);
  }
}

// On one grid per number of ranks, because operators know no grid.
TEST_P(Reference, IsRepeatedWithEveryOperator) {
  if (grid_.shape() != pmm::near_cubic(world_.size())) GTEST_SKIP() << "on one grid per number of ranks";
  for (auto c : cases_of_operators())
    for (auto const schedule : {Schedule::pmm3d, Schedule::rows}) {
      SCOPED_TRACE(c.name + ", " + std::string(name_of(schedule)));
      c.settings.schedule = schedule;
      expect_full_graph(c);
      expect_mini_batches(c, sampling::BatchEdges::rescale);
    }
}

/// Every grid of one and of two data groups.
std::vector<std::array<int, 4>> grids() {
  auto all = grids_4d(world_size());
  std::erase_if(all, [](std::array<int, 4> const& shape) { return shape[0] > 2; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(AllGrids, Reference, ::testing::ValuesIn(grids()), GridName());

} // namespace
} // namespace orthant::testing
