// SPDX-License-Identifier: Apache-2.0
//
// The loss of links and its gradient in double, beside the definition on dense matrices and finite differences, on every grid; the
// negatives of epochs; and training with them: 20 steps of Adam beside equations, on every grid the same.
#include "models/gnn/files/network_weights.hpp"
#include "models/gnn/links/link_loss.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/links/link_fixture.hpp"
#include "models/links/link_reference.hpp"
#include "models/plan/step_cases.hpp"
#include "models/reference/reference_network.hpp"
#include "support/grids.hpp"
#include "support/live_arrays.hpp"
#include "support/user_messages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using ::testing::HasSubstr;

// Widths of more and of fewer columns than there are ranks along an axis, and every order of the vertices.
TEST_P(LinkTraining, HasTheLossAndTheGradientOfTheDefinition) {
  for (auto const permutation :
       {graph::PermutationKind::twofold, graph::PermutationKind::single, graph::PermutationKind::natural})
    for (auto const width : {1, 2, 9}) {
      auto const store = store_of(world_, recipe_of(permutation));
      auto const edges = edges_of(store);
      auto const h = outputs_of(store.facts().num_vertices, width);
      Fixed fixed(grid_, store, width);
      fixed.set(h);
      EXPECT_EQ(fixed.loss.num_terms(), 2 * std::ssize(edges));
      for (std::uint64_t const epoch : {1U, 2U, 40U}) {
        auto const expected = link_reference(h, edges, negatives_of(store, edges, 5, epoch));
        fixed.loss.draw(epoch);

        EXPECT_NEAR(fixed.find(), expected.loss, 1e-13);

        auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), fixed.gradient.storage());
        fixed.for_each([&](std::int64_t id, std::int64_t c, std::size_t place) {
          EXPECT_NEAR(found(place), expected.gradient(id, c), 1e-13) << id << ", " << c;
        });
      }
    }
}

// Central differences of a step h: the error is about h^2 and 1e-16 / h.
TEST_P(LinkTraining, HasTheGradientOfFiniteDifferences) {
  constexpr auto h = 1e-5;
  auto const store = store_of(world_, recipe_of());
  Fixed fixed(grid_, store, 3);
  auto numbers = outputs_of(store.facts().num_vertices, 3);
  fixed.loss.draw(1);
  fixed.set(numbers);
  static_cast<void>(fixed.find());
  auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), fixed.gradient.storage());
  std::vector<double> gradient(numbers.numbers.size());
  fixed.for_each([&](std::int64_t id, std::int64_t c, std::size_t place) {
    gradient[static_cast<std::size_t>(3 * id + c)] = found(place);
  });
  runtime::all_reduce(runtime::host, world_, std::span(gradient));
  for (auto const place : {0U, 17U, 100U, 182U}) {
    auto const loss_at = [&](double shift) {
      auto moved = numbers;
      moved.numbers[place] += shift;
      fixed.set(moved);
      return fixed.find();
    };

    EXPECT_NEAR(gradient[place], (loss_at(h) - loss_at(-h)) / (2 * h), 1e-9);
  }
}

// Every vertex is the first end of E / N negatives, rounded down or up; the second ends are others; epochs differ.
TEST_P(LinkTraining, DrawsNegativesThatAreSpreadOverTheVertices) {
  auto const store = store_of(world_, recipe_of());
  auto const edges = edges_of(store);
  auto const first = negatives_of(store, edges, 5, 1);
  auto const second = negatives_of(store, edges, 5, 2);

  std::map<std::int64_t, std::int64_t> firsts;
  for (auto const& [u, w] : first) {
    ++firsts[u];
    EXPECT_NE(u, w);
  }
  auto const most = std::ssize(edges) / store.facts().num_vertices + 1;
  for (auto const& [u, count] : firsts)
    EXPECT_LE(count, most);
  EXPECT_NE(first, second);
  EXPECT_GT(first.size(), edges.size() * 3 / 4); // one pair in seven is an edge of this graph
  EXPECT_LT(first.size(), edges.size());

  Fixed fixed(grid_, store, 2);
  fixed.loss.draw(1);
  auto const roles = fixed.loss.plan().roles;
  auto const mine = grid_.coordinate(roles.b) == 0 ? fixed.loss.counts().negatives : 0;
  EXPECT_EQ(runtime::all_reduced(world_, mine), std::ssize(first));
}

