// SPDX-License-Identifier: Apache-2.0
//
// Graphs of several types: OGB's binary archives, tables of the Deep Graph Library's CSVDataset, and arrays with names, in numbers found
// by hand. The typed layouts as text and arrays: tests/cli/models/typed_inputs.py.
#include "graph/bad_input.hpp"
#include "graph/npz.hpp"
#include "graph/store/store_fixture.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orthant::graph {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::npy;

using Members = std::vector<std::pair<std::string, std::string>>;
using Archives = std::map<std::string, Members>;
using Ids = std::vector<std::int64_t>;

std::string ids(std::vector<std::int64_t> const& shape, Ids const& values) {
  return npy("<i8", shape, values);
}

/// Authors 0 and 1, papers 0 to 2.
Archives some_archives() {
  return {{"num_nodes_dict", {{"author.npy", ids({1}, {2})}, {"paper.npy", ids({1}, {3})}}},
          {"num_edges_dict",
           {{"author___writes___paper.npy", ids({1}, {3})}, {"paper___cites___paper.npy", ids({1}, {2})}}},
          {"edge_index_dict",
           {{"author___writes___paper.npy", ids({2, 3}, {0, 1, 1, 0, 1, 2})},
            {"paper___cites___paper.npy", ids({2, 2}, {0, 2, 1, 0})}}},
          {"node_feat_dict", {{"paper.npy", npy<float>("<f4", {3, 2}, {1, 2, 3, 4, 5, 6})}}},
          {"node-label", {{"paper.npy", npy<float>("<f4", {3, 1}, {1, 0, 2})}}}};
}

/// The facts of a graph of authors and papers.
void expect_types(GraphSource const& source) {
  auto const& facts = source.facts();
  EXPECT_EQ(facts.vertex_types, (std::vector<VertexType>{{"author", 2, 0}, {"paper", 3, 2}}));
  EXPECT_THAT(facts.relations, ElementsAre("author__writes__paper", "paper__cites__paper"));
  EXPECT_EQ(facts.num_classes, 3);
}

class TypedInputs : public BadInput {
 protected:
  void write(Archives const& archives, bool is_compressed = false) const {
    remove("d");
    folder_.write("d/split/time/paper/train.csv", "0\n");
    folder_.write("d/split/time/paper/valid.csv", "1\n");
    folder_.write("d/split/time/paper/test.csv", "2\n");
    folder_.write("d/raw/note.txt", "");
    if (comm_.is_root())
      for (auto const& [name, members] : archives)
        testing::write_npz(folder_.path() / "d" / "raw" / (name + ".npz"), members, is_compressed);
    runtime::barrier(runtime::host, comm_);
  }
  /// What a user is told if these members of an archive take the place of others.
  std::string told(std::string const& archive, Members const& members) const {
    auto archives = some_archives();
    archives[archive] = members;
    write(archives);
    return message_of("d");
  }
  /// Edges of all ranks, by relation.
  static std::multimap<std::int64_t, std::pair<std::int64_t, std::int64_t>>
  edges_of(testing::WholeGraph const& whole) {
    std::multimap<std::int64_t, std::pair<std::int64_t, std::int64_t>> edges;
    for (std::size_t i = 0; i < whole.edges.size(); ++i)
      edges.emplace(whole.relations[i], std::pair(whole.edges[i].source, whole.edges[i].target));
    return edges;
  }
};

