// SPDX-License-Identifier: Apache-2.0
//
// Folders of the Deep Graph Library's CSVDataset with one kind of vertices and of edges, in numbers found by hand.
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
using ::testing::Contains;
using ::testing::HasSubstr;

// The layout of the library's guide.
constexpr auto meta_text = "dataset_name: full\n# comment\nversion: 1.0.0\nedge_data:\n- file_name: "
                           "edges.csv\n  etype: [user, 'follow', user] # an array, #1 # of 1\n"
                           "node_data:\n- file_name: \"nodes.csv\"   # of users\n  ntype: user\n";
constexpr auto nodes_text = "node_id,label,train_mask,val_mask,test_mask,feat,age\n"
                            "ann,1,True,False,False,\"0.5, -1e0\",20\n"
                            "7,0,False,True,False,\"0.25, 2\",21\n"
                            "\"Doe, J\",,False,False,False,\"1,3\",22\n"
                            "carl,2,False,False,True,\"[4, 5]\",23\n";
constexpr auto edges_text =
    "weight,dst_id,src_id,feat\n2.5,7,carl,\"1,2\"\n1,ann,\"Doe, J\",\"3,4\"\n-1,ann,7,\"5,6\"\n";

class CsvDataSets : public BadInput {
 protected:
  void write(std::string const& nodes = nodes_text, std::string const& edges = edges_text,
             std::string const& meta = meta_text) const {
    folder_.write("d/meta.yaml", meta);
    folder_.write("d/nodes.csv", nodes);
    folder_.write("d/edges.csv", edges);
  }
  std::string told(std::string const& nodes, std::string const& edges = edges_text,
                   std::string const& meta = meta_text) const {
    write(nodes, edges, meta);
    return message_of("d");
  }
};

