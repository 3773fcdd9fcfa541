// SPDX-License-Identifier: Apache-2.0
//
// Links that a perceptron scores: the loss and every gradient in double, beside the equation link by link and finite differences, on
// every grid; in several pieces; 20 steps of Adam beside equations; and the lists of what is sent, multiplied and held.
#include "models/gnn/links/link_loss.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/links/link_fixture.hpp"
#include "models/links/link_reference.hpp"
#include "models/plan/step_cases.hpp"
#include "models/reference/reference_network.hpp"
#include "support/grids.hpp"
#include "support/live_arrays.hpp"

namespace orthant::testing {
namespace {

models::NetworkSettings with_decoder(std::int64_t width, std::int64_t hidden) {
  auto settings = settings_of(width);
  settings.decoder_width = hidden;
  return settings;
}

/// Adds this rank's pieces of its decoder's numbers, or of their gradients, to `parts`; every number has one owner.
void add_pieces(std::vector<models::Parameter<double>> const& parameters, bool are_gradients,
                DecoderNumbers& parts) {
  for (auto const& [name, part] : {std::pair("decoder.weight", &parts.w1),
                                   {"decoder.bias", &parts.b1},
                                   {"decoder.second.weight", &parts.w2},
                                   {"decoder.second.bias", &parts.b2}})
    for (auto const& parameter : parameters)
      if (parameter.name == name) {
        auto const numbers = Kokkos::create_mirror_view_and_copy(
            Kokkos::HostSpace(), are_gradients ? parameter.gradient() : parameter.value());
        for_each_element(parameter, [&](std::int64_t i, std::int64_t j, std::size_t place) {
          (*part)(i, j) += numbers(place);
        });
      }
}

DecoderNumbers zeros_of(std::int64_t width, std::int64_t hidden) {
  return {Dense(width, hidden), Dense(1, hidden), Dense(hidden, 1), Dense(1, 1)};
}

class LinkDecoding : public LinkTraining {
 protected:
  /// A loss on outputs that are no network's, by a decoder of formula numbers.
  struct Decoded : Fixed {
    Decoded(pmm::ProcessGrid const& grid, graph::GraphStore const& store, std::int64_t width,
            std::int64_t hidden)
        : Fixed(grid, store, width),
          decoder(zeros_of(width, hidden)),
          parameters(grid, plan, with_decoder(width, hidden)),
          group(grid.group()) {
      set_formula_parameters(parameters.list());
      parameters.gather(runtime::DefaultExec());
      loss.use_decoder(parameters.decoder());
      add_pieces(parameters.list(), false, decoder);
      sum(decoder);
    }
    void sum(DecoderNumbers& numbers) const {
      for (auto* const part : {&numbers.w1, &numbers.b1, &numbers.w2, &numbers.b2})
        runtime::all_reduce(runtime::host, group, std::span(part->numbers));
    }
    /// Of the last loss.
    [[nodiscard]] DecoderNumbers gradients() const {
      auto found = zeros_of(decoder.w1.rows, decoder.w1.columns);
      parameters.sum_gradients(runtime::DefaultExec());
      add_pieces(parameters.list(), true, found);
      sum(found);
      return found;
    }
    /// Every number of `name` that is at `place` of the whole parameter, moved.
    void move(std::string const& name, std::int64_t i, std::int64_t j, double shift) {
      for (auto const& parameter : parameters.list())
        if (parameter.name == name) {
          auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.value());
          for_each_element(parameter, [&](std::int64_t row, std::int64_t column, std::size_t place) {
            if (row == i && column == j) numbers(place) += shift;
          });
          Kokkos::deep_copy(parameter.value(), numbers);
        }
      parameters.gather(runtime::DefaultExec());
    }

    DecoderNumbers decoder;
    models::NetworkParameters<double> parameters;
    runtime::Communicator const& group;
  };

  static void expect_near(DecoderNumbers const& found, DecoderNumbers const& expected, double bound) {
    for (auto const& [a, b] : {std::pair(&found.w1, &expected.w1),
                               {&found.b1, &expected.b1},
                               {&found.w2, &expected.w2},
                               {&found.b2, &expected.b2}})
      for (std::size_t k = 0; k < a->numbers.size(); ++k)
        EXPECT_NEAR(a->numbers[k], b->numbers[k], bound) << k;
  }