TEST_P(LinkTraining, JudgesTheHeldOutLinksOfTheStore) {
  auto const store = store_of(world_, recipe_of());
  auto const h = outputs_of(store.facts().num_vertices, 4);
  Fixed fixed(grid_, store, 4), alone(one_, store, 4);
  fixed.set(h);
  alone.set(h);
  auto const ids = store.read_original_ids(graph::Order::p1, {0, store.facts().num_vertices});

  auto const scores = fixed.loss.evaluate(runtime::DefaultExec(), fixed.outputs);
  auto const on_one = alone.loss.evaluate(runtime::DefaultExec(), alone.outputs);

  EXPECT_EQ(scores[0].num_counted, 0);
  for (auto const part : {graph::Split::valid, graph::Split::test}) {
    auto const s = static_cast<std::size_t>(part);
    std::vector<double> positives, negatives;
    for (auto const kind : {graph::LinkKind::positive, graph::LinkKind::negative})
      for (auto const& link : store.read_links(part, kind, {0, store.facts().num_held_out[s]})) {
        double score = 0;
        for (std::int64_t c = 0; c < 4; ++c)
          score += h(ids[static_cast<std::size_t>(link.source)], c) *
                   h(ids[static_cast<std::size_t>(link.target)], c);
        (kind == graph::LinkKind::positive ? positives : negatives).push_back(score);
      }
    auto const expected = models::score_links(self_, positives, negatives);
    EXPECT_EQ(scores[s].num_counted, expected.num_counted);
    EXPECT_NEAR(scores[s].roc_auc.value(), expected.roc_auc.value(), 1e-12);
    EXPECT_NEAR(scores[s].ranking.value().mrr, expected.ranking.value().mrr, 1e-12);
    EXPECT_NEAR(scores[s].loss, expected.loss, 1e-12);
    EXPECT_NEAR(on_one[s].loss, expected.loss, 1e-12);
  }
}

// The network and Adam of reference/, on dense matrices.
TEST_P(LinkTraining, TakesTheStepsOfItsEquations) {
  auto const settings = settings_of(6);
  auto const store = store_of(world_, recipe_of());
  auto const graph = dense_graph_of(store);
  auto const a = operator_of(graph.adjacency, store.facts().graph_operator());
  auto const edges = edges_of(store);
  Trained on_one(one_, store, settings, training());
  set_formula_parameters(on_one.model.parameters());
  auto parameters = matrices_of(on_one.model.parameters());
  ReferenceAdam adam(0.01, 1e-3);
  Trained trained(grid_, store, settings, training());
  set_formula_parameters(trained.model.parameters());

  for (std::int64_t epoch = 1; epoch <= 20; ++epoch) {
    Tape tape;
    NamedNumbers leaves;
    for (auto const& [name, values] : parameters)
      leaves.emplace(name, tape.leaf(values));
    auto* const h = logits_of(tape, settings, a, graph.features, leaves);
    auto const expected = link_reference(
        h->value, edges, negatives_of(store, edges, settings.seed, static_cast<std::uint64_t>(epoch)));
    add_to(h->gradient, expected.gradient);
    tape.run_back();
    NamedMatrices gradients;
    for (auto const& [name, leaf] : leaves)
      gradients.emplace(name, leaf->gradient);

    EXPECT_NEAR(trained.trainer.train_epoch(epoch).loss, expected.loss, tolerance) << "step " << epoch;

    adam.step(parameters, gradients);
  }
  for (auto const& parameter : trained.model.parameters()) {
    auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.value());
    for_each_element(parameter, [&](std::int64_t i, std::int64_t j, std::size_t place) {
      EXPECT_NEAR(numbers(place), parameters.at(parameter.name)(i, j), tolerance) << parameter.name;
    });
  }
}

// With dropout, for which there is no serial reference, and for models that weigh neighbors; scores, too.
TEST_P(LinkTraining, IsTheSameOnEveryGrid) {
  for (auto const model : {models::Model::gcn, models::Model::gat, models::Model::sage}) {
    auto settings = settings_of(8);
    settings.num_heads = 2;
    set_model(settings, model);
    settings.dropout = 0.3;
    settings.set_layers(2, 8);
    auto store = store_of(world_, recipe_of());
    models::use_operator(store, settings);
    Trained trained(grid_, store, settings, training()), on_one(one_, store, settings, training());
    for (std::int64_t epoch = 1; epoch <= 20; ++epoch)
      EXPECT_NEAR(trained.trainer.train_epoch(epoch).loss, on_one.trainer.train_epoch(epoch).loss, tolerance);
    auto const scores = trained.trainer.evaluate(), expected = on_one.trainer.evaluate();
    for (std::size_t s = 1; s < 3; ++s) {
      EXPECT_NEAR(scores[s].loss, expected[s].loss, tolerance);
      EXPECT_NEAR(scores[s].merit(), expected[s].merit(), 1e-12);
    }
  }
}

