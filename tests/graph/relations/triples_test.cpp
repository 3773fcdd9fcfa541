// SPDX-License-Identifier: Apache-2.0
//
// Files of triples: what separates names, which lines are skipped, and mistakes.
#include "graph/bad_input.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <string>
#include <utility>
#include <vector>

namespace orthant::graph {
namespace {

using ::testing::HasSubstr;

class Triples : public BadInput {
 protected:
  /// "source relation target" of all edges, in numbers.
  std::vector<std::string> read(std::string const& name, std::string_view text, bool adds_inverse = false,
                                std::int64_t batch_size = 2) const {
    auto const source = open_graph(
        comm_,
        {.path = folder_.write(name, text), .format = InputFormat::triples, .adds_inverse = adds_inverse});
    EXPECT_TRUE(source->facts().is_directed);
    std::vector<std::int64_t> mine; // each rank reads a share of the lines
    auto const stream = source->edges(batch_size);
    for (EdgeBatch batch; stream->next(batch);) {
      EXPECT_LE(std::ssize(batch.edges), batch_size);
      for (std::size_t i = 0; i < batch.edges.size(); ++i)
        mine.insert(mine.end(), {batch.edges[i].source, batch.relations[i], batch.edges[i].target});
    }
    auto const all = testing::gather_all(comm_, mine);
    std::vector<std::string> edges;
    for (std::size_t i = 0; i < all.size(); i += 3)
      edges.push_back(fmt::format("{} {} {}", all[i], all[i + 1], all[i + 2]));
    return edges;
  }
  std::string message_of_text(std::string_view text, bool adds_inverse = false) const {
    return message(
        {.path = folder_.write("t.tsv", text), .format = InputFormat::triples, .adds_inverse = adds_inverse});
  }
};

TEST_F(Triples, MayBeSeparatedInManyWays) {
  std::vector<std::string> const expected{"0 0 1", "1 1 0", "0 0 1", "2 1 2"};
  for (std::string const text :
       {"a\tr\tb\nb\ts\ta\na\tr\tb\nc\ts\tc\n", "a r b\nb s a\na r b\nc s c",
        "a r   b\n  b\ts a \na r b\nc s c\n", "a,r,b\nb, s ,a\na,r,b\nc,s,c\n",
        "a;r;b\nb;s;a\na;r;b\nc;s;c\n", "a|r|b\nb|s|a\na|r|b\nc|s|c\n",
        "\xEF\xBB\xBF# names\r\na\tr\tb\r\n\r\n% more\r\nb\ts\ta\r\n  # x\r\na\tr\tb\r\nc\ts\tc\r\n",
        "head\trelation\ttail\na\tr\tb\nb\ts\ta\na\tr\tb\nc\ts\tc\n",
        "# x\nSubject,Predicate,Object\na,r,b\nb,s,a\na,r,b\nc,s,c\n", "7 0 3\n3 1 7\n7 0 3\n0 1 0\n"}) {
    for (std::string const name : {"t.tsv", "t.txt.gz"})
      EXPECT_EQ(read(name, text), expected);
  }
  // Names of columns are names of vertices elsewhere.
  EXPECT_EQ(read("t.tsv", "a type b\nhead type tail\n"), (std::vector<std::string>{"0 0 1", "2 0 3"}));
  // A quote that does not enclose a name is part of it, unless commas separate names.
  EXPECT_EQ(read("t.tsv", "a\tr\t\"1990\"^^year\n\"a\"\tr\t\"1990\"\n"),
            (std::vector<std::string>{"0 0 1", "0 0 2"}));
  // A tab cuts names of several words, and commas in them.
  EXPECT_EQ(read("t.tsv", "New York\tis in\tU S, A\nU S, A\thas\tNew York\n"),
            (std::vector<std::string>{"0 0 1", "1 1 0"}));
}

TEST_F(Triples, AreFollowedByTheirInverses) {
  std::vector<std::string> const expected{"0 0 1", "1 2 0", "2 1 2", "2 3 2", "1 0 0", "0 2 1"};
  for (auto const batch_size : {1, 2, 3, 100})
    EXPECT_EQ(read("t.tsv", "a r b\nc s c\nb r a\n", true, batch_size), expected);
  auto const source = open_graph(
      comm_, {.path = folder_.path() / "t.tsv", .format = InputFormat::triples, .adds_inverse = true});
  EXPECT_EQ(source->facts().relations, (std::vector<std::string>{"r", "s", "rev_r", "rev_s"}));
  EXPECT_EQ(source->facts().num_edges, 6);
}

TEST_F(Triples, WithMistakes) {
  EXPECT_THAT(
      message_of_text("a\tr\tb\na\tr\n"),
      HasSubstr("t.tsv:2: \"a?r\" has 2 columns separated by tabs; a triple is \"head relation tail\""));
  EXPECT_THAT(message_of_text("a r\n"), HasSubstr("t.tsv:1: \"a r\" has 2 columns separated by blanks"));
  EXPECT_THAT(message_of_text("a r b 0.5\n"), HasSubstr("has 4 columns"));
  EXPECT_THAT(message_of_text("a,r,b\na,r\n"), HasSubstr("t.tsv:2: \"a,r\" has 2 columns separated by ','"));
  EXPECT_THAT(message_of_text("a\tr\tb\na\t\tb\n"), HasSubstr("t.tsv:2: the relation is empty in \"a??b\""));
  EXPECT_THAT(message_of_text("a\tr\tb\n\tr\tb\n"), HasSubstr("t.tsv:2: the head is empty"));
  EXPECT_THAT(message_of_text("a\tr\tb\na\tr\t \n"), HasSubstr("t.tsv:2: the tail is empty"));
  EXPECT_THAT(message_of_text("a\tr\tb\nx\x01y\tr\tb\n"),
              HasSubstr("t.tsv:2: a name holds a control character"));
  EXPECT_THAT(message_of_text("a\tr\t" + std::string(5000, 'b')), HasSubstr("a name of 5000 bytes"));
  EXPECT_THAT(message_of_text("# nothing\n\n"), HasSubstr("t.tsv has no triples"));
  EXPECT_THAT(message_of_text(""), HasSubstr("t.tsv has no triples"));
  EXPECT_THAT(message_of_text("a r b\nb rev_r a\n", true), HasSubstr("has the relation rev_r already"));
  folder_.write("e.txt", "0 1\n1 0\n");
  EXPECT_THAT(message({.path = folder_.path() / "e.txt", .adds_inverse = true}),
              HasSubstr("--add-inverse: " + (folder_.path() / "e.txt").string() + " has no relations"));
}

TEST_F(Triples, HaveAtMost65535Relations) {
  std::string text;
  for (int r = 0; r < 65'535; ++r)
    text += fmt::format("a r{} b\n", r);
  EXPECT_EQ(message_of_text(text), "accepted");
  EXPECT_THAT(message_of_text(text, true), HasSubstr("has 65535 relations, and a graph at most 65535"));
  // Each rank finds too many in its share only if it reads all of the file.
  EXPECT_THAT(message_of_text(text + "a one_more b\n"),
              HasSubstr(comm_.size() == 1 ? "t.tsv:65536: more than 65535 relations"
                                          : "t.tsv has more than 65535 relations"));
}

TEST_F(Triples, OfAFolderHaveRowsOfTheirVertices) {
  folder_.write("g/triples.tsv", "a r b\nb s c\n");
  write_array<float>("g/x.npy", "<f4", {3, 2}, {1, 2, 3, 4, 5, 6});
  write_array<std::int64_t>("g/y.npy", "<i8", {3}, {0, 1, 1});
  write_array<std::uint8_t>("g/train_mask.npy", "|b1", {3}, {1, 0, 0});
  write_array<std::uint8_t>("g/val_mask.npy", "|b1", {3}, {0, 1, 0});
  write_array<std::uint8_t>("g/test_mask.npy", "|b1", {3}, {0, 0, 1});
  EXPECT_EQ(message_of("g"), "accepted");
  auto const source = open_graph(comm_, {.path = folder_.path() / "g"});
  EXPECT_EQ(source->facts().num_vertices, 3);
  EXPECT_EQ(source->facts().num_features, 2);
  EXPECT_EQ(source->facts().num_classes, 2);
  EXPECT_TRUE(source->facts().has_split);
  EXPECT_EQ(source->facts().relations, (std::vector<std::string>{"r", "s"}));

  write_array<float>("g/x.npy", "<f4", {4, 1}, {1, 2, 3, 4}); // a vertex that no line names
  remove("g/y.npy");
  for (auto const* const mask : {"train", "val", "test"})
    remove(fmt::format("g/{}_mask.npy", mask));
  EXPECT_THAT(message_of("g"),
              HasSubstr("x.npy says 4 vertices, but " + (folder_.path() / "g/triples.tsv").string() +
                        " names 3: a row per named vertex is wanted"));
}

} // namespace
} // namespace orthant::graph