  void expect_definition(graph::GraphStore const& store, std::int64_t width, std::int64_t hidden) {
    SCOPED_TRACE(fmt::format("{} x {}", width, hidden));
    auto const edges = edges_of(store);
    auto const h = outputs_of(store.facts().num_vertices, width);
    Decoded decoded(grid_, store, width, hidden);
    decoded.set(h);
    for (std::uint64_t const epoch : {1U, 40U}) {
      auto const expected =
          decoder_reference(h, decoded.decoder, edges, negatives_of(store, edges, 5, epoch));
      decoded.loss.draw(epoch);

      EXPECT_NEAR(decoded.find(), expected.loss, 1e-12);

      auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), decoded.gradient.storage());
      decoded.for_each([&](std::int64_t id, std::int64_t c, std::size_t place) {
        EXPECT_NEAR(found(place), expected.gradient(id, c), 1e-12) << id << ", " << c;
      });
      expect_near(decoded.gradients(), expected.gradients, 1e-12);
    }
  }
};

TEST_P(LinkDecoding, HasTheLossAndEveryGradientOfTheEquation) {
  for (auto const permutation : {graph::PermutationKind::twofold, graph::PermutationKind::natural})
    for (auto const& [width, hidden] : {std::pair(1, 5), {2, 1}, {9, 7}})
      expect_definition(store_of(world_, recipe_of(permutation)), width, hidden);
}

// More links than are taken at once: 4,096.
TEST_P(LinkDecoding, TakesLongListsInPieces) {
  auto recipe = recipe_of();
  recipe.num_vertices = 300;
  recipe.num_edges = 14'000;

  expect_definition(store_of(world_, recipe), 3, 4);
}

// Central differences of a step h: the error is about h^2 and 1e-16 / h.
TEST_P(LinkDecoding, HasTheGradientsOfFiniteDifferences) {
  constexpr auto h = 1e-5;
  auto const store = store_of(world_, recipe_of());
  Decoded decoded(grid_, store, 3, 4);
  decoded.loss.draw(1);
  decoded.set(outputs_of(store.facts().num_vertices, 3));
  static_cast<void>(decoded.find());
  auto const gradients = decoded.gradients();
  auto const expect = [&](std::string const& name, Dense const& gradient, std::int64_t i, std::int64_t j) {
    auto const loss_at = [&](double shift) {
      decoded.move(name, i, j, shift);
      auto const loss = decoded.find();
      decoded.move(name, i, j, -shift);
      return loss;
    };
    EXPECT_NEAR(gradient(i, j), (loss_at(h) - loss_at(-h)) / (2 * h), 1e-9) << name;
  };

  expect("decoder.weight", gradients.w1, 0, 0);
  expect("decoder.weight", gradients.w1, 2, 3);
  expect("decoder.bias", gradients.b1, 0, 1);
  expect("decoder.second.weight", gradients.w2, 3, 0);
  expect("decoder.second.bias", gradients.b2, 0, 0);
}

TEST_P(LinkDecoding, JudgesTheHeldOutLinksOfTheStore) {
  auto const store = store_of(world_, recipe_of());
  auto const h = outputs_of(store.facts().num_vertices, 4);
  Decoded decoded(grid_, store, 4, 6);
  decoded.set(h);
  auto const ids = store.read_original_ids(graph::Order::p1, {0, store.facts().num_vertices});

  auto const scores = decoded.loss.evaluate(runtime::DefaultExec(), decoded.outputs);

  for (auto const part : {graph::Split::valid, graph::Split::test}) {
    auto const s = static_cast<std::size_t>(part);
    std::vector<double> positives, negatives, unused;
    for (auto const kind : {graph::LinkKind::positive, graph::LinkKind::negative})
      for (auto const& link : store.read_links(part, kind, {0, store.facts().num_held_out[s]}))
        (kind == graph::LinkKind::positive ? positives : negatives)
            .push_back(decoded_score(
                h, decoded.decoder,
                {ids[static_cast<std::size_t>(link.source)], ids[static_cast<std::size_t>(link.target)]},
                unused));
    auto const expected = models::score_links(self_, positives, negatives);
    EXPECT_EQ(scores[s].num_counted, expected.num_counted);
    EXPECT_NEAR(scores[s].roc_auc.value(), expected.roc_auc.value(), 1e-12);
    EXPECT_NEAR(scores[s].ranking.value().mrr, expected.ranking.value().mrr, 1e-12);
    EXPECT_NEAR(scores[s].loss, expected.loss, 1e-12);
  }
}

