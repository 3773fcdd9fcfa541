// SPDX-License-Identifier: Apache-2.0
#include "graph/generate/generators.hpp"
#include "graph_probe.hpp"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <set>

namespace orthant::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_whole;
using testing::WholeGraph;
using testing::world;

std::vector<std::int64_t> degrees(WholeGraph const& graph, std::int64_t num_vertices) {
  std::vector<std::int64_t> degree(static_cast<std::size_t>(num_vertices));
  for (auto const& edge : graph.edges) {
    ++degree[static_cast<std::size_t>(edge.source)];
    ++degree[static_cast<std::size_t>(edge.target)];
  }
  return degree;
}

/// Number of connected components, by union-find.
std::int64_t count_components(WholeGraph const& graph, std::int64_t num_vertices) {
  std::vector<std::size_t> parent(static_cast<std::size_t>(num_vertices));
  std::iota(parent.begin(), parent.end(), std::size_t{0});
  auto const root = [&](std::size_t v) {
    while (parent[v] != v)
      v = parent[v] = parent[parent[v]];
    return v;
  };
  auto components = num_vertices;
  for (auto const& edge : graph.edges) {
    auto const a = root(static_cast<std::size_t>(edge.source));
    auto const b = root(static_cast<std::size_t>(edge.target));
    if (a != b) --components;
    parent[a] = b;
  }
  return components;
}

class EveryKind : public ::testing::TestWithParam<GeneratorOptions> {};

INSTANTIATE_TEST_SUITE_P(
    Generators, EveryKind,
    ::testing::Values(
        GeneratorOptions{.kind = GeneratorKind::rmat,
                         .num_vertices = 1000,
                         .num_edges = 5000,
                         .num_features = 5,
                         .num_classes = 3,
                         .seed = 1},
        GeneratorOptions{.kind = GeneratorKind::rmat,
                         .num_vertices = 2,
                         .num_edges = 3,
                         .num_features = 1,
                         .num_classes = 2},
        GeneratorOptions{
            .kind = GeneratorKind::sbm, .num_vertices = 500, .num_features = 4, .num_classes = 7, .seed = 9},
        GeneratorOptions{.kind = GeneratorKind::sbm,
                         .num_vertices = 3,
                         .num_edges = 10,
                         .num_features = 2,
                         .num_classes = 3},
        GeneratorOptions{.kind = GeneratorKind::grid2d,
                         .num_vertices = 103,
                         .num_edges = 115,
                         .num_features = 2,
                         .num_classes = 4},
        GeneratorOptions{
            .kind = GeneratorKind::grid2d, .num_vertices = 101, .num_features = 2, .num_classes = 4},
        GeneratorOptions{.kind = GeneratorKind::ring,
                         .num_vertices = 17,
                         .num_edges = 40,
                         .num_features = 3,
                         .num_classes = 5},
        GeneratorOptions{
            .kind = GeneratorKind::ring, .num_vertices = 2, .num_features = 1, .num_classes = 2}));

TEST_P(EveryKind, IsTheSameOnAnyNumberOfRanks) {
  auto const comm = world();
  auto const alone = comm.split(comm.rank(), 0, "self");

  auto const source = generate_graph(comm, GetParam());
  auto const whole = read_whole(comm, *source, 64);
  auto const serial = read_whole(alone, *generate_graph(alone, GetParam()), 1000);

  EXPECT_EQ(whole.edges, serial.edges);
  EXPECT_EQ(whole.features, serial.features);
  EXPECT_EQ(whole.classes, serial.classes);
  EXPECT_EQ(whole.train, serial.train);
  EXPECT_EQ(whole.valid, serial.valid);
  EXPECT_EQ(whole.test, serial.test);
  auto const& facts = source->facts();
  EXPECT_EQ(static_cast<std::int64_t>(whole.edges.size()), facts.num_edges);
  for (auto const& edge : whole.edges)
    EXPECT_TRUE(edge.source >= 0 && edge.source < facts.num_vertices && edge.target >= 0 &&
                edge.target < facts.num_vertices);
  for (auto const label : whole.classes)
    EXPECT_TRUE(label >= 0 && label < facts.num_classes);
  EXPECT_EQ(static_cast<std::int64_t>(whole.train.size() + whole.valid.size() + whole.test.size()),
            facts.num_vertices);
}

