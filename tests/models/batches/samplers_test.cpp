// SPDX-License-Identifier: Apache-2.0
//
// Training on batches of every sampler, with edges rescaled and renormalized: the same losses on every grid.
#include "mini_batch_fixture.hpp"
#include "models/plan/relation_cases.hpp"

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

// Means over the neighbors of each relation in the batch: R-GCN with full weights, bases and blocks, and GraphSAGE per relation, with
// roots of types and a table of features that a batch trains the rows of. R-GAT attends to the neighbors in the batch.
TEST_P(Samplers, RelationsOfABatch) {
  for (auto const kind : {SamplerKind::uniform, SamplerKind::degree, SamplerKind::clusters})
    for (auto const& the_case : relation_cases()) {
      if (the_case.settings.wire != runtime::Wire::native) continue;
      SCOPED_TRACE(::testing::Message() << the_case.name << ", sampler " << static_cast<int>(kind));
      auto batches = small_batches();
      batches.batch_size = 23;
      batches.kind = kind;
      auto model = the_case.settings;
      model.dropout = 0.4;
      auto const training = short_training(grid_.size(pmm::Axis::data) == 1 ? 3 : 8);
      // Rows without neighbors are the bias alone, which starts at 0 and gets gradients of 1e-20 from rounding. Through RMS norm, their sign
      // at the kink of ReLU would decide over gradients of 1e5.
      if (model.model == models::Model::rgat) model.activation = models::Activation::gelu;
      auto const run_on = [&](pmm::ProcessGrid const& grid, runtime::Communicator const& comm) {
        auto more = batches;
        if (&grid == &one_) more.num_accumulated = grid_.size(pmm::Axis::data);
        auto store = store_of(comm, *the_case.recipe, num_clusters);
        auto settings = model;
        models::use_operator(store, settings);
        return train_in_batches(grid, store, model, training, more);
      };
      auto const expected = run_on(one_, self_);
      EXPECT_GE(expected.step_losses.size(), 16U);
      expect_equal(run_on(grid_, world_), expected);
    }
}

using Numbers = std::vector<double>;
/// Neighbors of a vertex in a batch, by relation.
using NeighboursByRelation = std::vector<std::vector<std::int64_t>>;
using Vertices = std::vector<std::int64_t>;
constexpr std::int64_t num_relations = 5;

/// A network of one layer without dropout and biases on the edges of the store: with a rate of 0, each step's loss is the cross-entropy of
/// logits_of(named, vertex, neighbors, all neighbors in the graph). `named` returns a parameter.
template<class Logits>
void expect_step_losses(pmm::ProcessGrid const& grid, runtime::Communicator const& self, StepCase the_case,
                        Logits const& logits_of) {
  auto& model = the_case.settings;
  model.set_layers(1, 9);
  model.has_bias = false;
  auto const store = the_case.store(self);
  auto const n = store.facts().num_vertices;
  auto training = short_training(1);
  training.optimizer.learning_rate = 0;
  training.weight_decay = 0;
  models::MiniBatchNetwork<double> network(grid, store, model, training, small_batches());
  auto const named = [&](std::string const& name) {
    for (auto const& parameter : network.parameters())
      if (parameter.name == name) {
        auto const host = host_copy(parameter.value());
        return Numbers(host.data(), host.data() + host.extent(0));
      }
    throw std::runtime_error("no parameter " + name);
  };
  static_cast<void>(network.run([](runtime::EpochRecord const&) {}));

  auto const rows = store.read_original_ids(graph::Order::p1, {0, n});
  auto const columns =
      store.read_original_ids(store.facts().has_two_orders() ? graph::Order::p2 : graph::Order::p1, {0, n});
  auto const csr = store.read_block(graph::Parity::even, {0, n}, {0, n}, graph::SelfLoops::as_given);
  for (std::int64_t step = 0; step < network.sampler().num_steps(); ++step) {
    sampling::BatchKeys keys; // of one stratum: original ids
    network.sampler().draw(1, network.sampler().batch_of(step, 0, 0), keys);
    std::vector<bool> is_drawn(static_cast<std::size_t>(n));
    for (auto const key : keys.keys)
      is_drawn[static_cast<std::size_t>(key)] = true;
    auto sum = 0.0, count = 0.0;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      auto const vertex = rows[row];
      if (!is_drawn[static_cast<std::size_t>(vertex)] || vertex % the_case.recipe->train_every != 0) continue;
      NeighboursByRelation neighbours(num_relations);
      Vertices all;
      for (auto k = static_cast<std::size_t>(csr.row_offsets[row]);
           k < static_cast<std::size_t>(csr.row_offsets[row + 1]); ++k) {
        all.push_back(columns[static_cast<std::size_t>(csr.columns[k])]);
        if (is_drawn[static_cast<std::size_t>(all.back())])
          neighbours[csr.relations.empty() ? 0 : csr.relations[k]].push_back(all.back());
      }
      Numbers const logits = logits_of(named, vertex, neighbours, all);
      ASSERT_EQ(std::ssize(logits), num_classes);
      auto total = 0.0;
      for (auto const logit : logits)
        total += std::exp(logit);
      sum += std::log(total) - logits[static_cast<std::size_t>(vertex % num_classes)];
      ++count;
    }
    EXPECT_NEAR(network.step_losses().at(static_cast<std::size_t>(step)), sum / count, 1e-10) << step;
  }
}

