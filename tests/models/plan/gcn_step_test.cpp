// SPDX-License-Identifier: Apache-2.0
//
// The list of an epoch beside a real epoch: collectives against the ledgers, products against the counted
// arithmetic, on every grid. And lists of grids that do not exist, against closed forms worked out by hand.

#include "models/gnn/plan/network_step.hpp"

#include "models/gnn/network/counted_graph.hpp"
#include "models/plan/relation_cases.hpp"
#include "models/plan/step_cases.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>
#include <map>

namespace orthant::testing {
namespace {

class NetworkStep : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  NetworkStep()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}) {}

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

TEST_P(NetworkStep, ListsWhatAnEpochCommunicatesAndMultiplies) {
  for (auto const& the_case : step_cases()) {
    SCOPED_TRACE(the_case.name);
    expect_listed_epoch<float>(grid_, the_case);
  }
}

TEST_P(NetworkStep, ListsEpochsOnGraphsWithRelations) {
  for (auto const& the_case : relation_cases()) {
    SCOPED_TRACE(the_case.name);
    expect_listed_epoch<float>(grid_, the_case);
  }
}

TEST_P(NetworkStep, ListsEveryNormWithAnotherActivation) {
  using models::Norm;
  for (auto const format : {runtime::Wire::native, runtime::Wire::bf16})
    for (auto const norm : {Norm::none, Norm::rms, Norm::layer, Norm::batch})
      for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows}) {
        StepCase next;
        next.settings.set_layers(3, 9);
        next.settings.dropout = 0.4;
        next.settings.has_residuals = norm != Norm::layer;
        next.settings.norm = norm;
        next.settings.activation = models::Activation::tanh;
        next.settings.operand_format = format;
        next.settings.schedule = schedule;
        SCOPED_TRACE(std::string(name_of(norm)) + ", " + std::string(name_of(schedule)));
        expect_listed_epoch<float>(grid_, next);
      }
}

/// One process that reads the graph lists what the operands of all ranks do.
TEST_P(NetworkStep, RowsThatMoveAreCountedInTheGraph) {
  for (auto const& the_case : step_cases()) {
    auto const store = the_case.store(world_);
    for (auto const gather : {pmm::Gather::automatic, pmm::Gather::needed}) {
      auto settings = the_case.settings;
      settings.gather = gather;
      SCOPED_TRACE(the_case.name + (gather == pmm::Gather::needed ? ", needed rows" : ""));
      auto const plan = models::plan_network(store, settings);
      auto const operands = models::make_full_graph_operands<float>(grid_, store, plan, settings);
      auto const calls_by = [&](models::NetworkEpochTraits const& traits) {
        pmm::StepPlan step(grid_.shape(), grid_.coordinates(), sizeof(float));
        plan_epoch(step, plan, settings, traits);
        return planned_calls(step);
      };

      models::CountedGraph const counted(store, grid_.shape(), plan, settings);

      EXPECT_EQ(calls_by(counted.traits_of(grid_.coordinates())),
                calls_by(traits_of_operands(store, settings, operands, grid_)));
      EXPECT_EQ(counted.exactness(), models::Exactness::exact);
    }
  }
}

TEST(CountedGraphOfAGrid, BytesWithoutCountsAreAtMostOrAbout) {
  using models::Exactness;
  graph::StoreFacts facts;
  facts.num_vertices = 1000;
  facts.num_entries = 9000;
  facts.num_features = facts.num_classes = 16;
  facts.feature_kind = graph::FeatureKind::dense;
  facts.label_kind = graph::LabelKind::single;
  auto const judged = [&](pmm::GridShape const& shape, models::Schedule schedule, pmm::Gather gather,
                          bool has_residuals) {
    models::NetworkSettings settings;
    settings.set_layers(3, 16);
    settings.schedule = schedule;
    settings.gather = gather;
    settings.has_residuals = has_residuals;
    return exactness_without_counts(shape, models::plan_network(facts, settings), settings);
  };
  pmm::GridShape const four{1, 2, 1, 2};

  EXPECT_EQ(judged(four, models::Schedule::rows, pmm::Gather::automatic, false), Exactness::at_most);
  EXPECT_EQ(judged(four, models::Schedule::rows, pmm::Gather::needed, false), Exactness::at_most);
  EXPECT_EQ(judged(four, models::Schedule::rows, pmm::Gather::all, true), Exactness::exact);
  EXPECT_EQ(judged(four, models::Schedule::pmm3d, pmm::Gather::automatic, false), Exactness::exact);
  EXPECT_EQ(judged(four, models::Schedule::pmm3d, pmm::Gather::automatic, true), Exactness::about);
  EXPECT_EQ(judged({1, 1, 1, 1}, models::Schedule::rows, pmm::Gather::needed, true), Exactness::exact);
}

