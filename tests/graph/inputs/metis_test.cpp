// SPDX-License-Identifier: Apache-2.0
//
// Graph files of METIS: the graph of its manual in all formats, graphs with vertices that have no neighbors, and mistakes.
#include "graph/bad_input.hpp"
#include "graph/store/store_fixture.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <map>
#include <string>
#include <vector>

namespace orthant::graph {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// The graph of the manual, figures 2 and 3: 7 vertices, 11 edges.
constexpr auto plain = "7 11\n5 3 2\n1 3 4\n5 4 2 1\n2 3 6 7\n1 3 6\n5 4 7\n6 4\n";
constexpr auto with_edge_weights = "% of edges\n7 11 1\n5 1 3 2 2 1\n1 1 3 2 4 1\n5 3 4 2 2 2 1 2\n2 1 3 2 6 "
                                   "2 7 5\n1 1 3 3 6 2\n% 6\n5 2 4 2 7 6\n6 6 4 5\n";
constexpr auto with_both = "7 11 011\n4 5 1 3 2 2 1\n2 1 1 3 2 4 1\n5 5 3 4 2 2 2 1 2\n3 2 1 3 2 6 2 7 5\n1 "
                           "1 1 3 3 6 2\n6 5 2 4 2 7 6\n2 6 6 4 5";
constexpr auto with_sizes_and_three_weights = "7 11 110 3\n9 1 2 0 5 3 2\n9 0 2 2 1 3 4\n9 4 1 1 5 4 2 1\n9 "
                                              "2 2 3 2 3 6 7\n9 1 1 1 1 3 6\n9 2 2 1 5 4 7\n9 1 2 1 6 4\n";
std::vector<Edge> const edges_of_manual{{0, 4}, {0, 2}, {0, 1}, {1, 2}, {1, 3}, {2, 4},
                                        {2, 3}, {3, 5}, {3, 6}, {4, 5}, {5, 6}};
std::vector<float> const weights_of_manual{1, 2, 1, 2, 1, 3, 2, 2, 5, 2, 6};

class MetisFiles : public BadInput {
 protected:
  testing::WholeGraph read(std::string const& name, std::string_view text, bool use_weights = true) const {
    auto const source = open_graph(comm_, {.path = folder_.write(name, text), .use_weights = use_weights});
    EXPECT_FALSE(source->facts().is_directed);
    EXPECT_EQ(source->facts().format, "metis");
    return testing::read_whole(comm_, *source, 2);
  }
  std::string told(std::string_view text) const { return message({.path = folder_.write("m.graph", text)}); }
};

TEST_F(MetisFiles, OfTheManualAreRead) {
  for (std::string const name : {"m.graph", "m.graph.gz"}) {
    EXPECT_EQ(read(name, plain).edges, edges_of_manual);
    EXPECT_TRUE(read(name, plain).weights.empty());
    for (auto const* const text : {with_edge_weights, with_both}) {
      auto const whole = read(name, text);
      EXPECT_EQ(whole.edges, edges_of_manual);
      EXPECT_EQ(whole.weights, weights_of_manual);
      EXPECT_TRUE(read(name, text, false).weights.empty());
    }
    auto const whole = read(name, with_sizes_and_three_weights);
    EXPECT_EQ(whole.edges, edges_of_manual);
    EXPECT_TRUE(whole.weights.empty());
  }
  InputFiles files;
  static_cast<void>(
      open_graph(comm_, {.path = folder_.write("m.graph", with_sizes_and_three_weights)}, &files));
  if (comm_.is_root()) {
    EXPECT_THAT(files.notes, ::testing::Contains(HasSubstr("4 numbers per vertex")));
  }
}

TEST_F(MetisFiles, HaveAnEmptyLineForAVertexWithoutNeighbors) {
  auto const path = folder_.write("m.graph", "6 2\n\n5\r\n\n6 \n 2\n4\n\n\n");
  auto const source = open_graph(comm_, {.path = path});
  EXPECT_EQ(source->facts().num_vertices, 6);
  EXPECT_EQ(testing::read_whole(comm_, *source).edges, (std::vector<Edge>{{1, 4}, {3, 5}}));
  folder_.write("g/m.graph", "3 1\n\n3\n2\n");
  write_array<float>("g/x.npy", "<f4", {3, 1}, {1, 2, 3});
  EXPECT_EQ(testing::read_whole(comm_, *open_graph(comm_, {.path = folder_.path() / "g"})).features,
            (std::vector<float>{1, 2, 3}));
}

TEST_F(MetisFiles, WithMistakes) {
  EXPECT_THAT(told("3 2\n2\n1 3\n"),
              HasSubstr("m.graph has 2 lines of vertices, but its head says 3 vertices"));
  EXPECT_THAT(told("2 1\n2\n1\n1\n"),
              HasSubstr("m.graph:4: the head says 2 vertices, a line each; more follow"));
  EXPECT_THAT(told("3 2\n2\n1 4\n2\n"),
              HasSubstr("m.graph:3: the neighbor 4 does not exist: vertices are 1 to 3"));
  EXPECT_THAT(told("3 2\n2\n1 0\n2\n"), HasSubstr("m.graph:3: the neighbor 0 does not exist"));
  EXPECT_THAT(told("3 2\n2\n1 3\n\n"),
              HasSubstr("m.graph: the edge between vertices 2 and 3 is not listed in the lines of both"));
  EXPECT_THAT(told("3 2 1\n2 1\n1 1 3 2\n2 3\n"),
              HasSubstr("the edge between vertices 2 and 3 is not listed"));
  EXPECT_EQ(told("3 2 1\n2 0\n1 -0 3 2\n2 2\n"), "accepted");
  EXPECT_THAT(told("3 3\n2\n1 3\n2\n"), HasSubstr("m.graph lists 2 edges, each twice, but its head says 3"));
  EXPECT_THAT(told("3 1\n2\n1 3\n2\n"), HasSubstr("m.graph lists 2 edges, each twice, but its head says 1"));
  EXPECT_EQ(told("3 2 10 0\n1 2\n1 1 3\n1 2\n"), "accepted"); // 0 weights are one, as METIS reads it
  EXPECT_THAT(told("3 2\n1 2\n1 3\n2\n"), HasSubstr("m.graph:2: vertex 1 is its own neighbor"));
  EXPECT_THAT(told("3 2\n2\n1 -3\n2\n"), HasSubstr("m.graph:3: \"-3\" is not the number of a vertex"));
  EXPECT_THAT(told("3 2\n2\n1,3\n2\n"), HasSubstr("m.graph:3: \"1,3\" is not the number of a vertex"));
  EXPECT_THAT(told("3 2 1\n2 1\n1 1 3\n2 2\n"), HasSubstr("m.graph:3: no weight follows the neighbor 3"));
  EXPECT_THAT(told("3 2 10\n1 2\n\n1 2\n"), HasSubstr("m.graph:3: 1 numbers before the neighbors"));
  EXPECT_THAT(told("3\n2\n1\n"), HasSubstr("m.graph:1: \"3\" is no head"));
  EXPECT_THAT(told("3 2 2\n2\n1\n"), HasSubstr("m.graph:1: the format 2"));
  EXPECT_THAT(told("3 2 1 2\n2\n1\n"), HasSubstr("m.graph:1: \"3 2 1 2\" says 2 weights per vertex"));
  EXPECT_THAT(told("3 2 11 2 9\n2\n1\n"), HasSubstr("is no head"));
  EXPECT_THAT(told("9999999999 2\n2\n1\n"), HasSubstr("9999999999 vertices and 2 edges, but"));
  EXPECT_THAT(told("3 0\n\n\n\n"), HasSubstr("m.graph has no edges"));
  EXPECT_THAT(told("% nothing\n"), HasSubstr("is missing"));
}

TEST_F(MetisFiles, ThatAreDamagedAreReadOrRefused) {
  int num_refused = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    auto const message = told(mutant(i % 2 == 0 ? with_both : with_sizes_and_three_weights, i));
    EXPECT_THAT(message, AnyOf("accepted", HasSubstr("m.graph")));
    num_refused += message != "accepted" ? 1 : 0;
  }
  EXPECT_GT(num_refused, 100);
  EXPECT_LT(num_refused, 195);
}

