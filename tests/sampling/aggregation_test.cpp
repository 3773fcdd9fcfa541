// SPDX-License-Identifier: Apache-2.0
//
// Averaged over epochs, the sampled aggregation of every vertex is the full one, or has the bias that is stated.
#include "sampling/batch_builder.hpp"
#include "sampling/vertex_sampler.hpp"
#include "sampling_fixture.hpp"

#include <bit>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using sampling::Batch;
using sampling::BatchBuilder;
using sampling::BatchEdges;
using sampling::BatchKeys;
using sampling::ClusterSampler;
using sampling::DegreeSampler;
using sampling::SampledBlock;
using sampling::SampledVertices;
using sampling::VertexSampler;

constexpr std::int64_t num_columns = 2;

double feature(std::int64_t vertex, std::int64_t column) {
  return small_integer(77, vertex, column);
}

/// Row i of A~ X, X by original id: the formula of block_sampler.hpp.
double aggregated(SampledBlock<double> const& block, std::size_t i, SampledVertices const& columns,
                  std::int64_t feature_column) {
  auto const group = block.row_groups.empty() ? 0 : block.row_groups[i];
  auto const* const scale = block.column_scale.data() + group * block.num_columns;
  auto sum = 0.0;
  for (auto k = block.row_offsets[i]; k < block.row_offsets[i + 1]; ++k) {
    auto const j = block.columns[position(k)];
    auto const value = block.values.empty() ? 1 : block.values[position(k)];
    sum += value * scale[j] * feature(columns.original_ids[position(j)], feature_column);
  }
  sum *= block.row_scale[i];
  auto const self = block.self_columns[i];
  if (self >= 0) sum += block.self_scale[i] * feature(columns.original_ids[position(self)], feature_column);
  return sum;
}

struct Moments {
  double count = 0;
  double sum = 0;
  double squares = 0;

  void add(double value) {
    ++count;
    sum += value;
    squares += value * value;
  }
  [[nodiscard]] double mean() const { return sum / count; }
  [[nodiscard]] double standard_error() const {
    return std::sqrt(std::max(0.0, squares / count - mean() * mean()) / count);
  }
};

/// Of A~ X, by vertex and column of X, over 2,000 epochs of all batches that have the vertex.
std::vector<Moments> sampled_moments(runtime::Communicator const& self, graph::GraphStore const& store,
                                     sampling::Sampler const& sampler, BatchEdges edges) {
  auto const n = store.facts().num_vertices;
  BatchBuilder<double> builder(self, store, sampler, edges);
  auto const handle = builder.add_block(graph::Parity::even, {0, n}, {0, n});
  auto const rows = builder.add_range(graph::Order::p1, {0, n});
  auto const columns = builder.add_range(graph::Order::p2, {0, n});
  std::vector<Moments> moments(position(n * num_columns));
  Batch<double> batch;
  for (std::int64_t epoch = 0; epoch < 2000; ++epoch)
    for (std::int64_t t = 0; t < sampler.num_batches(); ++t) {
      builder.build(epoch, t, batch);
      auto const& block = batch.forward(handle);
      for (std::size_t i = 0; i < batch.vertices[rows].size(); ++i)
        for (std::int64_t d = 0; d < num_columns; ++d) {
          auto const vertex = batch.vertices[rows].original_ids[i];
          moments[position(vertex * num_columns + d)].add(aggregated(block, i, batch.vertices[columns], d));
        }
    }
  return moments;
}

/// Every mean is within 5 standard errors of `expected` X.
void expect_means(std::vector<Moments> const& moments, Dense const& expected) {
  for (std::int64_t v = 0; v < expected.rows; ++v)
    for (std::int64_t d = 0; d < num_columns; ++d) {
      auto const& entry = moments[position(v * num_columns + d)];
      auto full = 0.0;
      for (std::int64_t u = 0; u < expected.rows; ++u)
        full += expected(v, u) * feature(u, d);
      // Rounding: 2,000 sums of numbers below 1,000 where nothing varies.
      EXPECT_NEAR(entry.mean(), full, 5 * entry.standard_error() + 1e-9) << "vertex " << v;
    }
}

/// Sizes of batches differ.
void expect_unbiased(runtime::Communicator const& self, StoreRecipe const& recipe,
                     sampling::VertexSamplerOptions const& options) {
  SCOPED_TRACE(::testing::Message() << recipe.name << ' ' << options.batch_size);
  auto const store = make_store(self, recipe);
  VertexSampler const sampler(options, store.facts().num_vertices, store.facts().split_sizes[0]);
  expect_means(sampled_moments(self, store, sampler, BatchEdges::rescale), normalised_matrix(store));
}

TEST(SampledAggregation, IsUnbiased) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  for (auto const& recipe : store_recipes())
    expect_unbiased(self, recipe, {5, 12, 1, 1, {}});
}

// Batches of 3 and of 2: factors of 5 and of 10.
TEST(SampledAggregation, IsUnbiasedWithVeryUnequalBatches) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  expect_unbiased(self, {"ring", "ring:vertices=11,classes=2"}, {5, 3, 1, 1, {}});
  expect_unbiased(self, {"ring", "ring:vertices=11,classes=2"}, {5, 3, 3, 1, {}});
}

