// SPDX-License-Identifier: Apache-2.0
//
// Which vertices keep a graph from being normalized: counted by hand, and by plain sums over the edges of larger graphs.
#include "graph/checks/operator_check.hpp"

#include "graph/read/open_graph.hpp"
#include "graph/store/store_fixture.hpp"

#include <cfloat>
#include <gmock/gmock.h>

namespace orthant::graph {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Vertices that do not fit, and the first one.
struct Unfit {
  std::int64_t count = 0;
  std::int64_t first = -1;
};

struct Case {
  char const* name;
  char const* edges;
  SelfLoops self_loops;
  std::array<Unfit, 2> symmetric; // fp32, fp64
  std::array<Unfit, 2> row;
  // Of symmetric. What overflows in a batch does so in the whole graph, too, and is counted there.
  std::array<Unfit, 2> in_batch;
  char const* effect; // of fp32
};

constexpr auto added = SelfLoops::added;
constexpr auto dropped = SelfLoops::dropped;

std::vector<Case> const cases{
    {"good", "0 1 0.5\n1 2 2\n", added, {}, {}, {}, ""},
    {"negative", "0 1 1\n1 2 -3\n2 3 1\n", added, {{{2, 1}, {2, 1}}}, {}, {{{2, 1}, {2, 1}}}, ""},
    {"mildly negative", "0 1 2\n1 2 -0.5\n", added, {}, {}, {}, ""},
    {"negative in a batch", "0 1 9\n1 2 -2\n2 3 9\n", added, {}, {}, {{{2, 1}, {2, 1}}}, ""},
    {"zero sum", "0 1 -1\n1 2 2\n", added, {{{1, 0}, {1, 0}}}, {{{1, 0}, {1, 0}}}, {{{2, 0}, {2, 0}}}, ""},
    {"zero up to rounding",
     "0 1 0.1\n0 2 0.2\n0 3 -1.3\n3 4 2\n",
     added,
     {{{1, 0}, {1, 0}}},
     {{{1, 0}, {1, 0}}},
     {{{2, 0}, {2, 0}}},
     ""},
    {"overflowing", "0 1 3e38\n0 2 3e38\n1 2 1\n", added, {{{1, 0}, {}}}, {{{3, 0}, {}}}, {}, ""},
    {"overflowing and cancelling",
     "0 1 3e38\n0 2 -3e38\n",
     added,
     {{{2, 0}, {2, 0}}},
     {{{3, 0}, {1, 0}}},
     {{{2, 0}, {2, 0}}},
     ""},
    {"denormal", "0 1 1e-40\n1 2 1e-40\n", dropped, {}, {{{3, 0}, {}}}, {}, ""},
    {"lost beside self loops",
     "0 1 1e-40\n1 2 1e-40\n",
     added,
     {},
     {},
     {},
     "is the identity: the weights of all 4 entries between two of its 3 vertices, 1.99999e-40 in a row at "
     "most"},
    {"zero weights", "0 1 0\n1 2 0\n", added, {}, {}, {}, "is the identity: the weights of all 4 entries"},
    {"zero weights without self loops",
     "3 1 0\n1 2 0\n",
     dropped,
     {{{3, 1}, {3, 1}}},
     {{{3, 1}, {3, 1}}},
     {},
     "is zero: the weights of all 4 entries between two of its 4 vertices are 0"},
    {"isolated", "0 1 1\n2 2 1\n", dropped, {}, {}, {}, ""},
};

class OperatorCheckTest : public StoreTest {
 protected:
  GraphStore store_of(std::string const& edges, PermutationKind permutation, bool is_directed = false) {
    Input input;
    input.path = scratch.write("edges.txt", edges);
    input.is_directed = is_directed;
    PartitionOptions options;
    options.permutation = permutation;
    options.replaces_output = true;
    auto const path = scratch.path() / "graph.h5";
    report_ = partition(comm, *open_graph(comm, input), path, options);
    return GraphStore::open(comm, path);
  }
  OperatorFindings findings(GraphStore& store, GraphOperator const& graph_operator, OperatorUse const& use) {
    store.set_operator(graph_operator);
    return check_operator(comm, store, use);
  }
  void expect(OperatorFindings const& found, Unfit const& unfit, std::int64_t n) {
    if (unfit.count == 0) {
      EXPECT_THAT(found.refusal, IsEmpty());
    } else {
      EXPECT_THAT(found.refusal, AllOf(HasSubstr(fmt::format("{} of {} vertices", unfit.count, n)),
                                       HasSubstr(fmt::format("first vertex {} with", unfit.first))));
    }
  }

