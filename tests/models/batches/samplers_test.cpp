// SPDX-License-Identifier: Apache-2.0
//
// Training on batches of every sampler, with edges rescaled and renormalized: the same losses on every grid.
#include "mini_batch_fixture.hpp"

namespace orthant::testing {
namespace {

using models::SamplerKind;
using sampling::BatchEdges;

class Samplers : public MiniBatch {
 protected:
  void expect_same_on_the_grid(SamplerKind kind, BatchEdges edges,
                               std::string const& description = graph_text,
                               models::Schedule schedule = models::Schedule::pmm3d,
                               graph::PermutationKind permutation = graph::PermutationKind::twofold) {
    SCOPED_TRACE(::testing::Message() << static_cast<int>(kind) << ' ' << static_cast<int>(edges));
    auto batches = small_batches();
    batches.batch_size = 23; // 9 of them: work for 8 data groups, whose epoch has 16
    batches.kind = kind;
    batches.edges = edges;
    auto model = small_model();
    model.schedule = schedule;
    auto const run =
        expect_equal_losses(model, short_training(3), batches, description, permutation, num_clusters);
    EXPECT_GE(run.step_losses.size(), 6U);
  }
  static constexpr std::int64_t num_clusters = 40;
};

TEST_P(Samplers, UniformRenormalized) {
  expect_same_on_the_grid(SamplerKind::uniform, BatchEdges::renormalize);
}

TEST_P(Samplers, DegreeRescaled) {
  expect_same_on_the_grid(SamplerKind::degree, BatchEdges::rescale);
}

TEST_P(Samplers, ClustersRenormalized) {
  expect_same_on_the_grid(SamplerKind::clusters, BatchEdges::renormalize);
}

TEST_P(Samplers, ClustersRescaled) {
  expect_same_on_the_grid(SamplerKind::clusters, BatchEdges::rescale);
}

// Blocks of lists, and cells of any sizes.
TEST_P(Samplers, BetweenOwnersOfVertices) {
  for (auto const kind : {SamplerKind::degree, SamplerKind::clusters})
    for (auto const edges : {BatchEdges::rescale, BatchEdges::renormalize})
      expect_same_on_the_grid(kind, edges, graph_text, models::Schedule::rows,
                              graph::PermutationKind::single);
}

// Degrees are those of rows; two matrices in the store.
TEST_P(Samplers, OnADirectedGraph) {
  auto const description = std::string(graph_text) + ",directed=1";
  expect_same_on_the_grid(SamplerKind::degree, BatchEdges::renormalize, description);
  expect_same_on_the_grid(SamplerKind::clusters, BatchEdges::rescale, description);
}

// Coefficients are dropped by the ids of both ends.
TEST_P(Samplers, AttentionOverTheEdgesOfABatch) {
  for (auto const kind : {SamplerKind::uniform, SamplerKind::degree, SamplerKind::clusters})
    for (auto const of_model : {models::Model::gat, models::Model::gatv2}) {
      auto model = small_model();
      model.num_heads = 3;
      model.attention_dropout = 0.3;
      set_model(model, of_model);
      auto batches = small_batches();
      batches.batch_size = 23;
      batches.kind = kind;
      auto const description = std::string(graph_text) + (kind == SamplerKind::degree ? ",directed=1" : "");
      auto const run = expect_equal_losses(model, short_training(3), batches, description,
                                           graph::PermutationKind::twofold, num_clusters);
      EXPECT_GE(run.step_losses.size(), 6U);
    }
}

TEST_P(Samplers, RefuseWhatDoesNotGoTogether) {
  auto const message_of = [&](SamplerKind kind, std::optional<double> fraction) -> std::string {
    auto batches = small_batches();
    batches.batch_size = 23;
    batches.kind = kind;
    batches.train_fraction = fraction;
    try {
      models::MiniBatchNetwork<double>(grid_, store_of_dataset(world_, graph_text), small_model(),
                                       short_training(1), batches);
    } catch (runtime::UserError const& error) {
      return error.what();
    }
    return "none";
  };

  EXPECT_EQ(message_of(SamplerKind::degree, 0.5), "--batch-train-fraction works with --sampler uniform only: "
                                                  "other samplers do not fix the number of training vertices "
                                                  "of a batch; leave one of them out");
  EXPECT_EQ(
      message_of(SamplerKind::clusters, {}),
      "memory has no clusters for --sampler clusters; partition the graph with --clusters K, such as 2 for "
      "each batch of an epoch");
}

INSTANTIATE_TEST_SUITE_P(Grids, Samplers, ::testing::ValuesIn(grids_4d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
