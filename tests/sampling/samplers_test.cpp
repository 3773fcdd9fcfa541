// SPDX-License-Identifier: Apache-2.0
//
// Batches of degrees and of clusters, and renormalized ones, are those of the definition, by brute force in
// original ids, on every grid; and making them sends nothing.
#include "sampling/vertex_sampler.hpp"
#include "whole_blocks.hpp"

#include <set>

namespace orthant::testing {
namespace {

using sampling::BatchEdges;
using sampling::BatchKeys;
using sampling::ClusterSampler;
using sampling::DegreeSampler;
using sampling::VertexSampler;

constexpr std::int64_t num_clusters = 9;

/// Stores of all kinds that are normalized, with clusters.
std::vector<StoreRecipe> clustered_recipes() {
  std::vector<StoreRecipe> recipes;
  for (auto recipe : store_recipes()) {
    recipe.num_clusters = num_clusters;
    if (recipe.normalization != graph::Normalization::none) recipes.push_back(recipe);
  }
  return recipes;
}

/// All vertices of a store, by position of order p1.
graph::Range everything(graph::GraphStore const& store) {
  return {0, store.facts().num_vertices};
}

std::vector<std::int64_t> vertices_by_cluster(graph::GraphStore const& store) {
  return vertices_sorted(store, store.read_clusters(graph::Order::p1, everything(store)),
                         [](auto cluster) { return cluster; });
}

/// By the bounds, from the smallest degrees on; counted on the whole matrix.
std::vector<std::int64_t> vertices_by_degree(graph::GraphStore const& store,
                                             std::vector<std::int64_t> const& bounds) {
  return vertices_sorted(store, store.read_degrees(graph::Order::p1, everything(store)), [&](auto degree) {
    return std::count_if(bounds.begin(), bounds.end(), [&](auto bound) { return bound <= degree; });
  });
}

/// A of the batch with the degrees that its vertices have in it.
Dense renormalized_matrix(graph::GraphStore const& store, BatchMembers const& members) {
  return normalised_part(plain_matrix(store), store.facts().normalization, members.is_in);
}

/// Of whole clusters: an edge between two of them counts (K - 1) / (q - 1) times.
Dense rescaled_clusters(graph::GraphStore const& store, BatchMembers const& members, std::int64_t num_all,
                        std::int64_t num_drawn) {
  auto a = normalised_matrix(store);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.columns; ++j) {
      if (members.is_in[position(i)] == 0 || members.is_in[position(j)] == 0) a(i, j) = 0;
      if (members.stratum[position(i)] != members.stratum[position(j)])
        a(i, j) *= static_cast<double>(num_all - 1) / static_cast<double>(num_drawn - 1);
    }
  return a;
}

class SamplersOnGrids : public GridBlocks {
 protected:
  [[nodiscard]] std::int64_t num_groups() const { return grid_.size(pmm::Axis::data); }
  [[nodiscard]] std::int64_t batch_of_group(sampling::Sampler const& sampler) const {
    return sampler.batch_of(sampler.num_steps() - 1, grid_.coordinate(pmm::Axis::data));
  }
  /// Other stores on other grids.
  [[nodiscard]] static std::size_t first_recipe() {
    std::size_t first = 0;
    for (auto const size : GetParam())
      first = 3 * first + static_cast<std::size_t>(size);
    return first;
  }
  template<class Check>
  void for_some_recipes(Check const& check) const {
    auto const recipes = clustered_recipes();
    for (std::size_t i = 0; i < 2; ++i) {
      auto const& recipe = recipes[(first_recipe() + 3 * i) % recipes.size()];
      SCOPED_TRACE(recipe.name);
      check(make_store(self_, recipe));
    }
  }
};

TEST_P(SamplersOnGrids, UniformRenormalized) {
  for_some_recipes([&](graph::GraphStore const& store) {
    auto const n = store.facts().num_vertices;
    for (auto const train_fraction : {std::optional<double>(), std::optional<double>(0.4)}) {
      if (train_fraction && num_groups() > 1) continue; // too few training vertices
      VertexSampler const sampler({5, 12 / num_groups() + 3, num_groups(), 1, train_fraction}, n,
                                  store.facts().split_sizes[0]);
      auto const vertices = vertices_by_key(store, train_fraction ? 2 : 1);
      check_batch(
          store, sampler, BatchEdges::renormalize, 3, batch_of_group(sampler),
          [&](BatchKeys const& keys) { return renormalized_matrix(store, members_of(keys, vertices)); });
    }
  });
}

TEST_P(SamplersOnGrids, Degree) {
  for_some_recipes([&](graph::GraphStore const& store) {
    auto const n = store.facts().num_vertices;
    DegreeSampler const sampler({5, n / num_groups() / 2, num_groups(), 1},
                                sampling::count_degrees(world_, store), store.facts().split_sizes[0]);
    for (std::size_t b = 0; b < sampler.num_drawn().size(); ++b)
      EXPECT_GE(sampler.num_drawn()[b], std::min<std::int64_t>(2, sampler.stratum_sizes()[b]));
    auto bounds = sampler.strata().degree_bounds;
    bounds.pop_back();
    auto const vertices = vertices_by_degree(store, bounds);
    check_batch(store, sampler, BatchEdges::rescale, 2, batch_of_group(sampler), [&](BatchKeys const& keys) {
      return sampled_matrix(normalised_matrix(store), members_of(keys, vertices), sampler.stratum_sizes());
    });
    check_batch(
        store, sampler, BatchEdges::renormalize, 2, batch_of_group(sampler),
        [&](BatchKeys const& keys) { return renormalized_matrix(store, members_of(keys, vertices)); });
  });
}

TEST_P(SamplersOnGrids, Clusters) {
  for_some_recipes([&](graph::GraphStore const& store) {
    auto const n = store.facts().num_vertices;
    auto const sizes =
        sampling::count_strata(world_, store, {sampling::Strata::By::cluster, {}}, num_clusters);
    auto const num_all = std::count_if(sizes.begin(), sizes.end(), [](auto size) { return size > 0; });
    auto const vertices = vertices_by_cluster(store);
    for (auto const edges : {BatchEdges::rescale, BatchEdges::renormalize}) {
      if (num_groups() > num_all / (edges == BatchEdges::rescale ? 2 : 1)) continue;
      auto const size = sampling::divided_up(n, std::max<std::int64_t>(2, num_groups()));
      ClusterSampler const sampler({5, size, num_groups(), 1, edges}, sizes, store.facts().split_sizes[0]);
      check_batch(store, sampler, edges, 2, batch_of_group(sampler), [&](BatchKeys const& keys) {
        auto const members = members_of(keys, vertices);
        return edges == BatchEdges::renormalize
                   ? renormalized_matrix(store, members)
                   : rescaled_clusters(store, members, num_all, static_cast<std::int64_t>(keys.num_strata()));
      });
    }
  });
}

// What the store says of clusters: each batch has whole ones, and an epoch every vertex once.
TEST(ClusterSampler, AnEpochHasEveryClusterOnceInWholeBatches) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  auto const store = make_store(self, clustered_recipes()[0]);
  auto const n = store.facts().num_vertices;
  auto const sizes = sampling::count_strata(world, store, {sampling::Strata::By::cluster, {}}, num_clusters);
  ClusterSampler const sampler({7, 20, 1, 1, BatchEdges::renormalize}, sizes, 10);
  auto const vertices = vertices_by_cluster(store);
  std::vector<std::int64_t> cluster_of(position(n));
  auto const ids = store.read_original_ids(graph::Order::p1, {0, n});
  auto const clusters = store.read_clusters(graph::Order::p1, {0, n});
  for (std::size_t i = 0; i < ids.size(); ++i)
    cluster_of[position(ids[i])] = clusters[i];

