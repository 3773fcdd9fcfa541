// SPDX-License-Identifier: Apache-2.0
//
// Features of vertices that are made of features of edges, beside sums in long double, and mistakes.
#include "graph/bad_input.hpp"

#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <string>
#include <vector>

namespace orthant::graph {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::int64_t num_vertices = 41; // the last one has no edges
constexpr std::int64_t num_columns = 11;  // more than travel in one message
constexpr std::int64_t num_edges = 9000;  // more than are read at once

/// Edge e; vertex 0 has most edges, some are self loops, some are repeated.
Edge edge(std::int64_t e) {
  return {e % 3 == 0 ? 0 : e * e % 40, e * 7 % 40};
}
/// Numbers of very different size, whose sum in double depends on the order.
float number(std::int64_t e, std::int64_t column) {
  auto const wave = std::sin(static_cast<double>(e * 13 + column * 5));
  return static_cast<float>(wave * std::pow(10.0, static_cast<double>((e + column) % 12)));
}

std::vector<float> expected(EdgeFeatures how, bool is_directed) {
  std::vector<long double> sums(num_vertices * num_columns);
  std::vector<long double> counts(num_vertices);
  for (std::int64_t e = 0; e < num_edges; ++e) {
    auto const [source, target] = edge(e);
    std::vector<std::int64_t> ends{target};
    if (!is_directed && source != target) ends.push_back(source);
    for (auto const end : ends) {
      counts[static_cast<std::size_t>(end)] += 1;
      for (std::int64_t column = 0; column < num_columns; ++column)
        sums[static_cast<std::size_t>(end * num_columns + column)] +=
            static_cast<long double>(number(e, column));
    }
  }
  std::vector<float> features;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    auto const count = std::max(1.0L, counts[i / num_columns]);
    features.push_back(static_cast<float>(how == EdgeFeatures::sum ? sums[i] : sums[i] / count));
  }
  return features;
}

class FeaturesFromEdges : public BadInput {
 protected:
  /// Edges and their features as arrays, with 41 vertices.
  void write_arrays(std::string const& name, std::string const& features = "edge_attr.npy") const {
    std::vector<std::int64_t> ends(2 * num_edges);
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
  std::vector<float> read(std::string const& name, EdgeFeatures how, bool is_directed) const {
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
  write_arrays("npy");
  write_arrays("feat", "edge_feat.npy");
  write_texts("gz", ".gz");
  write_texts("csv", "");
  for (auto const* const name : {"npy", "feat", "gz", "csv"})
    for (auto const how : {EdgeFeatures::mean, EdgeFeatures::sum})
      for (bool const is_directed : {false, true})
        EXPECT_EQ(read(name, how, is_directed), expected(how, is_directed)) << name << is_directed;
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