TEST_P(LinkTraining, CommunicatesAndMultipliesWhatIsListed) {
  auto const store = store_of(world_, recipe_of());
  for (auto const width : {1, 9}) {
    auto const settings = settings_of(width);
    auto const plan = models::plan_network(store, settings);
    auto const operands = models::make_full_graph_operands<double>(grid_, store, plan, settings);
    Trained trained(grid_, store, settings, training());
    static_cast<void>(trained.trainer.train_epoch(1));
    CountedWork const counted(grid_);

    static_cast<void>(trained.trainer.train_epoch(2));

    auto traits = traits_of_operands(store, settings, operands, grid_);
    traits.links = trained.loss.counts();
    auto step = step_of<double>(grid_);
    plan_epoch(step, plan, settings, traits, training().optimizer);
    counted.expect_listed(step);
    if (world_.size() <= 4) counted.expect_counted_kernels();
  }
}

TEST_P(LinkTraining, HoldsTheArraysThatAreListed) {
  if (!pmm::runs_on_host) GTEST_SKIP() << "a device's libraries and sparse kernels have arrays of their own";
  auto const store = store_of(world_, recipe_of());
  auto const settings = settings_of(9);
  auto const plan = models::plan_network(store, settings);
  auto const operands = models::make_full_graph_operands<double>(grid_, store, plan, settings);
  auto traits = traits_of_operands(store, settings, operands, grid_);
  auto const counts = [&] {
    models::LinkLoss<double> const loss(grid_, store, plan.layers.front().owners.value().roles, plan.logits(),
                                        5);
    return loss.counts();
  }();
  traits.links.positives = counts.positives;
  traits.links.held_out = counts.held_out;
  pmm::StepPlan step = step_of<double>(grid_);
  plan_full_graph_arrays(step, store.facts(), plan, settings, traits, training().optimizer);
  pmm::StepPlan of_kernels = step_of<double>(grid_); // without what lies in host memory beside them
  for (auto const& array : step.arrays())
    if (array.label.starts_with("orthant::")) of_kernels.add_array(array.label, array.bytes, array.lifetime);
  LiveArrays const live;

  Trained trained(grid_, store, settings, training());
  static_cast<void>(trained.trainer.train_epoch(1));
  static_cast<void>(trained.trainer.train_epoch(2));
  static_cast<void>(trained.trainer.evaluate());

  EXPECT_EQ(live.by_label(), live.planned(of_kernels, {pmm::Lifetime::training}));
}

TEST_P(LinkTraining, RefusesWhatItCannotDo) {
  auto const store = store_of(world_, recipe_of());
  auto const refused = [&](auto const& change) {
    auto settings = settings_of(4);
    change(settings);
    return test::message_of([&] { static_cast<void>(models::plan_network(store, settings)); });
  };
  EXPECT_THAT(refused([](auto& s) { s.schedule = models::Schedule::pmm3d; }),
              HasSubstr("leave out --schedule pmm3d"));
  EXPECT_THAT(refused([](auto& s) { s.wire = runtime::Wire::bf16; }), HasSubstr("--comm-dtype"));
  auto without = recipe_of();
  without.edge_split.reset();
  auto const other = store_of(world_, without);
  EXPECT_THAT(test::message_of([&] { static_cast<void>(models::plan_network(other, settings_of(4))); }),
              HasSubstr("--edge-split"));
  auto const plan = models::plan_network(other.facts(), settings_of(4));
  EXPECT_THAT(test::message_of([&] {
                models::LinkLoss<double> const loss(grid_, other, plan.layers.front().owners.value().roles,
                                                    plan.logits(), 1);
              }),
              HasSubstr("--edge-split"));
}

INSTANTIATE_TEST_SUITE_P(AllGrids, LinkTraining, ::testing::ValuesIn(grids_3d(world_size())), GridName());

} // namespace
} // namespace orthant::testing