class MetisStore : public StoreTest {};

TEST_F(MetisStore, IsTheSameOnAnyNumberOfRanks) {
  constexpr std::int64_t n = 150;
  std::map<Edge, int> listed;
  std::uint64_t state = 3;
  auto const draw = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::int64_t>(state >> 33) % (n - 20); // 20 vertices have no neighbors
  };
  for (int i = 0; i < 400; ++i) {
    auto const source = draw();
    auto const target = draw();
    if (source == target) continue;
    listed[{source, target}] = listed[{target, source}] = i % 7 + 1;
  }
  auto text = fmt::format("% made\n{} {} 011\n", n, listed.size() / 2);
  for (std::int64_t v = 0; v < n; ++v) {
    text += fmt::format("{}", v % 3);
    for (auto const& [edge, weight] : listed)
      if (edge.source == v) text += fmt::format(" {} {}", edge.target + 1, weight);
    text += v % 10 == 0 ? "\n% comment\n" : "\n";
  }
  auto const path = scratch.write("m.graph", text);

  check([&](runtime::Communicator const& group) { return open_graph(group, {.path = path}); });

  auto const& facts = GraphStore::open(comm, scratch.path() / "graph.h5").facts();
  EXPECT_EQ(facts.num_vertices, n);
  EXPECT_EQ(facts.num_entries, std::ssize(listed));
  EXPECT_TRUE(facts.is_weighted);
}

} // namespace
} // namespace orthant::graph