TEST_P(EveryKind, AnotherSeedIsAnotherGraph) {
  auto const comm = world();
  auto options = GetParam();
  auto const whole = read_whole(comm, *generate_graph(comm, options));

  options.seed += 1;
  auto const other = read_whole(comm, *generate_graph(comm, options));

  EXPECT_NE(whole.features, other.features);
  if (options.kind == GeneratorKind::sbm ||
      (options.kind == GeneratorKind::rmat && options.num_vertices > 2)) {
    EXPECT_NE(whole.edges, other.edges);
  }
}

TEST(RMat, HasTheQuadrantsOfItsCorners) {
  auto const comm = world();
  // Two vertices: one level, so an edge falls in a quadrant with the corner's own probability, up to the
  // labels.
  GeneratorOptions options{.kind = GeneratorKind::rmat, .num_vertices = 2, .num_edges = 100000};
  options.corners = {0.5, 0.3, 0.15};

  auto const whole = read_whole(comm, *generate_graph(comm, options), 4096);

  std::map<std::pair<std::int64_t, std::int64_t>, double> share;
  for (auto const& edge : whole.edges)
    share[{edge.source, edge.target}] += 1e-5;
  auto const first = share[{0, 0}] > share[{1, 1}] ? 0 : 1; // the label of the heavy corner
  constexpr double tolerance = 6 * 0.0016; // six standard deviations of a share of 100,000 draws
  EXPECT_NEAR((share[{first, first}]), 0.5, tolerance);
  EXPECT_NEAR((share[{first, 1 - first}]), 0.3, tolerance);
  EXPECT_NEAR((share[{1 - first, first}]), 0.15, tolerance);
}

TEST(RMat, IsSkewedAndShuffled) {
  auto const comm = world();
  constexpr std::int64_t num_vertices = 1 << 14;
  GeneratorOptions const options{
      .kind = GeneratorKind::rmat, .num_vertices = num_vertices, .num_edges = 1 << 18};

  auto const degree = degrees(read_whole(comm, *generate_graph(comm, options), 1 << 14), num_vertices);

  auto const hub = std::ranges::max_element(degree);
  EXPECT_GT(*hub, 20 * 32) << "the mean degree is 32";
  // In an unshuffled matrix the ids with few bits set hold the hubs: the first 1/16 would hold a third of all
  // ends.
  auto const head = std::accumulate(degree.begin(), degree.begin() + num_vertices / 16, std::int64_t{0});
  EXPECT_LT(static_cast<double>(head) / (2 << 18), 0.12);
}

TEST(StochasticBlocks, JoinWhatIsInOneBlock) {
  auto const comm = world();
  GeneratorOptions options{
      .kind = GeneratorKind::sbm, .num_vertices = 2000, .num_edges = 40000, .num_classes = 5};
  options.homophily = 0.7;

  auto const whole = read_whole(comm, *generate_graph(comm, options));

  std::vector<std::int64_t> sizes(5);
  for (auto const label : whole.classes)
    ++sizes[static_cast<std::size_t>(label)];
  EXPECT_THAT(sizes, ElementsAre(400, 400, 400, 400, 400));
  std::int64_t num_within = 0;
  for (auto const& [source, target] : whole.edges) {
    EXPECT_NE(source, target);
    if (whole.classes[static_cast<std::size_t>(source)] == whole.classes[static_cast<std::size_t>(target)])
      ++num_within;
  }
  // 0.7 + 0.3 / 5, within six standard deviations of 40,000 draws.
  EXPECT_NEAR(static_cast<double>(num_within) / 40000, 0.76, 6 * 0.0022);
}

