// SPDX-License-Identifier: Apache-2.0
//
// The data sets of ORTHANT_DATA: read whole, and the same from each of their formats.
#include "graph/read/open_graph.hpp"
#include "graph_probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orthant::graph {
namespace {

using testing::read_whole;
using testing::world;

struct Expected {
  char const* name;
  std::int64_t num_vertices;
  std::int64_t num_edges;
  FeatureKind feature_kind;
  std::int64_t num_features;
  std::int64_t num_classes;
  std::size_t num_train, num_valid, num_test;
};

class DataSets : public ::testing::TestWithParam<Expected> {};

// Counts of the data sets' own documentation.
INSTANTIATE_TEST_SUITE_P(
    Shared, DataSets,
    ::testing::Values(
        Expected{"cora", 2708, 5278, FeatureKind::dense, 1433, 7, 140, 500, 1000},
        Expected{"citeseer", 3327, 4552, FeatureKind::dense, 3703, 6, 120, 500, 1000},
        Expected{"pubmed_graph", 19717, 44324, FeatureKind::none, 0, 3, 60, 500, 1000},
        Expected{"amazon_photo", 7650, 119081, FeatureKind::dense, 745, 8, 160, 240, 7250},
        Expected{"amazon_computers", 13752, 245861, FeatureKind::dense, 767, 10, 200, 300, 13252},
        Expected{"coauthor_cs", 18333, 81894, FeatureKind::sparse, 6805, 15, 300, 450, 17583},
        Expected{"coauthor_physics", 34493, 247962, FeatureKind::sparse, 8415, 5, 100, 150, 34243},
        Expected{"arxiv_2023", 33868, 305672, FeatureKind::dense, 128, 40, 19461, 4682, 668},
        Expected{"tolokers", 11758, 519000, FeatureKind::dense, 10, 2, 5879, 2939, 2940},
        Expected{"slashdot0902", 82168, 948464, FeatureKind::none, 0, 0, 0, 0, 0},
        Expected{"gowalla_bipartite", 70839, 810128, FeatureKind::none, 0, 0, 0, 0, 0},
        Expected{"road_moscow", 411992, 450919, FeatureKind::none, 0, 0, 0, 0, 0},
        Expected{"road_luxembourg", 114599, 119666, FeatureKind::none, 0, 0, 0, 0, 0},
        Expected{"delaunay_n16", 65536, 196575, FeatureKind::none, 0, 0, 0, 0, 0}),
    [](auto const& data) { return std::string(data.param.name); });

std::vector<Edge> sorted(std::vector<Edge> edges) {
  std::ranges::sort(edges);
  return edges;
}

TEST_P(DataSets, CanBeRead) {
  auto const& expected = GetParam();
  auto const path = testing::data_set(expected.name);
  if (path.empty()) GTEST_SKIP() << "ORTHANT_DATA has no " << expected.name;
  auto const comm = world();

  auto const source = open_graph(comm, {.path = path});

  auto const& facts = source->facts();
  EXPECT_EQ(facts.num_vertices, expected.num_vertices);
  EXPECT_EQ(facts.num_edges, expected.num_edges);
  EXPECT_EQ(facts.feature_kind, expected.feature_kind);
  EXPECT_EQ(facts.num_features, expected.num_features);
  EXPECT_EQ(facts.num_classes, expected.num_classes);
  EXPECT_EQ(facts.name, expected.name);
  EXPECT_FALSE(facts.is_directed);
  EXPECT_FALSE(facts.is_weighted);
  // Wide features are streamed only: gathered, they would not fit.
  std::int64_t num_edges = 0;
  std::int64_t num_rows = 0;
  SplitShare split;
  runtime::together(comm, [&] {
    testing::drain(*source->edges(1 << 16), [&](EdgeBatch const& batch) {
      num_edges += static_cast<std::int64_t>(batch.edges.size());
    });
    if (facts.feature_kind != FeatureKind::none)
      testing::drain(*source->features(4096),
                     [&](FeatureBatch const& batch) { num_rows += batch.rows.size(); });
    if (facts.has_split) split = source->split(0);
  });
  EXPECT_EQ(runtime::all_reduced(comm, num_edges), expected.num_edges);
  EXPECT_EQ(runtime::all_reduced(comm, num_rows), facts.num_features > 0 ? expected.num_vertices : 0);
  EXPECT_EQ(runtime::all_reduced(comm, static_cast<std::int64_t>(split.train.size())),
            static_cast<std::int64_t>(expected.num_train));
  EXPECT_EQ(runtime::all_reduced(comm, static_cast<std::int64_t>(split.valid.size())),
            static_cast<std::int64_t>(expected.num_valid));
  EXPECT_EQ(runtime::all_reduced(comm, static_cast<std::int64_t>(split.test.size())),
            static_cast<std::int64_t>(expected.num_test));
}

TEST(DataSets, RawAndNpyHoldTheSame) {
  auto const comm = world();
  for (std::string const name : {"cora", "tolokers"}) {
    auto const path = testing::data_set(name);
    if (path.empty()) GTEST_SKIP() << "ORTHANT_DATA has no " << name;

    auto const raw = read_whole(comm, *open_graph(comm, {.path = path, .format = InputFormat::ogb}));
    auto const npy = read_whole(comm, *open_graph(comm, {.path = path / "npy"}));

    EXPECT_EQ(sorted(raw.edges), sorted(npy.edges));
    // tolokers' text was written with fewer digits than a float has.
    EXPECT_THAT(raw.features, ::testing::Pointwise(::testing::FloatNear(1e-6f), npy.features));
    EXPECT_EQ(raw.classes, npy.classes);
    EXPECT_EQ(raw.train, npy.train);
    EXPECT_EQ(raw.valid, npy.valid);
    EXPECT_EQ(raw.test, npy.test);
  }
}

TEST(DataSets, MatrixMarketAndRawHoldTheSame) {
  auto const comm = world();
  auto const path = testing::data_set("road_luxembourg");
  if (path.empty()) GTEST_SKIP() << "ORTHANT_DATA has no road_luxembourg";
  auto const upwards = [](std::vector<Edge> edges) {
    for (auto& edge : edges)
      if (edge.source > edge.target) std::swap(edge.source, edge.target);
    return sorted(std::move(edges));
  };

  auto const raw = read_whole(comm, *open_graph(comm, {.path = path}));
  auto const mtx = read_whole(comm, *open_graph(comm, {.path = path / "road_luxembourg.mtx"}));
  auto const found = open_graph(comm, {.path = path, .format = InputFormat::mtx});

  EXPECT_EQ(upwards(raw.edges), upwards(mtx.edges));
  EXPECT_EQ(found->facts().num_edges, 119666);
}

TEST(DataSets, MissingLabelsOfCiteseer) {
  auto const comm = world();
  auto const path = testing::data_set("citeseer");
  if (path.empty()) GTEST_SKIP() << "ORTHANT_DATA has no citeseer";

  auto const source = open_graph(comm, {.path = path});
  std::vector<std::int64_t> mine;
  runtime::together(comm, [&] {
    testing::drain(*source->labels(1000), [&](LabelBatch const& batch) {
      mine.insert(mine.end(), batch.classes.begin(), batch.classes.end());
    });
  });

  auto const classes = testing::gather_all(comm, mine);
  EXPECT_EQ(std::ranges::count(classes, -1), 15);
  EXPECT_EQ(std::ranges::count(classes, 4), 596);
}

} // namespace
} // namespace orthant::graph