TEST_F(CsvDataSets, AreReadByTheirColumns) {
  write();
  InputFiles files;
  auto const source = open_graph(comm_, {.path = folder_.path() / "d"}, &files);
  auto const whole = testing::read_whole(comm_, *source, 2);
  EXPECT_EQ(whole.edges, (std::vector<Edge>{{3, 1}, {2, 0}, {1, 0}}));
  EXPECT_EQ(whole.weights, (std::vector<float>{2.5, 1, -1}));
  EXPECT_EQ(whole.features, (std::vector<float>{0.5, -1, 0.25, 2, 1, 3, 4, 5}));
  EXPECT_EQ(whole.classes, (std::vector<std::int64_t>{1, 0, -1, 2}));
  EXPECT_EQ(whole.train, (std::vector<std::int64_t>{0}));
  EXPECT_EQ(whole.valid, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(whole.test, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(source->facts().num_classes, 3);
  if (!comm_.is_root()) return;
  EXPECT_EQ(source->vertex_names()->text, "ann7Doe, Jcarl");
  EXPECT_THAT(files.notes, Contains("columns of nodes.csv that are not used: age"));
  EXPECT_THAT(files.notes, Contains("columns of edges.csv that are not used: feat"));
  EXPECT_THAT(files.notes, Contains(HasSubstr("in the order of the lines of nodes.csv; DGL numbers them")));
  EXPECT_THAT(files.read, ::testing::ElementsAre("edges.csv", "nodes.csv", "meta.yaml"));
}

TEST_F(CsvDataSets, MayBeCompressedOrOfWindows) {
  auto const as_written = [](std::string_view text) {
    std::string result = "\xEF\xBB\xBF";
    for (auto const c : text)
      result += c == '\n' ? "\r\n" : std::string(1, c);
    return result;
  };
  for (std::string const ending : {"", ".gz"}) {
    folder_.write("w/nodes.csv" + ending, as_written(nodes_text));
    folder_.write("w/edges.csv" + ending, as_written(edges_text));
    folder_.write("w/meta.yaml",
                  as_written(fmt::format("node_data:\n- file_name: nodes.csv{0}\nedge_data:\n- file_name: "
                                         "edges.csv{0}\n",
                                         ending)));
    auto const source = open_graph(comm_, {.path = folder_.path() / "w"});
    auto const whole = testing::read_whole(comm_, *source, 2);
    EXPECT_EQ(whole.edges, (std::vector<Edge>{{3, 1}, {2, 0}, {1, 0}}));
    EXPECT_EQ(whole.weights, (std::vector<float>{2.5, 1, -1}));
    EXPECT_EQ(whole.features, (std::vector<float>{0.5, -1, 0.25, 2, 1, 3, 4, 5}));
    EXPECT_EQ(whole.classes, (std::vector<std::int64_t>{1, 0, -1, 2}));
    EXPECT_EQ(whole.test, (std::vector<std::int64_t>{3}));
    if (comm_.is_root()) {
      EXPECT_EQ(source->vertex_names()->text, "ann7Doe, Jcarl");
    }
  }
}

TEST_F(CsvDataSets, HaveANoteIfDglOrdersTheirVerticesOtherwise) {
  auto const notes = [&](std::string const& ids) {
    write("node_id\n" + ids, "src_id,dst_id\n10,9\n");
    InputFiles files;
    static_cast<void>(open_graph(comm_, {.path = folder_.path() / "d"}, &files));
    return std::ssize(files.notes);
  };
  EXPECT_EQ(notes("9\n10\n"), 0);
  EXPECT_EQ(notes("10\n9\n"), comm_.is_root() ? 1 : 0);
  EXPECT_EQ(notes("9\n10\nann\n"), comm_.is_root() ? 1 : 0); // texts
  EXPECT_EQ(notes("10\n9\nann\n"), 0);
}

TEST_F(CsvDataSets, HaveMasksUnlessASplitIsNamed) {
  write();
  folder_.write("d/split/mine/train.csv", "3\n");
  folder_.write("d/split/mine/valid.csv", "2\n");
  folder_.write("d/split/mine/test.csv", "0\n1\n");
  auto const train = [&](std::string const& split) {
    auto const source = open_graph(comm_, {.path = folder_.path() / "d", .split = split});
    EXPECT_EQ(source->facts().split_name, split.empty() ? "masks" : split);
    return testing::read_whole(comm_, *source).train;
  };
  EXPECT_EQ(train(""), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(train("mine"), (std::vector<std::int64_t>{3}));
  EXPECT_THAT(message({.path = folder_.path() / "d", .split = "other"}), HasSubstr("has no split \"other\""));
}

TEST_F(CsvDataSets, MayNameTheirClasses) {
  write();
  folder_.write("d/classes.csv", "class,name\n0,red\n1,green\n2,blue\n");
  InputFiles files;
  auto const source = open_graph(comm_, {.path = folder_.path() / "d"}, &files);
  EXPECT_EQ(source->facts().class_names, (std::vector<std::string>{"red", "green", "blue"}));
  if (!comm_.is_root()) return;
  EXPECT_THAT(files.read, Contains("classes.csv"));
  EXPECT_TRUE(files.unused.empty());
}

TEST_F(CsvDataSets, MayHaveOtherSeparatorsAndFields) {
  write("name;feat\na;\"1\"\nb;\"2\"\n", "from;to\na;b\n",
        "separator: ';'\nnode_data:\n  - file_name: nodes.csv\n    node_id_field: name\nedge_data:\n  - "
        "src_id_field: from\n"
        "    file_name: edges.csv\n    etype:\n    - a\n    - b\n    - a\n    dst_id_field: to\n");
  auto const source = open_graph(comm_, {.path = folder_.path() / "d", .is_directed = true});
  EXPECT_TRUE(source->facts().is_directed);
  EXPECT_FALSE(source->facts().has_split);
  auto const whole = testing::read_whole(comm_, *source);
  EXPECT_EQ(whole.edges, (std::vector<Edge>{{0, 1}}));
  EXPECT_EQ(whole.features, (std::vector<float>{1, 2}));
}

TEST_F(CsvDataSets, WithMistakes) {
  std::string const nodes = "node_id,feat\na,\"1,2\"\nb,\"3,4\"\n";
  std::string const edges = "src_id,dst_id\na,b\n";
  EXPECT_EQ(told(nodes, edges), "accepted");
  EXPECT_THAT(told(nodes, "src_id,dst_id\na,b\nb,c\n"),
              HasSubstr("edges.csv has an edge of the vertex c, which "));
  EXPECT_THAT(told(nodes + "a,\"1,2\"\n", edges), HasSubstr("nodes.csv:4: the id a occurs twice"));
  EXPECT_THAT(told(nodes + "c,\"1\"\n", edges),
              HasSubstr("nodes.csv:4: the vertex c has 1 features; the first one has 2"));
  EXPECT_THAT(told(nodes + "c,\"1,x\"\n", edges),
              HasSubstr("nodes.csv:4: feat of the vertex c is not a list"));
  EXPECT_THAT(told(nodes + "c,1,2\n", edges),
              HasSubstr("nodes.csv:4: \"c,1,2\" has 3 columns; the first line names 2"));
  EXPECT_THAT(told(nodes + ",\"1,2\"\n", edges), HasSubstr("nodes.csv:4: the id of a vertex is empty"));
  EXPECT_THAT(told(nodes + "\"c,\"1,2\"\n", edges), HasSubstr("nodes.csv:4: a quote is not closed"));
  EXPECT_THAT(told("id,feat\na,1\n", edges), HasSubstr("nodes.csv has no column node_id; it has id, feat"));
  EXPECT_THAT(told("", edges), HasSubstr("nodes.csv is empty"));
  EXPECT_THAT(told("node_id\n", edges), HasSubstr("nodes.csv has no vertices"));
  EXPECT_THAT(told("node_id,label\na,0\nb,x\n", edges),
              HasSubstr("nodes.csv:3: the label \"x\" is not a class"));
  EXPECT_THAT(told("node_id,label\na,0\nb,1.5\n", edges),
              HasSubstr("nodes.csv:3: the label 1.5 is out of range"));
  EXPECT_THAT(told("node_id,label\na,0\nb,0.999999999999\n", edges),
              HasSubstr("nodes.csv:3: the label 0.999999999999 is out of range"));
  EXPECT_THAT(told("node_id,label\na,0\nb,16777217\n", edges), // not a float
              HasSubstr("nodes.csv:3: the label 16777217 is out of range"));
  EXPECT_EQ(told("node_id,graph_id\na,5\nb,5\n", edges), "accepted");
  EXPECT_THAT(told("node_id,graph_id\na,5\na,6\n", edges),
              HasSubstr("nodes.csv:3: a vertex of the graph 6 after one of 5: a data set of many graphs"));
  EXPECT_THAT(
      told("node_id,g\na,5\nb,6\n", edges,
           "edge_data:\n- file_name: edges.csv\nnode_data:\n- file_name: nodes.csv\n  graph_id_field: g\n"),
      HasSubstr("nodes.csv:3: a vertex of the graph 6 after one of 5"));
  EXPECT_THAT(told("node_id,train_mask\na,yes\nb,0\n", edges), HasSubstr("nodes.csv:2: \"yes\" in a mask"));
  EXPECT_THAT(told(nodes, "src_id,dst_id\n"), HasSubstr("edges.csv has no edges"));
  EXPECT_THAT(told(nodes, "src_id,dst_id\na\n"), HasSubstr("edges.csv:2: \"a\" has 1 column"));
  EXPECT_THAT(told(nodes, "src,dst\na,b\n"), HasSubstr("edges.csv has no column src_id"));
  EXPECT_THAT(told(nodes, "src_id,dst_id,weight\na,b,x\n"),
              HasSubstr("edges.csv:2: the weight is not a finite number"));
  std::string const two =
      "edge_data:\n- file_name: edges.csv\nnode_data:\n- file_name: nodes.csv\n- file_name: more.csv\n";
  EXPECT_THAT(told(nodes, edges, two), HasSubstr("/d/more.csv: No such file or directory"));
  EXPECT_THAT(told(nodes, edges, "edge_data:\n- file_name: edges.csv\n"),
              HasSubstr("node_data has no tables of vertices"));
  for (std::string const graphs : {"graph_data:\n  file_name: g.csv\n", "graph_data: {file_name: g.csv}\n"})
    EXPECT_THAT(told(nodes, edges, meta_text + graphs),
                HasSubstr("meta.yaml:10: a data set of many graphs (graph_data)"));
  EXPECT_THAT(told(nodes, edges, "node_data: [{file_name: nodes.csv}]\n"),
              HasSubstr("meta.yaml: node_data has a value in its own line; lines \"- file_name: FILE\""));
  EXPECT_THAT(told(nodes, edges, "node_data:\n- {file_name: nodes.csv}\n"),
              HasSubstr("meta.yaml:2: \"- {file_name: nodes.csv}\" is not understood"));
  EXPECT_THAT(told(nodes, edges, "edge_data: {a: b}\nx\n"),
              HasSubstr("meta.yaml:2: \"x\" is not understood"));
  EXPECT_THAT(told(nodes, edges, "separator: ab\n"),
              HasSubstr("meta.yaml: the separator \"ab\" is not read"));
}

TEST_F(CsvDataSets, ThatAreDamagedAreReadOrRefused) {
  int num_refused = 0;
  for (std::uint64_t i = 0; i < 210; ++i) {
    auto const message =
        told(i % 3 == 0 ? mutant(nodes_text, i) : nodes_text, i % 3 == 1 ? mutant(edges_text, i) : edges_text,
             i % 3 == 2 ? mutant(meta_text, i) : meta_text);
    EXPECT_THAT(message, AnyOf("accepted", HasSubstr("nodes.csv"), HasSubstr("edges.csv"),
                               HasSubstr("meta.yaml"), HasSubstr("cannot read ")))
        << i;
    num_refused += message != "accepted" ? 1 : 0;
  }
  EXPECT_GT(num_refused, 60);
  EXPECT_LT(num_refused, 190);
}

class CsvStore : public StoreTest {};

TEST_F(CsvStore, IsTheSameOnAnyNumberOfRanks) {
  constexpr int n = 90;
  std::string nodes = "node_id,label,feat,train_mask,val_mask,test_mask\n";
  for (int v = 0; v < n; ++v)
    nodes += fmt::format("u{},{},\"{}, {}\",{},{},{}\n", v * 37 % n, v % 4, v, -v, v % 3 == 0, v % 3 == 1,
                         v % 3 == 2 ? "True" : "False");
  std::string edges = "src_id,dst_id\n";
  for (int i = 0; i < 400; ++i)
    edges += fmt::format("u{},u{}\n", i * i % n, (i * 7 + 3) % n);
  scratch.write("d/meta.yaml", meta_text);
  scratch.write("d/nodes.csv", nodes);
  scratch.write("d/edges.csv", edges);

  check(
      [&](runtime::Communicator const& group) { return open_graph(group, {.path = scratch.path() / "d"}); });

  auto const store = GraphStore::open(comm, scratch.path() / "graph.h5");
  auto const names = store.read_vertex_names({0, n});
  for (int v = 0; v < n; ++v)
    EXPECT_EQ(names[static_cast<std::size_t>(v)], fmt::format("u{}", v * 37 % n));
}

} // namespace
} // namespace orthant::graph