TEST(SampledAggregation, IsUnbiasedWithStrata) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  for (auto const& recipe : store_recipes())
    expect_unbiased(self, recipe, {5, 12, 1, 1, 0.3});
  expect_unbiased(self, store_recipes()[0], {5, 14, 2, 1, 0.7});
}

TEST(SampledAggregation, IsUnbiasedByDegree) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  for (auto const& recipe : store_recipes()) {
    SCOPED_TRACE(recipe.name);
    auto const store = make_store(self, recipe);
    DegreeSampler const sampler({5, 20, 1, 1}, sampling::count_degrees(self, store),
                                store.facts().split_sizes[0]);
    EXPECT_GE(sampler.stratum_sizes().size(), 2U);
    expect_means(sampled_moments(self, store, sampler, BatchEdges::rescale), normalised_matrix(store));
  }
}

// Weighted as the loss is, the mean of any number of the vertices of a batch is that of the graph.
TEST(SampledLoss, IsUnbiasedByDegree) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  auto const store = make_store(self, store_recipes()[0]);
  auto const n = store.facts().num_vertices;
  DegreeSampler const sampler({5, 20, 1, 1}, sampling::count_degrees(self, store),
                              store.facts().split_sizes[0]);
  // The number of a vertex is its key: the strata have very different means.
  Moments moments;
  BatchKeys keys;
  for (std::int64_t epoch = 0; epoch < 2000; ++epoch)
    for (std::int64_t t = 0; t < sampler.num_batches(); ++t) {
      sampler.draw(epoch, t, keys);
      auto sum = 0.0;
      std::size_t group = 0;
      auto end = keys.stratum_sizes[0];
      for (std::int64_t i = 0; i < keys.size(); ++i) {
        for (; i >= end; end += keys.stratum_sizes[group])
          ++group;
        sum += keys.loss_weights[group] * static_cast<double>(keys.keys[position(i)]);
      }
      moments.add(sum / static_cast<double>(keys.size()));
    }

  EXPECT_NEAR(moments.mean(), static_cast<double>(n - 1) / 2, 5 * moments.standard_error());
}

TEST(SampledAggregation, OfRescaledClustersIsUnbiased) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  for (auto recipe : store_recipes()) {
    SCOPED_TRACE(recipe.name);
    recipe.num_clusters = 8;
    auto const store = make_store(self, recipe);
    auto const sizes = sampling::count_strata(self, store, {sampling::Strata::By::cluster, {}}, 8);
    ClusterSampler const sampler({5, store.facts().num_vertices / 2 + 1, 1, 1, BatchEdges::rescale}, sizes,
                                 store.facts().split_sizes[0]);
    EXPECT_EQ(sampler.num_batches(), 2);
    expect_means(sampled_moments(self, store, sampler, BatchEdges::rescale), normalised_matrix(store));
  }
}

// The bias of renormalized edges, by listing all batches: the mean over the sets that have the vertex of A^ of the
// subgraph. It is not A^; rows of a row-normalized one still sum to 1.
TEST(SampledAggregation, OfRenormalizedEdgesHasTheMeanOfAllSubgraphs) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  constexpr std::int64_t n = 8;
  for (auto const normalization : {graph::Normalization::symmetric, graph::Normalization::row}) {
    auto const store = make_store(self, {"sbm", "sbm:vertices=8,edges=14,classes=2,features=4",
                                         graph::PermutationKind::twofold, normalization});
    auto const a = plain_matrix(store);
    Dense mean(n, n);
    std::vector<double> num_sets(n);
    for (unsigned set = 0; set < 1U << n; ++set) {
      if (std::popcount(set) != 4) continue;
      std::vector<char> is_in(n);
      for (std::size_t v = 0; v < n; ++v)
        is_in[v] = static_cast<char>(set >> v & 1U);
      auto const part = normalised_part(a, normalization, is_in);
      for (std::int64_t i = 0; i < n; ++i) {
        num_sets[position(i)] += is_in[position(i)];
        for (std::int64_t j = 0; j < n; ++j)
          mean(i, j) += part(i, j);
      }
    }
    auto const full = normalised_matrix(store);
    auto bias = 0.0;
    for (std::int64_t i = 0; i < n; ++i) {
      auto row_sum = 0.0;
      for (std::int64_t j = 0; j < n; ++j) {
        mean(i, j) /= num_sets[position(i)];
        row_sum += mean(i, j);
        bias = std::max(bias, std::abs(mean(i, j) - full(i, j)));
      }
      if (normalization == graph::Normalization::row) {
        EXPECT_NEAR(row_sum, 1.0, 1e-12);
      }
    }
    EXPECT_GT(bias, 0.1);

    VertexSampler const sampler({5, 4, 1, 1, {}}, n, n);
    expect_means(sampled_moments(self, store, sampler, BatchEdges::renormalize), mean);
  }
}

} // namespace
} // namespace orthant::testing
