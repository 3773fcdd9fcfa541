// SPDX-License-Identifier: Apache-2.0
//
// A store against the graph that it was made from: every block of many grids, from several numbers of ranks.
#include "graph/store/store_reader.hpp"

#include "graph/generate/generators.hpp"
#include "graph/graph_source.hpp"
#include "graph/partition/partition.hpp"
#include "graph/read/open_graph.hpp"
#include "store_fixture.hpp"
#include "support/user_messages.hpp"

#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <utility>

namespace orthant::graph {
namespace {

using runtime::balanced_range;
using runtime::Communicator;
using test::message_of;

/// Made-up sparse features: entry (v, c) where v + c is a multiple of 3, and rows that are empty.
class SparseRows final : public FeatureStream {
 public:
  SparseRows(Range rows, std::int64_t batch_rows, bool has_values)
      : next_(rows.begin),
        end_(rows.end),
        batch_rows_(batch_rows),
        has_values_(has_values) {}
  bool next(FeatureBatch& batch) override {
    batch = {};
    if (next_ == end_) return false;
    batch.rows = {next_, std::min(end_, next_ + batch_rows_)};
    next_ = batch.rows.end;
    batch.offsets.push_back(0);
    for (auto v = batch.rows.begin; v < batch.rows.end; ++v) {
      for (std::int32_t c = 0; c < 90 && v % 7 != 0; ++c)
        if ((v + c) % 3 == 0) {
          batch.columns.push_back(c);
          batch.values.push_back(has_values_ ? 0.5F + static_cast<float>(v % 5) : 1.0F);
        }
      batch.offsets.push_back(static_cast<std::int64_t>(batch.columns.size()));
    }
    return true;
  }
  [[nodiscard]] Progress progress() const override { return {}; }

