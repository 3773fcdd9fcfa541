// SPDX-License-Identifier: Apache-2.0
//
// Edge lists whose ends are names, against numbers that were found by hand or by a plain loop.
#include "graph/bad_input.hpp"
#include "graph/store/store_fixture.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orthant::graph {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class NamedEdgeLists : public BadInput {
 protected:
  /// "source target [weight]" of all edges in numbers, and the names after them.
  std::vector<std::string> read(std::string const& name, std::string_view text,
                                bool names_only = false) const {
    auto const source = open_graph(comm_, {.path = folder_.write(name, text), .names_only = names_only});
    auto const whole = testing::read_whole(comm_, *source, 2);
    std::vector<std::string> found;
    for (std::size_t i = 0; i < whole.edges.size(); ++i) {
      auto const weight = whole.weights.empty() ? std::string() : fmt::format(" {}", whole.weights[i]);
      found.push_back(fmt::format("{} {}{}", whole.edges[i].source, whole.edges[i].target, weight));
    }
    auto const* const names = source->vertex_names();
    EXPECT_EQ(names != nullptr, source->facts().has_names && comm_.is_root());
    std::string joined = "numbers";
    if (names != nullptr) {
      joined.clear();
      for (std::int64_t i = 0; i < names->size(); ++i)
        joined += fmt::format("[{}]", (*names)[i]);
    }
    runtime::broadcast_text(comm_, joined, 0);
    found.push_back(joined);
    return found;
  }
  std::string message_of_text(std::string_view text) const {
    return message({.path = folder_.write("e.csv", text)});
  }
};

TEST_F(NamedEdgeLists, MayBeSeparatedInManyWays) {
  std::vector<std::string> const expected{"0 1", "1 2", "2 2", "0 1", "[ann][bob][7]"};
  for (std::string const text :
       {"ann bob\nbob 7\n7 7\nann bob\n", "ann\tbob\nbob\t7\n7\t7\nann\tbob",
        "ann,bob\nbob,7\n7,7\nann,bob\n", "ann;bob\nbob; 7\n7;7\nann;bob\n",
        "ann|bob\r\nbob|7\r\n7|7\r\nann|bob\r\n",
        "\xEF\xBB\xBFsource,target\nann,bob\n\n# comment\nbob,7\n7,7\n% more\nann,bob\n",
        ":START_ID,:END_ID\n\"ann\",\"bob\"\n\"bob\",\"7\"\n7,7\nann, \"bob\" \n",
        "Source Node;Target Node\nann;bob\nbob;7\n7;7\nann;bob\n",
        "ann bob {}\nbob 7 {'k': 'a b'}\n7 7 {}\nann bob {}\n"})
    for (std::string const name : {"e.csv", "e.txt.gz"})
      EXPECT_EQ(read(name, text), expected) << text;
}

TEST_F(NamedEdgeLists, MayHaveWeights) {
  std::vector<std::string> const expected{"0 1 2.5", "1 0 -1", "[a b][c]"};
  for (std::string const text :
       {"a b\tc\t2.5\nc\ta b\t-1\n", "a b,c,2.5\nc,a b,-1e0\n", "from,to,w\n\"a b\",c,\"2.5\"\nc,a b,-1\n",
        "who,whom,messages\na b,c,2.5\nc,a b,-1.0\n",
        "\"a b\" c {'weight': 2.5}\nc \"a b\" {'k': 1, 'weight': -1}\n",
        "\"a b\" c {'weight': np.float64(2.5)}\nc \"a b\" {'k': 'weight', 'weight': np.int64(-1), 'l': 3}\n"})
    EXPECT_EQ(read("e.csv", text), expected) << text;
  EXPECT_EQ(read("e.csv", "1 2 {'weight': 2.5}\n2 0 {'k': 1, 'weight': -1}\n"),
            (std::vector<std::string>{"1 2 2.5", "2 0 -1", "numbers"}));
  EXPECT_EQ(
      read("e.csv", "1 2 {'weight' : np.float32(2.5), 'k': 1}\n2 0 {\"k\": \"weight\", \"weight\": -1}\n"),
      (std::vector<std::string>{"1 2 2.5", "2 0 -1", "numbers"}));
  EXPECT_EQ(read("e.csv", "1 2 {}\n2 0 {}\n2 1\n"),
            (std::vector<std::string>{"1 2", "2 0", "2 1", "numbers"}));
}

