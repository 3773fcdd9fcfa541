// SPDX-License-Identifier: Apache-2.0
//
// Stores with held-out edges, beside plain sets: what is in A, in its degrees, and in both lists of links; on any number of ranks
// the same file.
#include "graph/partition/link_sets.hpp"
#include "graph/read/open_graph.hpp"
#include "graph/store/export.hpp"
#include "graph/store/store_fixture.hpp"
#include "runtime/numbers/random.hpp"
#include "support/user_messages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

namespace orthant::graph {
namespace {

using test::message_of;
using ::testing::HasSubstr;

using Pair = std::pair<std::int64_t, std::int64_t>; // smaller id first
using Pairs = std::set<Pair>;

constexpr EdgeSplit usual{0.1, 0.2, 7};

/// The part that an edge falls to: 0, 1, or 2 if it is kept. By the definition.
int part_of(Pair const& edge, EdgeSplit const& split) {
  auto const u =
      runtime::RandomStream(split.seed, runtime::Purpose::edge_split)
          .uniform<double>(static_cast<std::uint64_t>(edge.first), static_cast<std::uint64_t>(edge.second));
  if (u < split.valid) return 0;
  return u < split.valid + split.test ? 1 : 2;
}

class Links : public StoreTest {
 protected:
  GraphStore store_of(std::string const& description, PartitionOptions options) {
    auto const path = scratch.path() / "links.h5";
    options.replaces_output = true;
    partition(comm, *open_dataset(comm, description), path, options);
    auto store = GraphStore::open(comm, path);
    store.verify(comm);
    return store;
  }
  static PartitionOptions splitting(EdgeSplit const& split = usual) {
    PartitionOptions options;
    options.edge_split = split;
    return options;
  }
  std::string refusal(std::string const& description, PartitionOptions const& options) {
    return message_of([&] { store_of(description, options); });
  }

  /// Links by original id; each must lie in the order that link_between() gives.
  static Pairs links_of(GraphStore const& store, Split part, LinkKind kind) {
    auto const ids = ids_of(store, Order::p1);
    auto const count = store.facts().num_held_out[static_cast<std::size_t>(part)];
    Pairs links;
    for (auto const& link : store.read_links(part, kind, {0, count})) {
      auto const u = ids[index(link.source)], v = ids[index(link.target)];
      EXPECT_EQ(link_between(u, v).source, u);
      links.insert(std::minmax(u, v));
    }
    EXPECT_EQ(std::ssize(links), count) << "a link is there twice";
    return links;
  }

