// SPDX-License-Identifier: Apache-2.0
//
// Averaged over epochs, the sampled aggregation of every vertex is the full one.
#include "sampling/batch_builder.hpp"
#include "sampling/vertex_sampler.hpp"
#include "sampling_fixture.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using sampling::Batch;
using sampling::BatchBuilder;
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
};

/// Over 2,000 epochs of all batches, whose sizes differ: every entry within 5 standard errors.
void expect_unbiased(runtime::Communicator const& self, StoreRecipe const& recipe,
                     sampling::VertexSamplerOptions const& options) {
  SCOPED_TRACE(::testing::Message() << recipe.name << ' ' << options.batch_size);
  auto const store = make_store(self, recipe);
  auto const n = store.facts().num_vertices;
  VertexSampler const sampler(options, n, store.facts().split_sizes[0]);
  BatchBuilder<double> builder(self, store, sampler);
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
          auto const value = aggregated(block, i, batch.vertices[columns], d);
          auto& entry = moments[position(vertex * num_columns + d)];
          ++entry.count;
          entry.sum += value;
          entry.squares += value * value;
        }
    }

  auto const a = normalised_matrix(store);
  for (std::int64_t v = 0; v < n; ++v)
    for (std::int64_t d = 0; d < num_columns; ++d) {
      auto const& entry = moments[position(v * num_columns + d)];
      auto full = 0.0;
      for (std::int64_t u = 0; u < n; ++u)
        full += a(v, u) * feature(u, d);
      auto const mean = entry.sum / entry.count;
      auto const variance = std::max(0.0, entry.squares / entry.count - mean * mean);
      // Rounding: 2,000 sums of numbers below 1,000 where nothing varies.
      EXPECT_NEAR(mean, full, 5 * std::sqrt(variance / entry.count) + 1e-9) << "vertex " << v;
    }
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

} // namespace
} // namespace orthant::testing
