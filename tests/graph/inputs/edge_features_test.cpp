// SPDX-License-Identifier: Apache-2.0
//
// Features of vertices that are made of features of edges, beside sums of the numbers that do not cancel, and mistakes.
#include "graph/bad_input.hpp"

#include "graph/partition/input_summary.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <string>
#include <utility>
#include <vector>

namespace orthant::graph {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::int64_t num_vertices = 41; // the last one has no edges
constexpr std::int64_t num_columns = 11;  // more than travel in one message
constexpr std::int64_t few_edges = 9000;  // more than are read at once

/// Three edges in a row have the same ends; vertex 0 has most edges, some are self loops.
Edge edge(std::int64_t e) {
  auto const k = e / 3;
  return {k % 3 == 0 ? 0 : k * k % 40, k * 7 % 40};
}
/// Large, small and again large with the other sign: a sum in double would lose the small ones.
float number(std::int64_t e, std::int64_t column) {
  auto const wave = std::sin(static_cast<double>(e / 3 * 13 + column * 5));
  constexpr std::array<double, 3> sizes{1e12, 1e-3, -1e12};
  return static_cast<float>(e % 3 == 1 ? wave * sizes[1]
                                       : std::cos(static_cast<double>(e / 3)) *
                                             sizes[static_cast<std::size_t>(e % 3)]);
}

std::vector<float> expected(EdgeFeatures how, bool is_directed, std::int64_t num_edges) {
  std::vector<double> sums(num_vertices * num_columns);
  std::vector<double> counts(num_vertices);
  for (std::int64_t e = 0; e < num_edges; ++e) {
    auto const [source, target] = edge(e);
    std::vector<std::int64_t> ends{target};
    if (!is_directed && source != target) ends.push_back(source);
    for (auto const end : ends) {
      counts[static_cast<std::size_t>(end)] += 1;
      for (std::int64_t column = 0; column < num_columns; ++column) // the large numbers cancel
        if (e % 3 == 1)
          sums[static_cast<std::size_t>(end * num_columns + column)] +=
              static_cast<double>(number(e, column));
    }
  }
  std::vector<float> features;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    auto const count = std::max(1.0, counts[i / num_columns]);
    features.push_back(static_cast<float>(how == EdgeFeatures::sum ? sums[i] : sums[i] / count));
  }
  return features;
}

class FeaturesFromEdges : public BadInput {
 protected:
  /// Edges and their features as arrays, with 41 vertices.
  void write_arrays(std::string const& name, std::int64_t num_edges, std::string const& features) const {
    std::vector<std::int64_t> ends(static_cast<std::size_t>(2 * num_edges));
    std::vector<float> numbers;
    for (std::int64_t e = 0; e < num_edges; ++e) {
      ends[static_cast<std::size_t>(e)] = edge(e).source;
      ends[static_cast<std::size_t>(num_edges + e)] = edge(e).target;
      for (std::int64_t column = 0; column < num_columns; ++column)
        numbers.push_back(number(e, column));
    }
    write_array<std::int64_t>(name + "/edge_index.npy", "<i8", {2, num_edges}, ends);
    write_array<float>(name + "/" + features, "<f4", {num_edges, num_columns}, numbers);
    folder_.write(name + "/meta.json", fmt::format("{{\"num_nodes\": {}}}", num_vertices));
  }
  /// The same as texts of OGB.
  void write_texts(std::string const& name, std::string const& ending) const {
    constexpr std::int64_t num_edges = few_edges;
    std::string edges;
    std::string numbers;
    for (std::int64_t e = 0; e < num_edges; ++e) {
      edges += fmt::format("{},{}\n", edge(e).source, edge(e).target);
      for (std::int64_t column = 0; column < num_columns; ++column)
        numbers += fmt::format("{}{}", number(e, column), column + 1 == num_columns ? '\n' : ',');
    }
    folder_.write(name + "/raw/edge.csv" + ending, edges);
    folder_.write(name + "/raw/edge-feat.csv" + ending, numbers);
    folder_.write(name + "/raw/num-node-list.csv" + ending, fmt::format("{}\n", num_vertices));
  }
  std::vector<float> read(std::string const& name, std::int64_t num_edges, EdgeFeatures how,
                          bool is_directed) const {
    auto const source =
        open_graph(comm_, {.path = folder_.path() / name, .is_directed = is_directed, .edge_features = how});
    EXPECT_EQ(source->facts().num_features, num_columns);
    EXPECT_FALSE(source->facts().is_weighted);
    auto const whole = testing::read_whole(comm_, *source, 7);
    EXPECT_EQ(std::ssize(whole.edges), num_edges);
    return whole.features;
  }
  std::string told(std::string const& name) const {
    return message({.path = folder_.path() / name, .edge_features = EdgeFeatures::mean});
  }
};

TEST_F(FeaturesFromEdges, AreSumsAndMeansOfAllFormats) {
  constexpr std::int64_t many_edges = 90000; // more than are sent at once
  write_arrays("attr", many_edges, "edge_attr.npy");
  write_arrays("feat", few_edges, "edge_feat.npy");
  write_texts("gz", ".gz");
  write_texts("csv", "");
  for (auto const& [name, count] : {std::pair("attr", many_edges), std::pair("feat", few_edges),
                                    std::pair("gz", few_edges), std::pair("csv", few_edges)})
    for (auto const how : {EdgeFeatures::mean, EdgeFeatures::sum})
      for (bool const is_directed : {false, true})
        EXPECT_EQ(read(name, count, how, is_directed), expected(how, is_directed, count))
            << name << is_directed;
}