TEST_F(NamedEdgeLists, AreRecognizedByTheirFirstEdge) {
  EXPECT_EQ(read("e.csv", "\"1\",\"2\"\n2,0\n"), (std::vector<std::string>{"1 2", "2 0", "numbers"}));
  EXPECT_EQ(read("e.csv", "1;2;\"0.5\"\n\"2\";0;3\n"),
            (std::vector<std::string>{"1 2 0.5", "2 0 3", "numbers"}));
  EXPECT_EQ(read("e.csv", "any,word\n1,2\n2,0\n"), (std::vector<std::string>{"1 2", "2 0", "numbers"}));
  EXPECT_EQ(read("e.csv", "any,word\nann,2\n"),
            (std::vector<std::string>{"0 1", "2 3", "[any][word][ann][2]"}));
  EXPECT_EQ(read("e.csv", "007 7\n7 a\n", true), (std::vector<std::string>{"0 1", "1 2", "[007][7][a]"}));
  EXPECT_EQ(read("e.csv", "source,target\n1,20\n20,1\n", true),
            (std::vector<std::string>{"0 1", "1 0", "[1][20]"}));
  EXPECT_EQ(read("e.csv", "any,word\n1,20\n20,1\n", true),
            (std::vector<std::string>{"0 1", "1 0", "[1][20]"}));
  EXPECT_EQ(read("e.csv", "user_id,item_id\nann,b1\n"), (std::vector<std::string>{"0 1", "[ann][b1]"}));
  EXPECT_EQ(read("e.csv", "x{1},y\ny,{2}\n"), (std::vector<std::string>{"0 1", "1 2", "[x{1}][y][{2}]"}));
  EXPECT_EQ(read("e.csv", "12345678901234567890 1.5\n", true),
            (std::vector<std::string>{"0 1", "[12345678901234567890][1.5]"}));
  EXPECT_EQ(read("e.csv", "a,\"x, \"\"y\"\" z\"\n\"x, \"\"y\"\" z\",\"\xC3\xA9\"\n"),
            (std::vector<std::string>{"0 1", "1 2", "[a][x, \"y\" z][\xC3\xA9]"}));
}