/// to += factor x W, W [x.size() x to.size()].
void add_product(Numbers const& x, double const* w, double factor, Numbers& to) {
  for (std::size_t j = 0; j < x.size(); ++j)
    for (std::size_t c = 0; c < to.size(); ++c)
      to[c] += factor * x[j] * w[j * to.size() + c];
}

Numbers features_of(std::int64_t vertex, std::int64_t width) {
  Numbers numbers;
  for (std::int64_t j = 0; j < width; ++j)
    numbers.push_back(static_cast<double>(static_cast<float>(small_real(3, vertex, j))));
  return numbers;
}

TEST_P(Samplers, ABatchHasTheMeansOfItsOwnNeighbors) {
  auto const the_case = relation_cases().front();
  auto const in = the_case.recipe->num_features;
  expect_step_losses(
      one_, self_, the_case,
      [&](auto const& named, std::int64_t vertex, NeighboursByRelation const& neighbours, Vertices const&) {
        auto const weight = named("layer0.weight"), root = named("layer0.self_weight");
        Numbers logits(num_classes);
        add_product(features_of(vertex, in), root.data(), 1, logits);
        for (std::size_t r = 0; r < num_relations; ++r)
          for (auto const from : neighbours[r])
            add_product(features_of(from, in), weight.data() + r * static_cast<std::size_t>(in * num_classes),
                        1 / static_cast<double>(neighbours[r].size()), logits);
        return logits;
      });
}

// alpha of relation r is the softmax over the neighbors of r in the batch. The layer before the head is not activated.
TEST_P(Samplers, ABatchAttendsToItsOwnNeighbors) {
  auto the_case = relation_cases().back();
  ASSERT_EQ(the_case.settings.model, models::Model::rgat);
  the_case.recipe = relation_cases().front().recipe;
  auto& model = the_case.settings;
  models::NetworkSettings plain;
  set_model(plain, models::Model::rgat);
  plain.schedule = models::Schedule::rows;
  plain.dropout = 0;
  plain.num_heads = 3;
  model = plain;
  constexpr std::size_t heads = 3, width = 3, out = heads * width;
  auto const in = the_case.recipe->num_features;
  expect_step_losses(
      one_, self_, the_case,
      [&](auto const& named, std::int64_t vertex, NeighboursByRelation const& neighbours, Vertices const&) {
        auto const weight = named("layer0.weight"), attention = named("layer0.attention"),
                   head = named("head.weight");
        Numbers sums(out);
        for (std::size_t r = 0; r < num_relations; ++r) {
          auto const projected = [&](std::int64_t v) {
            Numbers z(out);
            add_product(features_of(v, in), weight.data() + r * static_cast<std::size_t>(in) * out, 1, z);
            return z;
          };
          auto const target = projected(vertex);
          for (std::size_t h = 0; h < heads; ++h) {
            auto const* const a = attention.data() + (r * heads + h) * 2 * width;
            Numbers alphas;
            for (auto const from : neighbours[r]) {
              auto const source = projected(from);
              auto score = 0.0;
              for (std::size_t c = 0; c < width; ++c)
                score += a[c] * target[h * width + c] + a[width + c] * source[h * width + c];
              alphas.push_back(std::exp(score > 0 ? score : 0.2 * score));
            }
            auto const total = std::accumulate(alphas.begin(), alphas.end(), 0.0);
            for (std::size_t k = 0; k < alphas.size(); ++k)
              for (std::size_t c = 0; c < width; ++c)
                sums[h * width + c] += alphas[k] / total * projected(neighbours[r][k])[h * width + c];
          }
        }
        Numbers logits(num_classes);
        add_product(sums, head.data(), 1, logits);
        return logits;
      });
}