// The network and Adam of reference/, on dense matrices, and the decoder's equation.
TEST_P(LinkDecoding, TakesTheStepsOfItsEquations) {
  auto const settings = with_decoder(6, 5);
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
      if (!name.starts_with("decoder")) leaves.emplace(name, tape.leaf(values));
    auto* const h = logits_of(tape, settings, a, graph.features, leaves);
    auto const expected = decoder_reference(
        h->value,
        {parameters.at("decoder.weight"), parameters.at("decoder.bias"),
         parameters.at("decoder.second.weight"), parameters.at("decoder.second.bias")},
        edges, negatives_of(store, edges, settings.seed, static_cast<std::uint64_t>(epoch)));
    add_to(h->gradient, expected.gradient);
    tape.run_back();
    NamedMatrices gradients{{"decoder.weight", expected.gradients.w1},
                            {"decoder.bias", expected.gradients.b1},
                            {"decoder.second.weight", expected.gradients.w2},
                            {"decoder.second.bias", expected.gradients.b2}};
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

// As it draws its weights, with dropout, for which there is no serial reference; without biases; scores, too.
TEST_P(LinkDecoding, IsTheSameOnEveryGrid) {
  for (auto const model : {models::Model::gcn, models::Model::gat, models::Model::appnp}) {
    auto settings = with_decoder(8, 6);
    settings.num_heads = 2;
    set_model(settings, model);
    settings.dropout = 0.3;
    settings.has_bias = model == models::Model::gcn;
    settings.set_layers(2, 8);
    auto store = store_of(world_, recipe_of());
    models::use_operator(store, settings);
    Trained trained(grid_, store, settings, training()), on_one(one_, store, settings, training());
    for (std::int64_t epoch = 1; epoch <= 20; ++epoch)
      EXPECT_NEAR(trained.trainer.train_epoch(epoch).loss, on_one.trainer.train_epoch(epoch).loss, 1e-12);
    auto const scores = trained.trainer.evaluate(), expected = on_one.trainer.evaluate();
    for (std::size_t s = 1; s < 3; ++s) {
      EXPECT_NEAR(scores[s].loss, expected[s].loss, tolerance);
      EXPECT_NEAR(scores[s].merit(), expected[s].merit(), 1e-12);
    }
  }
}

TEST_P(LinkDecoding, CommunicatesAndMultipliesWhatIsListed) {
  auto recipe = recipe_of();
  for (auto const& [num_vertices, width, has_bias] :
       {std::tuple(61, 1, true), {61, 9, false}, {300, 4, true}}) {
    recipe.num_vertices = num_vertices;
    recipe.num_edges = num_vertices == 300 ? 14'000 : 260;
    auto const store = store_of(world_, recipe);
    auto settings = with_decoder(width, 5);
    settings.has_bias = has_bias;
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

    CountedWork const evaluated(grid_);
    static_cast<void>(trained.trainer.evaluate());
    traits.keeps_first_aggregate = true;
    auto evaluation = step_of<double>(grid_);
    plan_evaluation(evaluation, plan, settings, traits);
    EXPECT_EQ(evaluated.passes(), passes_of(evaluation));
  }
}

TEST_P(LinkDecoding, HoldsTheArraysThatAreListed) {
  if (!pmm::runs_on_host) GTEST_SKIP() << "a device's libraries and sparse kernels have arrays of their own";
  auto const store = store_of(world_, recipe_of());
  auto const settings = with_decoder(9, 5);
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
  static_cast<void>(trained.trainer.evaluate());

  EXPECT_EQ(live.by_label(), live.planned(of_kernels, {pmm::Lifetime::training}));
}

INSTANTIATE_TEST_SUITE_P(AllGrids, LinkDecoding, ::testing::ValuesIn(grids_3d(world_size())), GridName());

} // namespace
} // namespace orthant::testing