  PartitionReport report_;
};

TEST_F(OperatorCheckTest, CountsVerticesThatCannotBeNormalized) {
  for (auto const permutation : {PermutationKind::twofold, PermutationKind::single})
    for (auto const& the_case : cases) {
      SCOPED_TRACE(the_case.name);
      auto store = store_of(the_case.edges, permutation);
      auto const n = store.facts().num_vertices;
      for (auto const precision : {Precision::fp32, Precision::fp64}) {
        auto const p = precision == Precision::fp32 ? 0U : 1U;
        SCOPED_TRACE(p == 0 ? "fp32" : "fp64");
        auto const symmetric = GraphOperator{Normalization::symmetric, the_case.self_loops};
        auto const found = findings(store, symmetric, {precision});
        expect(found, the_case.symmetric[p], n);
        if (p == 0) {
          EXPECT_THAT(found.warning, HasSubstr(the_case.effect));
          EXPECT_EQ(found.warning.empty(), *the_case.effect == '\0') << found.warning;
        }
        expect(findings(store, {Normalization::row, the_case.self_loops}, {precision}), the_case.row[p], n);
        if (the_case.symmetric[p].count == 0)
          expect(findings(store, symmetric, {precision, Neighborhood::within_batch}), the_case.in_batch[p],
                 n);
        EXPECT_THAT(findings(store, {Normalization::none, the_case.self_loops}, {precision}).refusal,
                    IsEmpty());
        if (the_case.self_loops == dropped) continue;
        // partition has found the same while it wrote the matrix.
        auto const& unfit = report_.input.operators->unfit(Normalization::row, precision);
        EXPECT_EQ(unfit.count, the_case.row[p].count);
        EXPECT_EQ(unfit.first, the_case.row[p].first);
        auto const& in_batch =
            report_.input.operators->unfit(Normalization::symmetric, precision, Neighborhood::within_batch);
        EXPECT_EQ(in_batch.count, the_case.in_batch[p].count);
        EXPECT_EQ(in_batch.first, the_case.in_batch[p].first);
        EXPECT_EQ(report_.input.operators->unfit(Normalization::none, precision).count, 0);
        EXPECT_EQ(report_.input.operators->unfit(Normalization::symmetric, precision).first,
                  the_case.symmetric[p].first);
      }
    }
}

TEST_F(OperatorCheckTest, CountsThemInTilesOfAllRanks) {
  constexpr std::int64_t n = 600;
  std::string edges;
  std::vector<double> degrees(n, 1.0);
  std::int64_t num_negative = 0;
  for (std::int64_t i = 0; i < 4 * n; ++i) { // each pair once
    auto const source = i % n, target = (source + i / n + 1) % n;
    auto const weight = (i * 7919 % 23) - 9;
    edges += fmt::format("{} {} {}\n", source, target, weight);
    degrees[static_cast<std::size_t>(target)] += static_cast<double>(weight);
    num_negative += weight < 0 ? 1 : 0;
  }
  auto store = store_of(edges, PermutationKind::twofold, true);
  ASSERT_EQ(store.facts().num_negative_weights, num_negative);
  auto const unfit = [&](auto const& is_unfit) {
    return Unfit{std::ranges::count_if(degrees, is_unfit),
                 std::ranges::find_if(degrees, is_unfit) - degrees.begin()};
  };
  auto const not_positive = unfit([](double degree) { return degree <= 0; });
  auto const zero = unfit([](double degree) { return degree == 0; });

  ASSERT_GT(not_positive.count, 50);
  ASSERT_GT(zero.count, 5);
  for (auto const precision : {Precision::fp32, Precision::fp64}) {
    expect(findings(store, {Normalization::symmetric, added}, {precision}), not_positive, n);
    expect(findings(store, {Normalization::row, added}, {precision}), zero, n);
  }
}

TEST_F(OperatorCheckTest, SaysWhatFits) {
  auto store = store_of("0 1 3e38\n0 2 3e38\n1 2 1\n", PermutationKind::twofold);
  auto const of_any = findings(store, {Normalization::symmetric, added}, {Precision::fp32});
  EXPECT_THAT(of_any.refusal, HasSubstr("6e+38, which overflows; alternatives: --normalize none, double "
                                        "precision (--compute-dtype fp64), a store without"));
  auto const of_model = findings(store, {Normalization::row, dropped}, {.is_of_model = true});
  EXPECT_THAT(of_model.refusal,
              AllOf(HasSubstr("alternatives: double precision (--compute-dtype fp64), a store without"),
                    ::testing::Not(HasSubstr("--normalize none"))));
}

TEST_F(OperatorCheckTest, NamesOperatorsWithoutEdges) {
  auto store = store_of("0 1\n1 2\n", PermutationKind::single, true);
  EXPECT_THAT(findings(store, {Normalization::symmetric, added}, {}).warning, IsEmpty());
  EXPECT_THAT(findings(store, {Normalization::symmetric, dropped}, {}).warning,
              HasSubstr("1 of the 3 vertices of "));
  EXPECT_THAT(findings(store, {Normalization::row, dropped}, {}).warning, IsEmpty());
  store = store_of("0 0\n1 1\n", PermutationKind::twofold);
  EXPECT_THAT(findings(store, {Normalization::symmetric, added}, {}).warning,
              HasSubstr("is the identity: no edge is between two of its 2 vertices"));
  EXPECT_THAT(findings(store, {Normalization::none, SelfLoops::as_given}, {}).warning,
              HasSubstr("is diagonal: no edge"));
  EXPECT_THAT(findings(store, {Normalization::none, dropped}, {}).warning, HasSubstr("is zero: no edge"));
}

/// A store of a folder with these labels, features and parts; empty parts are left out.
struct Data {
  std::string labels, features, train, valid, test;
};

TEST_F(OperatorCheckTest, NamesDataThatTeachesLittle) {
  auto const warnings_of = [&](Data const& data) {
    scratch.write("d/raw/edge.csv.gz", "0,1\n1,2\n2,3\n3,4\n");
    scratch.write("d/raw/num-node-list.csv.gz", "5\n");
    scratch.write("d/raw/num-edge-list.csv.gz", "4\n");
    scratch.write("d/raw/node-label.csv.gz", data.labels);
    scratch.write("d/raw/node-feat.csv.gz", data.features);
    scratch.write("d/split/s/train.csv.gz", data.train);
    scratch.write("d/split/s/valid.csv.gz", data.valid);
    scratch.write("d/split/s/test.csv.gz", data.test);
    Input input;
    input.path = scratch.path() / "d";
    PartitionOptions options;
    options.replaces_output = true;
    partition(comm, *open_graph(comm, input), scratch.path() / "graph.h5", options);
    return check_data(comm, GraphStore::open(comm, scratch.path() / "graph.h5"));
  };
  using ::testing::ElementsAre;
  Data const good{"0\n1\n1\n0\n1\n", "1,2\n1,3\n1,2\n1,2\n1,2\n", "0\n1\n", "2\n", "3\n4\n"};
  EXPECT_THAT(warnings_of(good), IsEmpty());
  auto data = good;
  data.labels = "1\n1\n1\nnan\n1\n";
  EXPECT_THAT(warnings_of(data), ElementsAre(HasSubstr("all 4 labels are of class 1")));
  data.labels = "1\n1\n0\n0\n1\n";
  EXPECT_THAT(warnings_of(data), ElementsAre(HasSubstr("all 2 labels of training vertices are of class 1")));
  data.labels = "0\n1\n-100\n0\n1\n";
  EXPECT_THAT(warnings_of(data),
              ElementsAre(HasSubstr("none of the 1 vertices in part valid of the split has a label")));
  data.labels = "0,0\n0,nan\n0,0\n0,-1\n-100,0\n";
  EXPECT_THAT(warnings_of(data), ElementsAre(HasSubstr("all 7 labels are 0")));
  data = good;
  data.features = "1,2\n1,2\n1,2\n1,2\n1,2\n";
  EXPECT_THAT(warnings_of(data), ElementsAre("all 5 vertices have the same 2 features"));
  data = good;
  data.valid = "";
  EXPECT_THAT(warnings_of(data),
              ElementsAre("no vertex is in part valid of the split: train 2, valid 0, test 2"));
}

} // namespace
} // namespace orthant::graph