int num_ranks() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

INSTANTIATE_TEST_SUITE_P(AllGrids, NetworkStep, ::testing::ValuesIn(grids_3d(num_ranks())), GridName());

/// Lists of all ranks of a grid that does not exist, summed.
struct GridTotals {
  std::map<std::string, std::int64_t> counted, sent; // by axis
  std::int64_t dense_flops = 0;
};

GridTotals totals_of(pmm::GridShape const& shape, models::NetworkPlan const& plan,
                     models::NetworkSettings const& settings, models::NetworkEpochTraits const& traits) {
  GridTotals totals;
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    pmm::StepPlan step(shape, pmm::coordinates_of(shape, rank), sizeof(float));
    plan_epoch(step, plan, settings, traits);
    for (auto const* const axis : {"x", "y", "z", "group"}) {
      auto const bytes = bytes_along(step, axis);
      totals.counted[axis] += bytes.counted;
      totals.sent[axis] += bytes.sent;
    }
    for (auto const& product : products_of(step))
      totals.dense_flops += product.is_sparse ? 0 : product.flops();
  }
  return totals;
}

/// Two layers, 64-32-16 wide, aggregate first, without bias, A^ F0 not kept; everything divides.
struct TwoLayers {
  static constexpr std::int64_t n = 4096;
  models::NetworkPlan plan;
  models::NetworkSettings settings;
  TwoLayers() {
    settings.has_bias = false;
    models::NetworkShape shape;
    shape.num_vertices = n;
    shape.widths = {64, 32, 16};
    shape.has_input_dropout = true;
    plan = models::plan_network(shape, models::ProductOrder::aggregate_first);
  }
};

// Plexus (arXiv 2505.04083), algorithms 1 and 2, on X x Y x Z = 8 x 4 x 32. The roles (a, b, c) are (x, y, z)
// in layer 0 and (z, x, y) in layer 1. Over all ranks the blocks of H[c,b] are a N D numbers, those of Q[c,a]
// b N D', of dH again a N D, of dF[a,b] c N D; W[b,a], gathered and reduced along c, is c D D'.
TEST(NetworkStepOfAGrid, SumsOver1024RanksAreTheClosedForms) {
  TwoLayers const model;
  pmm::GridShape const shape{1, 8, 4, 32};
  constexpr auto n = TwoLayers::n;

  auto const totals = totals_of(shape, model.plan, model.settings, {});

  // Layer 0: H along x: 8 N 64. Q along y: 4 N 32. W and dW along z: 2 (32 x 64 x 32).
  // Layer 1, a = z, b = x, c = y: H along z: 32 N 32. Q along x: 8 N 16. W twice and dW along y: 3 (4 x 32 x
  // 16).
  //   dH along z: 32 N 32. dF along y: 4 N 32.
  // Loss: logits [y,z]: along z three numbers a row, on 32 x 8 copies of N rows; along y a double, on all
  // ranks.
  auto const along_x = 8 * n * 64 + 8 * n * 16;
  auto const along_y = 4 * n * 32 + 3 * 4 * 32 * 16 + 4 * n * 32;
  auto const along_z = 2 * 32 * 64 * 32 + 2 * 32 * n * 32 + 3 * n * 32 * 8;
  EXPECT_EQ(totals.counted.at("x"), 4 * along_x);
  EXPECT_EQ(totals.counted.at("y"), 4 * along_y + 8 * 1024);
  EXPECT_EQ(totals.counted.at("z"), 4 * along_z);
  EXPECT_EQ(totals.counted.at("group"), 1024 * 2 * 8); // squared norms of two weights
}