GraphRecipe with_edge_features() {
  return {
      .num_vertices = 203, .num_edges = 900, .num_features = 13, .is_directed = true, .num_edge_features = 5};
}

// The edge from j to i has features of its own, and the loop of i the mean over all edges of the graph to i without loops.
TEST_P(Samplers, ABatchHasTheFeaturesOfItsEdges) {
  StepCase the_case;
  auto& model = the_case.settings;
  the_case.recipe = with_edge_features();
  set_model(model, models::Model::gat);
  model.dropout = 0;
  model.num_output_heads = 2;
  constexpr std::size_t heads = 2, width = num_classes, out = heads * width;
  auto const in = the_case.recipe->num_features, num_features = the_case.recipe->num_edge_features;
  auto const features_between = [&](std::int64_t from, std::int64_t to) {
    Numbers numbers;
    for (std::int64_t f = 0; f < num_features; ++f)
      numbers.push_back(static_cast<double>(static_cast<float>(small_real(9 + f, from, to))));
    return numbers;
  };
  expect_step_losses(
      one_, self_, the_case,
      [&](auto const& named, std::int64_t vertex, NeighboursByRelation const& neighbours,
          Vertices const& all) {
        auto const weight = named("layer0.weight"), attention = named("layer0.attention"),
                   edge_weight = named("layer0.edge_weight"), edge_attention = named("layer0.edge_attention");
        auto const projected = [&](Numbers const& x, Numbers const& w) {
          Numbers z(out);
          add_product(x, w.data(), 1, z);
          return z;
        };
        Numbers of_loop(static_cast<std::size_t>(num_features));
        auto const num_others = std::ssize(all) - std::ranges::count(all, vertex);
        for (auto const from : all)
          for (std::size_t f = 0; from != vertex && f < of_loop.size(); ++f)
            of_loop[f] += features_between(from, vertex)[f] / static_cast<double>(num_others);
        auto sources = neighbours.front();
        std::erase(sources, vertex);
        sources.push_back(vertex);
        auto const target = projected(features_of(vertex, in), weight);
        Numbers logits(num_classes), totals(heads), sums(out);
        for (auto const from : sources) {
          auto const source = projected(features_of(from, in), weight);
          auto const edge = projected(from == vertex ? of_loop : features_between(from, vertex), edge_weight);
          for (std::size_t h = 0; h < heads; ++h) {
            auto const* const a = attention.data() + h * 2 * width;
            auto score = 0.0;
            for (std::size_t c = 0; c < width; ++c)
              score += a[c] * target[h * width + c] + a[width + c] * source[h * width + c] +
                       edge_attention[h * width + c] * edge[h * width + c];
            auto const alpha = std::exp(score > 0 ? score : 0.2 * score);
            totals[h] += alpha;
            for (std::size_t c = 0; c < width; ++c)
              sums[h * width + c] += alpha * source[h * width + c];
          }
        }
        for (std::size_t k = 0; k < out; ++k)
          logits[k % width] += sums[k] / totals[k / width] / static_cast<double>(heads);
        return logits;
      });
}

// On every grid, with dropout of edges, for which a rank has the features of its entries only.
TEST_P(Samplers, FeaturesOfTheEdgesOfABatch) {
  for (auto const kind : {SamplerKind::uniform, SamplerKind::degree, SamplerKind::clusters})
    for (auto const of_model : {models::Model::gat, models::Model::gatv2}) {
      SCOPED_TRACE(::testing::Message() << name_of(of_model) << ", sampler " << static_cast<int>(kind));
      auto model = small_model();
      model.num_heads = 3;
      model.attention_dropout = model.edge_dropout = 0.3;
      set_model(model, of_model);
      auto batches = small_batches();
      batches.batch_size = 23;
      batches.kind = kind;
      auto const run_on = [&](pmm::ProcessGrid const& grid, runtime::Communicator const& comm) {
        auto more = batches;
        if (&grid == &one_) more.num_accumulated = grid_.size(pmm::Axis::data);
        auto store = store_of(comm, with_edge_features(), num_clusters);
        auto settings = model;
        models::use_operator(store, settings);
        return train_in_batches(grid, store, settings, short_training(3), more);
      };
      auto const expected = run_on(one_, self_);
      EXPECT_GE(expected.step_losses.size(), 6U);
      expect_equal(run_on(grid_, world_), expected);
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