TEST(Features, TellTheClassAsFarAsTheyShould) {
  auto const comm = world();
  constexpr std::size_t num_features = 400;
  GeneratorOptions options{
      .kind = GeneratorKind::sbm, .num_vertices = 4000, .num_features = num_features, .num_classes = 2};
  options.separation = 3;

  auto const whole = read_whole(comm, *generate_graph(comm, options));

  std::vector<std::vector<double>> mean(2, std::vector<double>(num_features));
  for (std::size_t vertex = 0; vertex < whole.classes.size(); ++vertex)
    for (std::size_t feature = 0; feature < num_features; ++feature)
      mean[static_cast<std::size_t>(whole.classes[vertex])][feature] +=
          whole.features[vertex * num_features + feature] / 2000.0;
  double squared = 0;
  for (std::size_t feature = 0; feature < num_features; ++feature)
    squared += std::pow(mean[0][feature] - mean[1][feature], 2);
  // Noise of the estimated means adds 2 * 400 / 2000; the means themselves scatter by 3 / sqrt(2 * 400).
  EXPECT_NEAR(std::sqrt(squared - 0.4), 3, 0.5);
}

TEST(Grid2d, FullGridHasAllEdgesAndAPartIsConnected) {
  auto const comm = world();
  for (std::int64_t const n : {2, 3, 4, 5, 7, 9, 12, 103, 1000}) {
    GeneratorOptions options{.kind = GeneratorKind::grid2d, .num_vertices = n};
    auto const full = read_whole(comm, *generate_graph(comm, options));
    auto const width = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
    std::set<std::pair<std::int64_t, std::int64_t>> expected;
    for (std::int64_t v = 0; v < n; ++v) {
      if (v % width < width - 1 && v + 1 < n) expected.insert({v, v + 1});
      if (v + width < n) expected.insert({v, v + width});
    }
    std::set<std::pair<std::int64_t, std::int64_t>> found;
    for (auto const& [source, target] : full.edges)
      found.insert({source, target});
    EXPECT_EQ(found, expected) << n;
    EXPECT_EQ(found.size(), full.edges.size()) << "no edge twice";

    for (auto const num_edges : {n - 1, (n - 1 + static_cast<std::int64_t>(expected.size())) / 2}) {
      options.num_edges = num_edges;
      auto const part = read_whole(comm, *generate_graph(comm, options));
      EXPECT_EQ(static_cast<std::int64_t>(part.edges.size()), num_edges) << n;
      EXPECT_EQ(count_components(part, n), 1) << n;
    }
  }
}

TEST(Ring, OneNeighbourAfterTheOtherUpToTheCompleteGraph) {
  auto const comm = world();
  for (std::int64_t const n : {2, 3, 6, 7}) {
    GeneratorOptions const options{
        .kind = GeneratorKind::ring, .num_vertices = n, .num_edges = n * (n - 1) / 2};

    auto const whole = read_whole(comm, *generate_graph(comm, options));

    std::set<std::pair<std::int64_t, std::int64_t>> pairs;
    for (auto const& [a, b] : whole.edges)
      pairs.insert({std::min(a, b), std::max(a, b)});
    EXPECT_EQ(static_cast<std::int64_t>(pairs.size()), n * (n - 1) / 2);
    for (auto const degree : degrees(whole, n))
      EXPECT_EQ(degree, n - 1);
  }
}