// R-GCN of the Open Graph Benchmark on ogbn-mag: a table of 128 columns for three types, seven relations, four types of vertices.
TEST(NetworkStepOfAGrid, ParametersOfTypedGraphsAreThePublishedNumber) {
  graph::StoreFacts facts;
  facts.vertex_types = {
      {"author", 1'134'649, 0}, {"field", 59'965, 0}, {"institution", 8'740, 0}, {"paper", 736'389, 128}};
  for (auto const& type : facts.vertex_types)
    facts.num_vertices += type.count;
  facts.feature_kind = graph::FeatureKind::dense;
  facts.num_features = 128;
  facts.num_classes = 349;
  facts.relations.resize(7);
  models::NetworkSettings settings;
  set_model(settings, models::Model::rgcn);
  settings.set_layers(2, 64);
  settings.trains_features = true;
  std::int64_t count = -736'389 * 128; // of papers, which are not trained
  for (auto const& parameter : models::parameters_of(models::plan_network(facts, settings), settings))
    count += parameter.num_numbers();
  EXPECT_EQ(count, 154'366'772);
}

TEST(NetworkStepOfAGrid, ParametersOfAttentionWithinRelationsAreThoseOfMlperf) {
  graph::StoreFacts facts; // IGBH-full: six types, eleven relations
  facts.num_vertices = 547'306'935;
  facts.feature_kind = graph::FeatureKind::dense;
  facts.num_features = 1024;
  facts.num_classes = 2983;
  facts.relations.resize(11);
  for (auto const has_target_weights : {false, true}) {
    models::NetworkSettings settings;
    set_model(settings, models::Model::rgat);
    settings.num_heads = 4;
    settings.has_target_weights = has_target_weights;
    settings.set_layers(3, 512);
    std::int64_t count = 0;
    for (auto const& parameter : models::parameters_of(models::plan_network(facts, settings), settings))
      count += parameter.num_numbers();
    EXPECT_EQ(count, has_target_weights ? 24'649'639 : 13'115'303);
  }
}

/// Two layers of relations, 64-32-16 wide, without weights of the vertex itself, on X x Y x Z = 4 x 2 x 4.
GridTotals totals_of_relations(models::Schedule schedule, std::int64_t num_relations) {
  models::NetworkSettings settings;
  settings.has_bias = false;
  settings.schedule = schedule;
  models::NetworkShape shape;
  shape.num_vertices = TwoLayers::n;
  shape.widths = {64, 32, 16};
  shape.relations.num_relations = num_relations;
  shape.schedule = schedule;
  auto const plan = models::plan_network(shape, models::ProductOrder::automatic);
  return totals_of({1, 4, 2, 4}, plan, settings, {});
}

// gnn/plan/relation_step.hpp: words of activations do not depend on the number of relations.
TEST(NetworkStepOfAGrid, SentBytesOfRelationsAreTheClosedForms) {
  constexpr auto n = TwoLayers::n;
  for (auto const num_relations : {1, 5, 40}) {
    SCOPED_TRACE(num_relations);
    auto const planes = totals_of_relations(models::Schedule::pmm3d, num_relations).sent;
    // Layer 0, a = x, b = y, c = z: 2 (Ga-1) Gb u' along x, 2 (Gb-1) u' along y, and no dF.
    // Layer 1, a = z, b = x, c = y: 2 (Ga-1) Gb u' along z, 2 (Gb-1) u' along x, 2 (Gc-1) u along y.
    // Loss: logits [y,z], along z three numbers a row, on 4 copies of the rows; along y a double, on all ranks.
    EXPECT_EQ(planes.at("x"), 4 * (2 * 3 * 2 * n * 32 + 2 * 3 * n * 16));
    EXPECT_EQ(planes.at("y"), 4 * (2 * 1 * n * 32 + 2 * 1 * n * 32) + 8 * 32 * 2 * 1 / 2);
    EXPECT_EQ(planes.at("z"), 4 * (2 * 3 * 4 * n * 16 + 2 * 3 * 3 * n * 4));

    auto const owners = totals_of_relations(models::Schedule::rows, num_relations).sent;
    // (a, b, c) = (x, y, z) in both layers. Layer 0 sends no dF. The parameters are gathered and their gradients summed over all axes.
    auto const numbers = std::int64_t{num_relations} * (64 * 32 + 32 * 16);
    auto const over_c = 3 * n * 64 + 2 * 3 * n * 32;
    auto const over_b = 2 * 1 * 4 * n * (32 + 16) + n * (64 + 2 * 32) / 2 + n * (2 * 32 + 2 * 16) / 2;
    auto const over_a = 2 * 3 * n * (32 + 16);
    EXPECT_EQ(owners.at("x") + owners.at("y") + owners.at("z"),
              4 * (over_c + over_b + over_a) + 4 * 2 * numbers * 31);
  }
}

// gnn/plan/relation_step.hpp: only the softmax and the weights grow with the number of relations.
TEST(NetworkStepOfAGrid, SentBytesOfAttentionWithinRelationsAreTheClosedForms) {
  constexpr auto n = TwoLayers::n;
  constexpr std::int64_t classes = 8, heads = 4;
  for (std::int64_t const num_relations : {1, 5, 40}) {
    models::NetworkSettings settings;
    settings.has_bias = false;
    settings.schedule = models::Schedule::rows;
    models::NetworkShape shape;
    shape.num_vertices = n;
    shape.widths = {64, 32, 16};
    shape.head_classes = classes;
    shape.relations.num_relations = num_relations;
    shape.relations.num_heads = heads;
    shape.schedule = models::Schedule::rows;
    auto const pairs = 100 * num_relations;
    models::NetworkEpochTraits traits;
    traits.num_relation_edges = [=](pmm::Placement const&) {
      return pmm::RelationEdgeCounts{.sources = 70, .targets = pairs, .edges = 2 * pairs};
    };

    auto const plan = models::plan_network(shape, models::ProductOrder::automatic);
    auto const sent = totals_of({1, 4, 2, 4}, plan, settings, traits).sent;

    // (a, b, c) = (x, y, z) in both layers, G_b G_c + G_a G_b - 2 / G_b = 15 and G_a - 1 / G_b = 3.5. Layer 0 sends no dF.
    auto const numbers = num_relations * (64 * 32 + 2 * 32 + 32 * 16 + 2 * 16) + 16 * classes;
    auto const of_inputs = 15 * n * 64 + 2 * 15 * n * 32;
    auto const of_results = 7 * n * (32 + 16);
    auto const of_softmax = 32 * 2 * (6 * 3 * pairs * heads / 2 / 4);
    EXPECT_EQ(sent.at("x") + sent.at("y") + sent.at("z"),
              4 * (of_inputs + of_results + of_softmax) + 4 * 2 * numbers * 31)
        << num_relations;
  }
}

// Sent: an all_reduce over G ranks sends 2 (G-1)/G of what it counts, a gather or reduce_scatter (G-1)/G
// (docs/design.md 2.2: 4 (Ga-1) u + 2 (Gb-1) u' + 2 (Gc-1) u of a layer in the middle).
TEST(NetworkStepOfAGrid, SentBytesOf1024RanksAreTheClosedForms) {
  TwoLayers const model;
  constexpr auto n = TwoLayers::n;

  auto const totals = totals_of({1, 8, 4, 32}, model.plan, model.settings, {});

  // u of layer 0 is N 64 / P, of layer 1 N 32 / P, u' of layer 1 N 16 / P; times P ranks:
  auto const along_x = 2 * 7 * n * 64 + 2 * 7 * n * 16;                     // H of layer 0, Q of layer 1
  auto const along_y = 2 * 3 * n * 32 + 2 * 3 * n * 32 + 3 * 3 * (32 * 16); // Q of 0, dF of 1, W of 1
  auto const along_z = 4 * 31 * n * 32 + 2 * 31 * (64 * 32) + 2 * 31 * 3 * n * 8; // H, dH of 1, W of 0, loss
  EXPECT_EQ(totals.sent.at("x"), 4 * along_x);
  EXPECT_EQ(totals.sent.at("y"), 4 * along_y + 8 * 1024 * 2 * 3 / 4);
  EXPECT_EQ(totals.sent.at("z"), 4 * along_z);
}

// Every product is shared by all ranks without replicas: Q = H W of N x 64 x 32 is 2 N 64 32 flops in all.
TEST(NetworkStepOfAGrid, ArithmeticIsThatOfOneRank) {
  TwoLayers const model;
  constexpr auto n = TwoLayers::n;
  // Layer 0: Q and dW. Layer 1: Q, dW and dH.
  constexpr auto flops = 2 * n * (2 * 64 * 32 + 3 * 32 * 16);

  for (auto const& shape : {pmm::GridShape{1, 1, 1, 1}, {1, 8, 4, 32}, {1, 16, 8, 16}})
    EXPECT_EQ(totals_of(shape, model.plan, model.settings, {}).dense_flops, flops) << shape.to_string();
}

TEST(NetworkStepOfAGrid, TheFirstAggregateThatIsKeptIsNotListed) {
  TwoLayers const model;
  models::NetworkEpochTraits traits;
  traits.keeps_first_aggregate = true;
  pmm::GridShape const shape{1, 8, 4, 32};

  auto const kept = totals_of(shape, model.plan, model.settings, traits);
  auto const computed = totals_of(shape, model.plan, model.settings, {});

  EXPECT_EQ(computed.counted.at("x") - kept.counted.at("x"), 4 * 8 * TwoLayers::n * 64);
  EXPECT_EQ(computed.counted.at("y"), kept.counted.at("y"));
}

TEST(NetworkStepOfAGrid, A16BitWireHalvesActivationsAndLeavesWeights) {
  TwoLayers model;
  constexpr auto n = TwoLayers::n;
  model.settings.wire = runtime::Wire::bf16;

  auto const totals = totals_of({1, 8, 4, 32}, model.plan, model.settings, {});

  EXPECT_EQ(totals.counted.at("x"), 2 * (8 * n * 64 + 8 * n * 16));
  EXPECT_EQ(totals.counted.at("y"), 2 * (4 * n * 32 + 4 * n * 32) + 4 * 3 * 4 * 32 * 16 + 8 * 1024);
}

} // namespace
} // namespace orthant::testing