  std::set<std::vector<std::int64_t>> different;
  for (std::int64_t epoch = 1; epoch <= 5; ++epoch) {
    std::set<std::int64_t> met;
    for (std::int64_t t = 0; t < sampler.num_batches(); ++t) {
      BatchKeys keys;
      sampler.draw(epoch, t, keys);
      different.insert(keys.keys);
      std::set<std::int64_t> found;
      std::set<std::int64_t> clusters_found;
      for (auto const key : keys.keys) {
        found.insert(vertices[position(key)]);
        clusters_found.insert(cluster_of[position(vertices[position(key)])]);
      }
      EXPECT_EQ(std::ssize(found), keys.size());
      std::int64_t num_in_clusters = 0;
      for (auto const cluster : clusters_found)
        num_in_clusters += sizes[position(cluster)];
      EXPECT_EQ(num_in_clusters, keys.size());
      met.insert(found.begin(), found.end());
    }
    EXPECT_EQ(std::ssize(met), n);
  }
  EXPECT_GT(different.size(), 10U);
}

// Twice the degree, about twice as often: shares of strata are those of their sums of degree + 1.
TEST(DegreeSampler, DrawsStrataByTheirDegrees) {
  sampling::DegreeClasses classes{std::vector<std::int64_t>(64), std::vector<std::int64_t>(64)};
  classes.counts[0] = 1; // joins the next: it alone would give less than two vertices
  classes.weights[0] = 1;
  classes.counts[2] = 1000;
  classes.weights[2] = 3500;
  classes.counts[5] = 100;
  classes.weights[5] = 2400;
  classes.counts[10] = 5; // all of them in every batch
  classes.weights[10] = 4000;
  DegreeSampler const sampler({3, 105, 1, 1}, classes, 50);

  EXPECT_EQ(sampler.stratum_sizes(), (std::vector<std::int64_t>{1001, 100, 5}));
  EXPECT_EQ(sampler.num_drawn(), (std::vector<std::int64_t>{59, 40, 5})); // of 100: 3,501 and 2,400 of 5,901
  EXPECT_EQ(sampler.num_batches(), 11);
  EXPECT_EQ(sampler.strata().degree_bounds[1], 16);
  BatchKeys keys;
  sampler.draw(2, 10, keys);
  EXPECT_EQ(std::set<std::int64_t>(keys.keys.begin(), keys.keys.end()).size(), 104U);
  EXPECT_EQ(keys.factors[8], 1.0);          // among the hubs
  EXPECT_EQ(keys.factors[1], 100.0 / 40.0); // from the second stratum to the first
  EXPECT_EQ(keys.factors[4], 99.0 / 39.0);  // within the second
  EXPECT_DOUBLE_EQ(keys.loss_weights[1], 100.0 / 40.0 * 104.0 / 1106.0);
}