TEST(KarateClub, HasItsPublishedNumbers) {
  auto const comm = world();

  auto const source = karate_club(comm);
  auto const whole = read_whole(comm, *source);
  auto const four = read_whole(comm, *karate_club(comm, 4));

  auto const degree = degrees(whole, 34);
  EXPECT_EQ(whole.edges.size(), 78u);
  EXPECT_EQ(degree[33], 17);
  EXPECT_EQ(degree[0], 16);
  EXPECT_EQ(degree[32], 12);
  EXPECT_EQ(degree[11], 1);
  EXPECT_EQ(count_components(whole, 34), 1);
  EXPECT_EQ(std::ranges::count(whole.classes, 0), 17) << "the instructor's club; 17 left with the president";
  EXPECT_THAT(whole.train, ElementsAre(0, 33));
  EXPECT_EQ(whole.classes[0], 0);
  EXPECT_EQ(whole.classes[33], 1);
  EXPECT_EQ(whole.train.size() + whole.valid.size() + whole.test.size(), 34u);
  std::int64_t num_between = 0; // ties cut by the split: 11, as often published
  for (auto const& [a, b] : whole.edges)
    if (whole.classes[static_cast<std::size_t>(a)] != whole.classes[static_cast<std::size_t>(b)])
      ++num_between;
  EXPECT_LE(num_between, 11);
  EXPECT_GE(num_between, 10);
  for (std::size_t i = 0; i < 34 * 34; ++i)
    EXPECT_EQ(whole.features[i], i % 35 == 0 ? 1.0f : 0.0f);
  EXPECT_THAT(four.train, ElementsAre(0, 4, 8, 24));
  std::set<std::int64_t> trained;
  for (auto const vertex : four.train)
    trained.insert(four.classes[static_cast<std::size_t>(vertex)]);
  EXPECT_EQ(trained.size(), 4u) << "one of each class";
}

TEST(Dataset, WordsMakeGraphs) {
  auto const comm = world();

  EXPECT_EQ(open_dataset(comm, "karate")->facts().num_classes, 2);
  EXPECT_EQ(open_dataset(comm, "karate:classes=4")->facts().num_classes, 4);
  auto const sbm =
      open_dataset(comm, "sbm:vertices=1e3,edges=4000,features=16,classes=5,seed=7,homophily=0.9,train=0.1");
  EXPECT_EQ(sbm->facts().num_vertices, 1000);
  EXPECT_EQ(sbm->facts().num_edges, 4000);
  EXPECT_EQ(sbm->facts().num_features, 16);
  EXPECT_EQ(sbm->facts().num_classes, 5);
  EXPECT_EQ(read_whole(comm, *sbm).train.size(), 100u);
  EXPECT_EQ(open_dataset(comm, "ring")->facts().num_edges, 2000);
  EXPECT_TRUE(open_dataset(comm, "rmat:a=0.5,b=0.2,c=0.2,directed=1")->facts().is_directed);
  EXPECT_EQ(open_dataset(comm, "grid2d:features=0,classes=0")->facts().feature_kind, FeatureKind::none);
}

TEST(Dataset, WrongWordsAreTheUsersMistake) {
  auto const comm = world();
  auto const message = [&](std::string const& text) -> std::string {
    try {
      static_cast<void>(open_dataset(comm, text));
    } catch (runtime::UserError const& error) {
      return error.what();
    }
    return "accepted";
  };

  EXPECT_THAT(message("karat"), HasSubstr("did you mean 'karate'"));
  EXPECT_THAT(message("sbm:vertces=5"), HasSubstr("did you mean 'vertices'"));
  EXPECT_THAT(message("sbm:vertices"), HasSubstr("not key=value"));
  EXPECT_THAT(message("sbm:vertices=many"), HasSubstr("vertices=many is not a number"));
  EXPECT_THAT(message("sbm:vertices=2.5"), HasSubstr("not a whole number"));
  EXPECT_THAT(message("sbm:vertices=1"), HasSubstr("at least 2"));
  EXPECT_THAT(message("sbm:seed=1,seed=2"), HasSubstr("given twice"));
  EXPECT_THAT(message("ring:vertices=5,edges=11,classes=2"), HasSubstr("at most 10 edges"));
  EXPECT_THAT(message("grid2d:vertices=9,edges=7,classes=2"), HasSubstr("8 to 12 edges"));
  EXPECT_THAT(message("sbm:homophily=2"), HasSubstr("between 0 and 1"));
  EXPECT_THAT(message("rmat:a=0.9,b=0.2"), HasSubstr("sum to at most 1"));
  EXPECT_THAT(message("sbm:train=0.9,valid=0.2"), HasSubstr("sum to at most 1"));
  EXPECT_THAT(message("karate:classes=3"), HasSubstr("2 or 4"));
}

} // namespace
} // namespace orthant::graph