TEST_F(FeaturesFromEdges, AreInTheEstimateOfMemory) {
  write_arrays("attr", few_edges, "edge_attr.npy");

  auto const source =
      open_graph(comm_, {.path = folder_.path() / "attr", .edge_features = EdgeFeatures::sum});

  auto const held = runtime::all_reduced(comm_, source->memory().held_bytes);
  EXPECT_EQ(held, 4 * num_vertices * num_columns);
  auto const opening = runtime::all_reduced(comm_, source->memory().opening_bytes);
  EXPECT_EQ(opening, num_vertices * (20 * num_columns + 8)); // sums, rounded sums and counts
  auto const plain = open_graph(comm_, {.path = folder_.path() / "attr"});
  auto const estimate = [&](GraphSource const& of) {
    return estimate_partition(comm_, of, PermutationKind::twofold).memory_bytes;
  };
  EXPECT_GE(estimate(*source), estimate(*plain) + held);
}

TEST_F(FeaturesFromEdges, AreNamedAmongTheFilesThatAreRead) {
  write_texts("csv", "");
  InputFiles files;
  static_cast<void>(
      open_graph(comm_, {.path = folder_.path() / "csv", .edge_features = EdgeFeatures::sum}, &files));
  if (comm_.is_root()) {
    EXPECT_THAT(files.read, Contains("raw/edge-feat.csv"));
  }
  files = {};
  static_cast<void>(open_graph(comm_, {.path = folder_.path() / "csv"}, &files));
  if (comm_.is_root()) {
    EXPECT_THAT(files.unused, Contains("raw/edge-feat.csv"));
  }
}

TEST_F(FeaturesFromEdges, StandBesideWeights) {
  write_array<std::int64_t>("w/edge_index.npy", "<i8", {2, 2}, {0, 1, 1, 2});
  write_array<float>("w/edge_weight.npy", "<f4", {2}, {2, 3});
  write_array<double>("w/edge_attr.npy", "<f8", {2, 1}, {5, 7});
  auto const source = open_graph(comm_, {.path = folder_.path() / "w", .edge_features = EdgeFeatures::mean});
  auto const whole = testing::read_whole(comm_, *source);
  EXPECT_EQ(whole.features, (std::vector<float>{5, 6, 7}));
  EXPECT_EQ(whole.weights.size(), 2U);
}

TEST_F(FeaturesFromEdges, WithMistakes) {
  write_npy("none");
  EXPECT_THAT(told("none"), HasSubstr("has no features of edges; looked for edge-feat.csv[.gz]"));
  EXPECT_THAT(message({.path = folder_.write("e.txt", "0 1\n"), .edge_features = EdgeFeatures::sum}),
              HasSubstr("e.txt has no features of edges"));
  write_array<float>("none/edge_attr.npy", "<f4", {3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(told("none"), HasSubstr("vertices have features in"));
  remove("none/x.npy");
  EXPECT_EQ(told("none"), "accepted");
  EXPECT_THAT(
      message({.path = folder_.path() / "none", .edge_features = EdgeFeatures::mean, .random_features = 3}),
      HasSubstr("leave one of them out"));
  write_array<float>("none/edge_attr.npy", "<f4", {2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(told("none"), HasSubstr("[3, features], a row an edge, is wanted"));
  folder_.write("none/meta.json", "{\"num_nodes\": 1099511627776}");
  write_array<float>("none/edge_attr.npy", "<f4", {3, 1 << 20}, std::vector<float>(3 << 20));
  remove("none/labels.npy");
  EXPECT_THAT(told("none"), HasSubstr("edge_attr.npy: bytes of 1048576 features a vertex"));
  remove("none/meta.json");
  write_array<float>("none/edge_attr.npy", "<f4", {3}, {1, 2, 3});
  EXPECT_THAT(told("none"), HasSubstr("[3, features], a row an edge, is wanted"));
  write_array<float>("none/edge_attr.npy", "<f4", {3, 1}, {1, NAN, 3});
  EXPECT_THAT(told("none"), HasSubstr("edge_attr.npy"));
  write_array<float>("none/edge_attr.npy", "<f4", {3, 1}, {3e38F, 3e38F, 3});
  EXPECT_EQ(told("none"), "accepted"); // a mean
  EXPECT_THAT(message({.path = folder_.path() / "none", .edge_features = EdgeFeatures::sum}),
              HasSubstr("the features of the edges at vertex 1 add up to more than a float holds"));

  write_ogb("ogb");
  remove("ogb/raw/node-feat.csv.gz");
  auto const of_text = [&](std::string const& text) {
    folder_.write("ogb/raw/edge-feat.csv.gz", text);
    return told("ogb");
  };
  EXPECT_EQ(of_text("1\n2\n3\n4\n"), "accepted");
  EXPECT_EQ(of_text("a,b\n1,1\n2,2\n3,3\n4,4\n"), "accepted"); // names of columns
  EXPECT_THAT(of_text("1\n2\n3\n"), HasSubstr("the graph has 4 edges, a line each"));
  EXPECT_THAT(of_text("1\n2\n3\n4\n5\n"),
              HasSubstr("edge-feat.csv.gz:5: more lines than the graph's 4 edges"));
  EXPECT_THAT(of_text("1,2\n2\n3,4\n4,5\n"), HasSubstr("edge-feat.csv.gz:2"));
  EXPECT_THAT(of_text("1\nx\n3\n4\n"), HasSubstr("edge-feat.csv.gz:2"));
  EXPECT_THAT(of_text(""), HasSubstr("edge-feat.csv.gz is empty"));
  write_ogb("ogb");
  EXPECT_THAT(of_text("1\n2\n3\n4\n"), HasSubstr("vertices have features in"));
}

} // namespace
} // namespace orthant::graph