TEST_F(TypedInputs, OfArchivesAreRead) {
  for (bool const is_compressed : {false, true}) {
    write(some_archives(), is_compressed);
    InputFiles files;
    auto const source = open_graph(comm_, {.path = folder_.path() / "d"}, &files);
    auto const whole = testing::read_whole(comm_, *source, 2);
    expect_types(*source);
    EXPECT_THAT(edges_of(whole),
                ::testing::UnorderedElementsAre(std::pair(0, std::pair(0, 2)), std::pair(0, std::pair(1, 3)),
                                                std::pair(0, std::pair(1, 4)), std::pair(1, std::pair(2, 3)),
                                                std::pair(1, std::pair(4, 2))));
    EXPECT_EQ(whole.features, (std::vector<float>{0, 0, 0, 0, 1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(whole.classes, (Ids{-1, -1, 1, 0, 2}));
    EXPECT_EQ(whole.train, (Ids{2}));
    EXPECT_EQ(whole.test, (Ids{4}));
    if (comm_.is_root()) {
      EXPECT_THAT(files.unused, Contains("raw/note.txt"));
    }
  }
}

TEST_F(TypedInputs, OfArchivesMustAgree) {
  EXPECT_THAT(told("edge_index_dict", {{"author__writes.npy", ids({2, 1}, {0, 0})}}),
              HasSubstr("edge_index_dict.npz: the member author__writes.npy is not SOURCE___NAME___TARGET"));
  EXPECT_THAT(told("edge_index_dict", {{"notes.txt", "x"}}),
              HasSubstr("edge_index_dict.npz: the member notes.txt is not an array"));
  EXPECT_THAT(told("num_edges_dict", {{"author___writes___paper.npy", ids({1}, {3})}}),
              HasSubstr("num_edges_dict.npz has 1 relations, and"));
  EXPECT_THAT(told("num_edges_dict", {{"author___writes___paper.npy", ids({1}, {3})},
                                      {"paper___likes___paper.npy", ids({1}, {2})}}),
              HasSubstr("num_edges_dict.npz has no member paper___cites___paper.npy"));
  EXPECT_THAT(told("num_edges_dict", {{"author___writes___paper.npy", ids({1}, {4})},
                                      {"paper___cites___paper.npy", ids({1}, {2})}}),
              HasSubstr("[2, 4] (as num_edges_dict.npz says) is wanted"));
  EXPECT_THAT(told("num_nodes_dict", {{"author.npy", ids({2}, {2, 1})}, {"paper.npy", ids({2}, {3, 1})}}),
              HasSubstr("one number (a single graph)"));
  EXPECT_THAT(told("num_nodes_dict", {{"author.npy", ids({1}, {2})}, {"paper.npy", ids({1}, {-3})}}),
              HasSubstr("num_nodes_dict.npz says -3 vertices"));
  EXPECT_THAT(told("num_nodes_dict", {{"author.npy", ids({1}, {1})}, {"paper.npy", ids({1}, {3})}}),
              HasSubstr("an edge from author 1 to paper 1, but there are 1 vertices of the type author"));
  EXPECT_THAT(told("node_feat_dict", {{"venue.npy", npy<float>("<f4", {1, 1}, {1})}}),
              HasSubstr("node_feat_dict.npz: the member venue.npy is of no type of vertices"));
  EXPECT_THAT(told("node_feat_dict", {{"paper.npy", npy<float>("<f4", {2, 1}, {1, 2})}}),
              HasSubstr("num_nodes_dict.npz says 3 vertices, but "));
  write(some_archives());
  remove("d/split/time/paper");
  folder_.write("d/split/time/split_dict.pt", "PK");
  EXPECT_THAT(message_of("d"), HasSubstr("split_dict.pt is a file of PyTorch, which is not read: write its"));
}

TEST_F(TypedInputs, OfDamagedArchivesAreReadOrRefused) {
  write(some_archives());
  std::map<std::string, std::string> originals;
  for (auto const& [name, members] : some_archives()) {
    std::ifstream file(folder_.path() / "d" / "raw" / (name + ".npz"), std::ios::binary);
    originals[name] = {std::istreambuf_iterator<char>(file), {}};
  }
  runtime::barrier(runtime::host, comm_);
  int num_refused = 0;
  std::uint64_t number = 0;
  for (int round = 0; round < 45; ++round)
    for (auto const& [name, content] : originals) {
      folder_.write("d/raw/" + name + ".npz", mutant(content, ++number));
      auto const text = message_of("d");
      EXPECT_THAT(text, AnyOf("accepted", HasSubstr(".npz"), HasSubstr("there are no vertices of the type")))
          << number;
      num_refused += text != "accepted" ? 1 : 0;
      folder_.write("d/raw/" + name + ".npz", content);
    }
  EXPECT_GT(num_refused, 150);
}

// Two tables of vertices, whose ids overlap, and two of edges.
using Texts = std::map<std::string, std::string>;
Texts some_tables() {
  return {
      {"meta.yaml", "dataset_name: d\nnode_data:\n- file_name: papers.csv\n  ntype: paper\n- file_name: "
                    "authors.csv\n  ntype: author\n  node_id_field: who\nedge_data:\n- file_name: "
                    "writes.csv\n  etype: [author, writes, \"paper\"]\n- file_name: cites.csv\n  etype:\n  - "
                    "paper\n  - 'cites'\n  - paper\n  src_id_field: from\n"},
      {"papers.csv", "node_id,label,feat,train_mask,val_mask,test_mask\n\"On, X\",1,\"1, 2\",1,0,0\nann,0,"
                     "\"3,4\",0,1,0\np3,2,\"5, 6\",0,0,1\n"},
      {"authors.csv", "who,age\nann,3\nbob,4\n"},
      {"writes.csv", "src_id,dst_id,weight\nann,\"On, X\",1\nbob,ann,2\nbob,p3,3\n"},
      {"cites.csv", "dst_id,from\nann,\"On, X\"\n\"On, X\",p3\n"}};
}

class TypedTables : public TypedInputs {
 protected:
  void write(Texts const& texts) const {
    for (auto const& [name, text] : texts)
      folder_.write("d/" + name, text);
  }
  std::string told(std::string const& name, std::string const& text) const {
    auto texts = some_tables();
    texts[name] = text;
    write(texts);
    return message_of("d");
  }
};

TEST_F(TypedTables, AreReadByTheirColumns) {
  write(some_tables());
  InputFiles files;
  auto const source = open_graph(comm_, {.path = folder_.path() / "d"}, &files);
  auto const whole = testing::read_whole(comm_, *source, 2);
  expect_types(*source);
  EXPECT_THAT(edges_of(whole),
              ::testing::UnorderedElementsAre(std::pair(0, std::pair(0, 2)), std::pair(0, std::pair(1, 3)),
                                              std::pair(0, std::pair(1, 4)), std::pair(1, std::pair(2, 3)),
                                              std::pair(1, std::pair(4, 2))));
  EXPECT_EQ(whole.features, (std::vector<float>{0, 0, 0, 0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(whole.classes, (Ids{-1, -1, 1, 0, 2}));
  EXPECT_EQ(whole.train, (Ids{2}));
  EXPECT_EQ(whole.valid, (Ids{3}));
  EXPECT_EQ(whole.test, (Ids{4}));
  if (!comm_.is_root()) return;
  EXPECT_EQ(source->vertex_names()->text, "annbobOn, Xannp3");
  EXPECT_THAT(files.notes, Contains("columns of authors.csv that are not used: age"));
  EXPECT_THAT(files.notes, Contains("columns of writes.csv that are not used: weight"));
  EXPECT_THAT(files.read, ::testing::UnorderedElementsAre("meta.yaml", "authors.csv", "papers.csv",
                                                          "cites.csv", "writes.csv"));
}

TEST_F(TypedTables, MustAgree) {
  EXPECT_THAT(told("writes.csv", "src_id,dst_id\nann,eve\n"),
              HasSubstr("papers.csv does not list the vertex eve of an edge"));
  EXPECT_THAT(told("writes.csv", "src_id,dst_id\np3,p3\n"),
              HasSubstr("authors.csv does not list the vertex p3 of an edge"));
  EXPECT_THAT(told("authors.csv", "who\nann\nbob\nann\n"),
              HasSubstr("authors.csv:4: the id ann occurs twice"));
  EXPECT_THAT(told("authors.csv", "who,label\nann,1\nbob,0\n"),
              HasSubstr("vertices of the types author and paper have labels"));
  auto const meta = some_tables().at("meta.yaml");
  auto const changed = [&](std::string const& from, std::string const& to) {
    auto text = meta;
    text.replace(text.find(from), from.size(), to);
    return told("meta.yaml", text);
  };
  EXPECT_THAT(changed("ntype: author", "ntype: paper"),
              HasSubstr("meta.yaml: two tables of vertices have the ntype paper"));
  EXPECT_THAT(
      changed("ntype: author", "ntype: venue"),
      HasSubstr("meta.yaml: the etype [author, writes, paper] needs a table of vertices with the ntype "
                "author"));
  EXPECT_THAT(changed("[author, writes, \"paper\"]", "[author, writes]"),
              HasSubstr("meta.yaml: the etype \"[author, writes]\" is not [SOURCE, NAME, TARGET]"));
  EXPECT_THAT(changed("[author, writes, \"paper\"]", "[paper, cites, paper]"),
              HasSubstr("the relation paper__cites__paper is there twice"));
  EXPECT_THAT(changed("ntype: author", "ntype: ../author"),
              HasSubstr("meta.yaml: a type of vertices has a name that is not that of a folder"));
  EXPECT_THAT(changed("- file_name: writes.csv\n ", "-"),
              HasSubstr("meta.yaml: edge_data has a table without"));
}

TEST_F(TypedTables, ThatAreDamagedAreReadOrRefused) {
  int num_refused = 0;
  std::uint64_t number = 1000;
  for (int round = 0; round < 45; ++round)
    for (auto const& [name, content] : some_tables()) {
      auto const text = told(name, mutant(content, ++number));
      EXPECT_THAT(text, AnyOf("accepted", HasSubstr(".csv"), HasSubstr("meta.yaml"),
                              HasSubstr("cannot read "), HasSubstr("have labels"), HasSubstr("there twice")))
          << number;
      num_refused += text != "accepted" ? 1 : 0;
    }
  EXPECT_GT(num_refused, 60);
  EXPECT_LT(num_refused, 220);
}

class TypedArrays : public TypedInputs {
 protected:
  void write() const {
    folder_.write("d/author__writes__paper/edge_index.npy", ids({2, 3}, {0, 1, 1, 0, 1, 2}));
    folder_.write("d/paper/x.npy", npy<float>("<f4", {3, 1}, {1, 2, 3}));
  }
  /// Names as NumPy's "|S4".
  void write_names(std::string const& type, std::vector<std::string> const& names,
                   std::string const& file = "names") const {
    constexpr std::size_t width = 4;
    std::string text = npy_header("|S4", {std::ssize(names)});
    for (auto name : names) {
      name.resize(width);
      text += name;
    }
    folder_.write("d/" + type + "/" + file + ".npy", text);
  }
};

TEST_F(TypedArrays, MayHaveNames) {
  write();
  write_names("paper", {"a b", "x", "\xc3\xa9"});

  auto const source = open_graph(comm_, {.path = folder_.path() / "d"});

  EXPECT_TRUE(source->facts().has_names);
  if (!comm_.is_root()) return;
  EXPECT_EQ(source->vertex_names()->text, "01a bx\xc3\xa9");
}

TEST_F(TypedArrays, MustHaveSoundNames) {
  write();
  write_names("paper", {"a", "b"});
  EXPECT_THAT(message_of("d"), HasSubstr("x.npy says 3 vertices, but "));
  write_names("paper", {"a", "", "c"});
  EXPECT_THAT(message_of("d"), HasSubstr("names.npy: the name of vertex 1 is empty"));
  folder_.write("d/paper/names.npy", ids({3}, {4, 5, 6}));
  EXPECT_THAT(message_of("d"), HasSubstr("names.npy: type '<i8'; names of vertices are texts"));
}

// As labels of graphs of one type are. Authors have none.
TEST_F(TypedArrays, MayHaveLabelsOfAnyKind) {
  write();
  auto const none = std::numeric_limits<double>::quiet_NaN();
  auto const whole_of = [&](bool are_targets, LabelKind kind, std::int64_t num_classes) {
    InputFiles files;
    auto const source =
        open_graph(comm_, {.path = folder_.path() / "d", .labels_are_targets = are_targets}, &files);
    EXPECT_EQ(source->facts().label_kind, kind);
    EXPECT_EQ(source->facts().num_classes, num_classes);
    if (comm_.is_root() && kind != LabelKind::multi) {
      EXPECT_THAT(files.notes, Contains(HasSubstr("y.npy has ")));
    }
    return std::pair(testing::read_whole(comm_, *source, 2), source->facts().class_names);
  };
  auto const is_none = [](double number) { return std::isnan(number); };

  folder_.write("d/paper/y.npy", npy<double>("<f8", {3, 2}, {1.5, 2, none, -1, 0, 3}));
  auto targets = whole_of(false, LabelKind::real, 2).first.targets;
  EXPECT_EQ(std::ranges::count_if(targets, is_none), 5);
  std::ranges::replace_if(targets, is_none, -9.0);
  EXPECT_EQ(targets, (std::vector<double>{-9, -9, -9, -9, 1.5, 2, -9, -1, 0, 3}));

  folder_.write("d/paper/y.npy", ids({3}, {7, 0, -2}));
  targets = whole_of(true, LabelKind::real, 1).first.targets;
  std::ranges::replace_if(targets, is_none, -9.0);
  EXPECT_EQ(targets, (std::vector<double>{-9, -9, 7, 0, -2}));

  folder_.write("d/paper/y.npy", ids({3, 2}, {1, 0, -1, 1, 0, 0}));
  EXPECT_EQ(whole_of(false, LabelKind::multi, 2).first.indicator, (Ids{-1, -1, -1, -1, 1, 0, -1, 1, 0, 0}));

  write_names("paper", {"red", "", "blue"}, "y");
  auto const [whole, names] = whole_of(false, LabelKind::single, 2);
  EXPECT_EQ(whole.classes, (Ids{-1, -1, 1, -1, 0}));
  EXPECT_THAT(names, ElementsAre("blue", "red"));
}

TEST_F(TypedArrays, MustHaveLabelsThatFit) {
  write();
  auto const targets_of = [&] { return message({.path = folder_.path() / "d", .labels_are_targets = true}); };
  EXPECT_THAT(targets_of(), HasSubstr("--targets: "));
  write_names("paper", {"red", "", "blue"}, "y");
  EXPECT_THAT(targets_of(), HasSubstr("y.npy has texts, which are names of classes: leave the option out"));
  folder_.write("d/paper/y.npy", ids({3, 1, 1}, {1, 0, 1}));
  EXPECT_THAT(message_of("d"), HasSubstr("[vertices], or [vertices, classes or targets]"));
}

class TypedStore : public StoreTest {};

TEST_F(TypedStore, OfTablesIsTheSameOnAnyNumberOfRanks) {
  constexpr int n = 60;
  auto texts = some_tables();
  texts["papers.csv"] = "node_id,label,feat\n";
  texts["authors.csv"] = "who\n";
  for (int v = 0; v < n; ++v) {
    texts["papers.csv"] += fmt::format("v{},{},\"{}, {}\"\n", v * 7 % n, v % 3, v, -v);
    if (v % 2 == 0) texts["authors.csv"] += fmt::format("v{}\n", v);
  }
  texts["writes.csv"] = texts["cites.csv"] = "src_id,dst_id\n";
  for (int i = 0; i < 200; ++i) {
    texts["writes.csv"] += fmt::format("v{},v{}\n", i * i * 2 % n, (i * 7 + 3) % n);
    texts["cites.csv"] += fmt::format("v{},v{}\n", (i * 11 + 1) % n, i * i % n);
  }
  texts["cites.csv"].replace(0, 6, "from");
  for (auto const& [name, text] : texts)
    scratch.write("d/" + name, text);

  check(
      [&](runtime::Communicator const& group) { return open_graph(group, {.path = scratch.path() / "d"}); });

  auto const store = GraphStore::open(comm, scratch.path() / "graph.h5");
  auto const names = store.read_vertex_names({0, n / 2 + n});
  for (int v = 0; v < n / 2; ++v)
    EXPECT_EQ(names[static_cast<std::size_t>(v)], fmt::format("v{}", 2 * v));
  for (int v = 0; v < n; ++v)
    EXPECT_EQ(names[static_cast<std::size_t>(n / 2 + v)], fmt::format("v{}", v * 7 % n));
}

} // namespace
} // namespace orthant::graph