  /// The undirected edges of a data set, self loops left out.
  Pairs edges_of(std::string const& description) {
    Pairs edges;
    for (auto const& edge : testing::read_whole(comm, *open_dataset(comm, description)).edges)
      if (edge.source != edge.target) edges.insert(std::minmax(edge.source, edge.target));
    return edges;
  }
};

constexpr auto blocks = "sbm:vertices=211,edges=1500,features=3,classes=2";

TEST_F(Links, AreLeftOutOfAAndOfItsDegrees) {
  auto const edges = edges_of(blocks);
  std::array<Pairs, 3> parts;
  for (auto const& edge : edges)
    parts[static_cast<std::size_t>(part_of(edge, usual))].insert(edge);

  auto const store = store_of(blocks, splitting());

  EXPECT_EQ(links_of(store, Split::valid, LinkKind::positive), parts[0]);
  EXPECT_EQ(links_of(store, Split::test, LinkKind::positive), parts[1]);
  EXPECT_NEAR(static_cast<double>(parts[0].size()), 0.1 * static_cast<double>(edges.size()), 50);
  Entries expected;
  std::map<std::int64_t, std::int64_t> degrees;
  for (auto const& [u, v] : parts[2]) {
    expected[{u, v}] = expected[{v, u}] = 1;
    ++degrees[u];
    ++degrees[v];
  }
  expect_blocks(store, expected);
  auto const ids = ids_of(store, Order::p1);
  auto const stored = store.read_degrees(Order::p1, {0, std::ssize(ids)});
  for (std::size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(stored[i], degrees[ids[i]]);
}

TEST_F(Links, HaveAsManyNegativesThatAreNoEdgesOfTheWholeGraph) {
  auto const edges = edges_of(blocks);

  auto const store = store_of(blocks, splitting());

  auto const valid = links_of(store, Split::valid, LinkKind::negative);
  auto const test = links_of(store, Split::test, LinkKind::negative);
  for (auto const& negatives : {valid, test})
    for (auto const& pair : negatives) {
      EXPECT_FALSE(edges.contains(pair)) << pair.first << ", " << pair.second;
      EXPECT_FALSE(valid.contains(pair) && test.contains(pair));
    }
}

// Ranks, order and input order do not matter, nor does the width of ids in memory.
TEST_F(Links, AreOneFileOnAnyNumberOfRanks) {
  for (auto const permutation : {PermutationKind::twofold, PermutationKind::natural})
    for (auto const* const description : {blocks, "rmat:vertices=200,edges=4000,features=2,classes=2"}) {
      auto options = splitting();
      options.permutation = permutation;
      static_cast<void>(store_of(description, options));
      auto const alone = scratch.path() / "alone.h5";
      options.replaces_output = options.uses_wide_ids = true;
      if (comm.is_root()) partition(self, *open_dataset(self, description), alone, options);
      runtime::barrier(runtime::host, comm);
      expect_equal_files(scratch.path() / "links.h5", alone);
    }
}

TEST_F(Links, AreTheSameInEveryOrderOfTheVertices) {
  auto options = splitting();
  auto const positives = links_of(store_of(blocks, options), Split::test, LinkKind::positive);
  auto const negatives = links_of(store_of(blocks, options), Split::test, LinkKind::negative);

  options.permutation = PermutationKind::single;
  auto const other = store_of(blocks, options);

  EXPECT_EQ(links_of(other, Split::test, LinkKind::positive), positives);
  EXPECT_EQ(links_of(other, Split::test, LinkKind::negative), negatives);
}

TEST_F(Links, OfOtherSeedsAreOthers) {
  auto const one = links_of(store_of(blocks, splitting()), Split::test, LinkKind::positive);
  auto const other = links_of(store_of(blocks, splitting({0.1, 0.2, 8})), Split::test, LinkKind::positive);

  EXPECT_NE(one, other);
}

// Both directions, a repeat and a self loop; weights of what is kept are added up as ever.
TEST_F(Links, CountOnceHoweverOftenTheInputListsThem) {
  Input input;
  std::string text;
  for (int u = 0; u < 40; ++u)
    for (auto const v : {(u + 1) % 40, (u + 7) % 40})
      text += fmt::format("{} {} 0.5\n{} {} 1\n{} {} 2\n", u, v, v, u, u, v);
  input.path = scratch.write("twice.txt", text + "3 3 4\n");
  auto const path = scratch.path() / "links.h5";
  auto options = splitting({0.3, 0.3, 1});
  options.replaces_output = true;

  partition(comm, *open_graph(comm, input), path, options);

  auto const store = GraphStore::open(comm, path);
  store.verify(comm);
  auto const valid = links_of(store, Split::valid, LinkKind::positive);
  auto const test = links_of(store, Split::test, LinkKind::positive);
  EXPECT_GT(valid.size(), 0);
  EXPECT_EQ(store.facts().num_self_loops, 1);
  EXPECT_EQ(store.facts().num_entries, 2 * (80 - std::ssize(valid) - std::ssize(test)) + 1);
  auto const n = store.facts().num_vertices;
  for (auto const weight : store.read_block(Parity::even, {0, n}, {0, n}, SelfLoops::dropped).values)
    EXPECT_EQ(weight, 3.5F);
}

TEST_F(Links, MayHaveOnePartOnly) {
  auto const store = store_of(blocks, splitting({0, 0.3, 1}));

  EXPECT_EQ(store.facts().num_held_out[1], 0);
  EXPECT_FALSE(links_of(store, Split::test, LinkKind::negative).empty());
}

TEST_F(Links, AreRefusedIfTheyCannotBeHeldOut) {
  EXPECT_THAT(refusal(std::string(blocks) + ",directed=1", splitting()), HasSubstr("directed"));
  for (auto const& split : {EdgeSplit{0, 0, 1}, EdgeSplit{0.5, 0.5, 1}, EdgeSplit{-0.1, 0.5, 1}})
    EXPECT_THAT(refusal(blocks, splitting(split)), HasSubstr("less than 1"));
  EXPECT_THAT(refusal("ring:vertices=5,features=1,classes=2", splitting({1e-9, 1e-9, 1})),
              HasSubstr("holds out no edge for valid"));
  EXPECT_THAT(
      refusal("ring:vertices=3,features=1,classes=2", splitting({0.5, 0.499999, 1})),
      ::testing::AnyOf(HasSubstr("leaves no edge"), HasSubstr("as many pairs"), HasSubstr("no edge for")));
}

// 12 vertices with all 66 edges: there is no pair to draw.
TEST_F(Links, NeedPairsThatAreNoEdges) {
  Input input;
  std::string text;
  for (int u = 0; u < 12; ++u)
    for (int v = u + 1; v < 12; ++v)
      text += fmt::format("{} {}\n", u, v);
  input.path = scratch.write("complete.txt", text);
  auto options = splitting();
  options.replaces_output = true;

  EXPECT_THAT(
      message_of([&] { partition(comm, *open_graph(comm, input), scratch.path() / "links.h5", options); }),
      HasSubstr("but the graph has only 0"));
}

TEST_F(Links, AreNoPartOfOtherStores) {
  auto const store = store_of(blocks, {});

  EXPECT_FALSE(store.facts().has_links());
  EXPECT_EQ(store.facts().to_json().find("held_out"), std::string::npos);
}

TEST_F(Links, AreCountedByFactsThatFit) {
  auto facts = store_of(blocks, splitting()).facts();

  EXPECT_EQ(StoreFacts::from_json(facts.to_json()).num_held_out, facts.num_held_out);
  facts.num_held_out[0] = 1;
  EXPECT_THAT(facts.contradiction(), HasSubstr("num_held_out"));
  facts.num_held_out = {0, -1, 4};
  EXPECT_THAT(facts.contradiction(), HasSubstr("num_held_out"));
}

} // namespace
} // namespace orthant::graph