template<class Make>
std::string message_of(Make const& make) {
  try {
    make();
  } catch (runtime::UserError const& error) {
    return error.what();
  }
  return "none";
}

TEST(ClusterSampler, RefusesWhatMakesNoBatches) {
  auto const make = [](std::int64_t size, std::int64_t count, BatchEdges edges) {
    return message_of([&] {
      ClusterSampler const sampler({1, size, 1, 1, edges}, std::vector<std::int64_t>(position(count), 10),
                                   10);
    });
  };

  EXPECT_EQ(make(5, 8, BatchEdges::renormalize),
            "batches of 5 vertices make 16 an epoch, but the store has 8 clusters; give larger batches, or "
            "partition the graph with --clusters 32 or more");
  EXPECT_EQ(make(10, 8, BatchEdges::renormalize), "none");
  EXPECT_EQ(make(10, 8, BatchEdges::rescale),
            "some batches are one cluster, whose edges to others cannot be rescaled; give larger batches, "
            "--batch-edges renormalize, or partition the graph with --clusters 16 or more");
  EXPECT_EQ(make(1280, 128, BatchEdges::rescale),
            "batches have 128 clusters, but --batch-edges rescale takes at most 127; give smaller batches or "
            "--batch-edges renormalize");
  EXPECT_EQ(make(81, 8, BatchEdges::renormalize),
            "a batch of 81 vertices, but the graph has 80; give --batch 80 or less");
}

INSTANTIATE_TEST_SUITE_P(Grids, SamplersOnGrids, ::testing::ValuesIn(grids_4d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