 private:
  std::int64_t next_;
  std::int64_t end_;
  std::int64_t batch_rows_;
  bool has_values_;
};

TEST_F(StoreTest, HoldsKarateUnderEveryPermutation) {
  for (auto const kind : {PermutationKind::natural, PermutationKind::single, PermutationKind::twofold,
                          PermutationKind::cluster, PermutationKind::pieces}) {
    PartitionOptions options;
    options.permutation = kind;
    options.seed = 5;
    check([](Communicator const& c) { return open_dataset(c, "karate"); }, options);
  }
}

TEST_F(StoreTest, HoldsPiecesOfTheOrderOfTheIds) {
  PartitionOptions options;
  options.permutation = PermutationKind::pieces;
  options.most_metis_edges = 77;
  check([](Communicator const& c) { return open_dataset(c, "karate"); }, options);
}

TEST_F(StoreTest, HoldsAPowerLawWithRepeatsAndSelfLoops) {
  check([](Communicator const& c) {
    return open_dataset(c, "rmat:vertices=3000,edges=20000,features=0,classes=0");
  });
}

TEST_F(StoreTest, HoldsADirectedGraph) {
  for (auto const kind : {PermutationKind::twofold, PermutationKind::single}) {
    PartitionOptions options;
    options.permutation = kind;
    check([](Communicator const& c) { return open_dataset(c, "rmat:vertices=1200,edges=6000,directed=1"); },
          options);
  }
}

TEST_F(StoreTest, HoldsDenseFeaturesOfManyRows) {
  check([](Communicator const& c) {
    return open_dataset(c, "sbm:vertices=5000,edges=9000,features=19,classes=5");
  });
}

TEST_F(StoreTest, HoldsWeights) {
  auto const file =
      scratch.write("weighted.txt", "0 1 0.5\n1 0 0.25\n2 1 3\n2 2 7\n4 3 1\n0 1 2.5\n3 0 1e-3\n");
  for (bool const is_directed : {false, true}) {
    check([&](Communicator const& c) {
      Input input;
      input.path = file;
      input.is_directed = is_directed;
      return open_graph(c, input);
    });
  }
}

TEST_F(StoreTest, HoldsSparseFeaturesAndSeveralLabels) {
  scratch.write("multi/raw/edge.csv.gz", "0,1\n1,2\n2,3\n3,4\n4,0\n");
  scratch.write("multi/raw/node-label.csv.gz", "1,0,1\n0,0,nan\n1,1,1\n0,1,0\n0,0,0\n");
  scratch.write("multi/raw/num-node-list.csv.gz", "5\n");
  scratch.write("multi/raw/num-edge-list.csv.gz", "5\n");
  check([&](Communicator const& c) {
    Input input;
    input.path = scratch.path() / "multi";
    return open_graph(c, input);
  });

  // A third of the entries of 700 x 90; all 1 at first, then with values.
  for (bool const has_values : {false, true})
    check([&](Communicator const& c) {
      auto const rows = balanced_range(700, c.size(), c.rank());
      SourceParts parts;
      parts.name = "sparse";
      parts.num_vertices = 700;
      GeneratorOptions ring; // a graph without edges is refused
      ring.num_vertices = ring.num_edges = 700;
      parts.edges = detail::ring_edges(ring, {c.rank(), c.size()});
      parts.features = {FeatureKind::sparse, 90, [=](std::int64_t batch_rows) {
                          return std::make_unique<SparseRows>(rows, batch_rows, has_values);
                        }};
      return assemble_source(std::move(parts));
    });
}

TEST_F(StoreTest, HoldsTheSmallestGraphs) {
  for (auto const* const word : {"ring:vertices=1,edges=0", "ring:vertices=2", "ring:vertices=3"}) {
    auto const is_made = message_of([&] { static_cast<void>(open_dataset(comm, word)); });
    if (is_made == "no UserError") check([&](Communicator const& c) { return open_dataset(c, word); });
  }
  auto const file = scratch.write("one.txt", "0 0\n");
  check([&](Communicator const& c) {
    Input input;
    input.path = file;
    return open_graph(c, input);
  });
}

TEST_F(StoreTest, KeepsOrDropsRepeatsAndSelfLoops) {
  auto const file = scratch.write("loops.txt", "0 1\n0 1\n1 0\n2 2\n2 2\n1 2\n");
  Input input;
  input.path = file;
  auto const source = open_graph(comm, input);
  auto const count = [&](EdgeRules rules) {
    PartitionOptions options;
    options.rules = rules;
    options.replaces_output = true;
    auto const facts = partition(comm, *source, scratch.path() / "loops.h5", options).facts;
    return std::pair(facts.num_entries, facts.num_self_loops);
  };
  using Repeats = EdgeRules::Repeats;
  using Loops = EdgeRules::SelfLoops;
  EXPECT_EQ(count({Repeats::drop, Loops::keep}), std::pair(std::int64_t{5}, std::int64_t{1}));
  EXPECT_EQ(count({Repeats::drop, Loops::drop}), std::pair(std::int64_t{4}, std::int64_t{0}));
  EXPECT_EQ(count({Repeats::keep, Loops::keep}), std::pair(std::int64_t{10}, std::int64_t{2}));
}

TEST_F(StoreTest, NormalisesRowsOrNothing) {
  PartitionOptions options;
  options.replaces_output = true;
  options.normalization = Normalization::row;
  auto const path = scratch.path() / "row.h5";
  partition(comm, *open_dataset(comm, "karate"), path, options);
  auto const store = GraphStore::open(comm, path);
  auto const degrees = store.read_degrees(Order::p1, {0, 34});
  auto const scales = store.read_scales(Parity::even, {0, 34}, {0, 34});
  for (std::size_t i = 0; i < 34; ++i)
    EXPECT_DOUBLE_EQ(scales.rows[i], 1.0 / static_cast<double>(degrees[i] + 1));
  EXPECT_TRUE(scales.columns.empty());
  EXPECT_EQ(store.read_block(Parity::even, {0, 34}, {0, 34}).num_nonzeros(), 156 + 34);

  options.normalization = Normalization::none;
  partition(comm, *open_dataset(comm, "karate"), path, options);
  auto const plain = GraphStore::open(comm, path);
  EXPECT_TRUE(plain.read_scales(Parity::even, {0, 34}, {0, 34}).rows.empty());
  EXPECT_EQ(plain.read_block(Parity::even, {0, 34}, {0, 34}).num_nonzeros(), 156);
}

TEST_F(StoreTest, GivesAnotherOperatorThanItWasMadeWith) {
  PartitionOptions options;
  options.replaces_output = true;
  auto const path = scratch.path() / "other.h5";
  for (auto const made : {Normalization::symmetric, Normalization::row, Normalization::none}) {
    options.normalization = made;
    partition(comm, *open_dataset(comm, "karate"), path, options);
    auto store = GraphStore::open(comm, path);
    auto const degrees = store.read_degrees(Order::p1, {0, 34});
    EXPECT_EQ(store.facts().graph_operator(), (GraphOperator{made, usual_self_loops(made)}));

    store.set_operator({Normalization::row, SelfLoops::dropped});
    auto const by_rows = store.read_scales(Parity::even, {0, 34}, {0, 34});
    for (std::size_t i = 0; i < 34; ++i)
      EXPECT_DOUBLE_EQ(by_rows.rows[i], 1.0 / static_cast<double>(degrees[i]));
    EXPECT_TRUE(by_rows.columns.empty());
    EXPECT_EQ(store.read_block(Parity::even, {0, 34}, {0, 34}).num_nonzeros(), 156);
    EXPECT_EQ(store.facts().num_operator_entries(), 156);

    store.set_operator({Normalization::symmetric, SelfLoops::added});
    auto const by_both = store.read_scales(Parity::even, {0, 34}, {0, 34});
    EXPECT_DOUBLE_EQ(by_both.rows[3], 1 / std::sqrt(static_cast<double>(degrees[3] + 1)));
    EXPECT_EQ(by_both.columns.size(), 34U);
    EXPECT_EQ(store.read_block(Parity::even, {0, 34}, {0, 34}).num_nonzeros(), 156 + 34);
    EXPECT_EQ(store.facts().num_operator_entries(), 156 + 34);

    store.set_operator({Normalization::none, SelfLoops::as_given});
    EXPECT_TRUE(store.read_scales(Parity::even, {0, 34}, {0, 34}).rows.empty());
    EXPECT_NE(message_of([&] {
                store.set_operator({Normalization::row, SelfLoops::as_given});
              }).find("--self-loops keep needs --normalize none"),
              std::string::npos);
  }
}

TEST_F(StoreTest, LivesInMemory) {
  auto const open = [](Communicator const& c) {
    return open_dataset(c, "sbm:vertices=600,features=7,classes=3");
  };
  auto const store = partition_in_memory(comm, open, {});
  auto const whole = testing::read_whole(comm, *open(comm));
  expect_blocks(store, matrix_of(whole, false, false));
  expect_attributes(store, whole);
  EXPECT_EQ(store.name(), "memory");
  EXPECT_NE(message_of([&] {
              static_cast<void>(partition_in_memory(
                  comm, [](Communicator const& c) { return open_dataset(c, "no-such-set"); }, {}));
            }).find("no-such-set"),
            std::string::npos);
}

} // namespace
} // namespace orthant::graph