TEST_F(NamedEdgeLists, WithMistakes) {
  EXPECT_THAT(
      message_of_text("1,2\n2,bob\n"),
      HasSubstr("e.csv:2: the target is not a vertex id in \"2,bob\"; \"source target\" in whole numbers "
                "(or --names, if ends are names) is wanted"));
  EXPECT_THAT(
      message_of_text("1,bob\n2,bob\n"),
      HasSubstr("e.csv:1: the target is not a vertex id in \"1,bob\"; \"source target\" in whole numbers is "
                "wanted, or --names, which reads all ends as names"));
  EXPECT_THAT(message_of_text("1.0,2.0\n"), HasSubstr("--names"));
  EXPECT_THAT(message_of_text("12345678901234567890 1\n"), HasSubstr("--names"));
  EXPECT_THAT(message_of_text("-1 2\n"), HasSubstr("negative source id"));
  EXPECT_THAT(message_of_text("a b c\n"), HasSubstr("--format triples"));
  EXPECT_THAT(message_of_text("a b c d\n"), HasSubstr("e.csv:1: \"a b c d\" has 4 columns"));
  EXPECT_THAT(message_of_text("a\n"), HasSubstr("e.csv:1: \"a\" has 1 columns"));
  EXPECT_THAT(message_of_text("a,b\nc\n"),
              HasSubstr("e.csv:2: \"c\" has 1 column separated by ','; an edge is \"source target\""));
  EXPECT_THAT(message_of_text("a,b\nb,\n"), HasSubstr("e.csv:2: the target is empty in \"b,\""));
  EXPECT_THAT(message_of_text("a,b\n\"c,d\ne\",a\n"), HasSubstr("e.csv:2: a quote is not closed"));
  EXPECT_THAT(message_of_text("a,b\n\"c\"d,a\n"), HasSubstr("e.csv:2: a quote is not closed"));
  EXPECT_THAT(message_of_text("a,b,1\nb,c,x\n"), HasSubstr("e.csv:2: the weight is not a finite number"));
  EXPECT_THAT(message_of_text("a,b,1\nb,c,inf\n"), HasSubstr("e.csv:2: the weight is not a finite number"));
  EXPECT_THAT(message_of_text("a b {'weight': 1}\nb c {}\n"),
              HasSubstr("e.csv:2: no finite number follows 'weight'"));
  EXPECT_THAT(message_of_text("1 2 {'weight': 1}\n2 3 {}\n"),
              HasSubstr("e.csv:2: no finite number follows 'weight'"));
  EXPECT_THAT(message_of_text("a b {}\nb c 5\n"), HasSubstr("e.csv:2: a dictionary is wanted"));
  EXPECT_THAT(message_of_text("a,b\nb,c\x01"
                              "d\n"),
              HasSubstr("e.csv:2: a name holds a control character"));
  EXPECT_THAT(message_of_text("source,target\n"), HasSubstr("e.csv has no edges"));
  EXPECT_THAT(message({.path = folder_.write("e.txt.gz", "# names\nsource,target\na,b\nc\n")}),
              HasSubstr("e.txt.gz:4: \"c\" has 1 column"));
  folder_.write("m.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n");
  EXPECT_THAT(message({.path = folder_.path() / "m.mtx", .names_only = true}),
              HasSubstr("--names is for edge lists and triples; "));
}

TEST_F(NamedEdgeLists, HaveANoteIfCommentsMayBeEdges) {
  auto const note = [&](std::string const& text) {
    InputFiles files;
    static_cast<void>(open_graph(comm_, {.path = folder_.write("e.csv", text)}, &files));
    auto const found = std::ranges::find_if(
        files.notes, [](auto const& line) { return line.find("begin with #") != std::string::npos; });
    return found == files.notes.end() ? std::string("none") : *found;
  };
  auto const expected = [&](std::string const& text) { return comm_.is_root() ? text : "none"; };
  EXPECT_EQ(note("a,b\n#1 song,a\n% c,d\n%c,a\n# b\n"),
            expected("2 lines of e.csv that begin with # or % are skipped, although they have the columns of "
                     "an edge"));
  EXPECT_EQ(note("#from,to\n# of,me\nfrom,to\n#more,too\na,b\n# 1\n#1\n#1,2,3\n"), "none");
}

TEST_F(NamedEdgeLists, HaveAWeightInEachDictionaryOrInNone) {
  for (std::string const ends : {"1 2", "a b"}) {
    auto const told = [&](std::string const& first, std::string const& second = "{}") {
      auto const path = folder_.write("e.csv", fmt::format("{0} {1}\n{0} {2}\n", ends, first, second));
      EXPECT_EQ(message({.path = path, .use_weights = false}), "accepted");
      return message({.path = path});
    };
    EXPECT_THAT(told("{}", "{'weight': 2}"),
                HasSubstr("e.csv:2: the first edge has no 'weight', but there is one in \"" + ends + " {'w"));
    EXPECT_THAT(told("{'k': 'weight'}", "{\"weight\": 2}"),
                HasSubstr("e.csv:2: the first edge has no 'weight'"));
    EXPECT_EQ(told("{'k': 'weight'}", "{'k': 'weight'}"), "accepted");
    for (std::string const wrong :
         {"'2'", "None", "2x", "[1, 2]", "nan", "np.float64('2')", "np.float64(2", "1+2j"})
      EXPECT_THAT(told("{'weight': " + wrong + "}"),
                  HasSubstr("e.csv:1: no finite number follows 'weight' in \"" + ends));
  }
}

TEST_F(NamedEdgeLists, ThatAreDamagedAreReadOrRefused) {
  std::string const text =
      "source,target,weight\nann,bob,1.5\n\"Doe, J\",ann,2\nbob,\"a \"\"b\"\"\",3e0\ncarl,ann,4\n";
  std::string const dicts = "1 2 {'weight': 2.5}\n2 3 {'weight': 1, 'k': 'x'}\n3 1 {'weight': 4}\n";
  int num_refused = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    folder_.write("e.csv", mutant(i % 3 == 0 ? dicts : text, i));
    auto const told = message({.path = folder_.path() / "e.csv", .names_only = i % 4 == 0});
    EXPECT_THAT(told, AnyOf("accepted", HasSubstr("e.csv")));
    num_refused += told != "accepted" ? 1 : 0;
  }
  EXPECT_GT(num_refused, 20);
  EXPECT_LT(num_refused, 190);
}

TEST_F(NamedEdgeLists, OfAFolderHaveRowsOfTheirVertices) {
  folder_.write("g/edges.csv", "from,to\nann,bob\nbob,carl\n");
  write_array<float>("g/x.npy", "<f4", {3, 2}, {1, 2, 3, 4, 5, 6});
  write_array<std::int64_t>("g/y.npy", "<i8", {3}, {0, 1, 1});
  auto const source = open_graph(comm_, {.path = folder_.path() / "g"});
  auto const whole = testing::read_whole(comm_, *source);
  EXPECT_EQ(whole.features, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(whole.classes, (std::vector<std::int64_t>{0, 1, 1}));
  write_array<float>("g/x.npy", "<f4", {4, 1}, {1, 2, 3, 4});
  EXPECT_THAT(message_of("g"), AnyOf(HasSubstr("x.npy says 4 vertices"), HasSubstr("y.npy says 3 vertices")));
  remove("g/y.npy");
  EXPECT_THAT(message_of("g"), HasSubstr("edges.csv names 3: a row per named vertex is wanted"));
}

class NamedStore : public StoreTest {};

TEST_F(NamedStore, HasTheNamesInTheOrderOfFirstAppearance) {
  std::string text = "source,target,weight\n";
  std::vector<std::string> names;
  std::map<std::string, std::int64_t> numbers;
  std::vector<Edge> edges;
  std::uint64_t state = 5;
  auto const draw = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    auto const name = fmt::format("vertex, {}", (state >> 33) % 211 * ((state >> 50) % 3 + 1));
    auto const [found, is_new] = numbers.try_emplace(name, std::ssize(names));
    if (is_new) names.push_back(name);
    text += fmt::format("\"{}\",", name);
    return found->second;
  };
  for (int i = 0; i < 700; ++i) {
    auto const source = draw();
    edges.push_back({source, draw()});
    text += fmt::format("{}\n", i % 5 + 1);
  }
  auto const path = scratch.write("e.csv", text);
  auto const open = [&](runtime::Communicator const& group) { return open_graph(group, {.path = path}); };

  EXPECT_EQ(testing::read_whole(comm, *open(comm)).edges, edges);
  check(open);
  auto const store = GraphStore::open(comm, scratch.path() / "graph.h5");
  EXPECT_EQ(store.facts().num_vertices, std::ssize(names));
  EXPECT_EQ(store.read_vertex_names({0, std::ssize(names)}), names);
}

} // namespace
} // namespace orthant::graph
