// SPDX-License-Identifier: Apache-2.0
//
// Files that are sound one by one and do not fit together, and values out of range.
#include "bad_input.hpp"
#include "graph/partition/edge_store.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <limits>

namespace orthant::graph {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(BadInput, TheSoundFoldersAreAccepted) {
  write_ogb("g");
  write_npy("n");

  EXPECT_EQ(message_of("g"), "accepted");
  EXPECT_EQ(message_of("n"), "accepted");
}

TEST_F(BadInput, LengthsThatDisagree) {
  write_ogb("g");

  folder_.write("g/raw/num-edge-list.csv.gz", "5\n");
  EXPECT_THAT(message_of("g"), AllOf(HasSubstr("holds 4 edges"), HasSubstr("num-edge-list.csv.gz says 5")));
  write_ogb("f");
  folder_.write("f/raw/node-feat.csv.gz", "1,2\n3,4\n5,6\n");
  EXPECT_THAT(message_of("f"), HasSubstr("node-feat.csv.gz: ends after line 3: the graph has 5 vertices"));
  folder_.write("f/raw/node-feat.csv.gz", "1,2\n3,4\n5,6\n7,8\n9,10\n11,12\n");
  EXPECT_THAT(message_of("f"), HasSubstr("node-feat.csv.gz:6: more lines than the graph's 5 vertices"));
  folder_.write("f/raw/node-feat.csv.gz", "1,2\n3,4\n5\n7,8\n9,10\n");
  EXPECT_THAT(message_of("f"), HasSubstr("node-feat.csv.gz:3: 1 features; the first line has 2"));
  folder_.write("f/raw/node-feat.csv.gz", "1,2\n3,4\n5,6,7\n7,8\n9,10\n");
  EXPECT_THAT(message_of("f"), HasSubstr("node-feat.csv.gz:3: more than the first line's 2 features"));
  write_ogb("l");
  folder_.write("l/raw/node-label.csv.gz", "0\n1\n");
  EXPECT_THAT(message_of("l"), HasSubstr("node-label.csv.gz: ends after line 2"));
  write_ogb("w");
  folder_.write("w/raw/edge-weight.csv.gz", "1\n2\n3\n");
  EXPECT_THAT(message_of("w"),
              HasSubstr("edge-weight.csv.gz: ends after line 3: there are more edges than weights"));
  folder_.write("w/raw/edge-weight.csv.gz", "1\n2\n3\n4\n5\n");
  EXPECT_THAT(message_of("w"), HasSubstr("edge-weight.csv.gz:5: there are more weights than edges"));
  folder_.write("m.mtx", "%%MatrixMarket matrix coordinate pattern general\n3 3 3\n1 2\n2 1\n");
  EXPECT_THAT(message_of("m.mtx"), AllOf(HasSubstr("m.mtx holds 2 edges"), HasSubstr("says 3")));
  write_npy("n");
  write_array<std::int64_t>("n/labels.npy", "<i8", {5}, {0, 1, 0, 1, 0});
  EXPECT_THAT(message_of("n"), AllOf(HasSubstr("x.npy says 4 vertices"), HasSubstr("labels.npy says 5")));
  write_npy("t");
  folder_.write("t/x.npy", npy_header("<f4", {4, 2}) + std::string(20, '\0'));
  EXPECT_THAT(message_of("t"),
              AllOf(HasSubstr("x.npy"), HasSubstr("needs 160 bytes, but the file has 148 (truncated?)")));
  write_ogb("j");
  folder_.write("j/meta.json", R"({"num_nodes": 6})");
  EXPECT_THAT(message_of("j"),
              AllOf(HasSubstr("num-node-list.csv.gz says 5 vertices"), HasSubstr("meta.json says 6")));
  write_ogb("k");
  if (comm_.is_root()) std::filesystem::remove(folder_.path() / "k" / "raw" / "num-edge-list.csv.gz");
  folder_.write("k/meta.json", R"({"num_edge_lines": 3})");
  EXPECT_THAT(message_of("k"), AllOf(HasSubstr("holds 4 edges"), HasSubstr("meta.json says 3")));
  folder_.write("j/meta.json", R"({"num_nodes": )");
  EXPECT_THAT(message_of("j"), HasSubstr("meta.json: not sound JSON at byte"));
}

TEST_F(BadInput, FeaturesThatAreNotFinite) {
  write_ogb("g");
  folder_.write("g/raw/node-feat.csv.gz", "1,2\n3,nan\n5,6\n7,8\n9,10\n");
  EXPECT_THAT(message_of("g"), HasSubstr("node-feat.csv.gz:2: feature 2 is nan"));
  folder_.write("g/raw/node-feat.csv.gz", "1,2\n3,4\n5,6\n1e60,8\n9,10\n");
  EXPECT_THAT(message_of("g"), HasSubstr("node-feat.csv.gz:4: feature 1 is inf"));
  write_npy("n");
  write_array<float>("n/x.npy", "<f4", {4, 2},
                     {1, 2, 3, 4, 5, std::numeric_limits<float>::quiet_NaN(), 7, 8});
  EXPECT_THAT(message_of("n"),
              HasSubstr("x.npy: feature nan at element 5 (byte 148) is not a finite number"));
}

TEST_F(BadInput, LabelsOutOfRange) {
  write_ogb("g");
  folder_.write("g/raw/node-label.csv.gz", "0\n1\n9\n0\n1\n"); // from 10 on they would be names
  EXPECT_THAT(message_of("g"), HasSubstr("node-label.csv.gz:3: label 9 is out of range"));
  folder_.write("g/raw/node-label.csv.gz", "0\n-2\n1\n0\n1\n");
  EXPECT_THAT(message_of("g"), HasSubstr("node-label.csv.gz:2: label -2 is out of range"));
  folder_.write("g/raw/node-label.csv.gz", "0\n0.5\n1\n0\n1\n");
  EXPECT_THAT(message_of("g"), HasSubstr("node-label.csv.gz:2: label 0.5 is out of range"));
  folder_.write("g/raw/node-label.csv.gz", "0\n3\n1\n0\n1\n");
  folder_.write("g/meta.json", R"({"num_classes": 3})");
  EXPECT_THAT(message_of("g"), HasSubstr("node-label.csv.gz:2: label 3 is out of range: 0 to 2"));
  remove("g/meta.json");
  folder_.write("g/raw/node-label.csv.gz", "0,1\n1,1\n0,2\n0,0\n1,nan\n");
  EXPECT_THAT(message_of("g"),
              HasSubstr("node-label.csv.gz:3: column 2 is 2; labels of several columns are 0 or 1, or nan"));
  write_npy("n");
  write_array<std::int64_t>("n/labels.npy", "<i8", {4}, {0, 1, -2, 1});
  EXPECT_THAT(message_of("n"), HasSubstr("labels.npy: label -2 at element 2 (byte 144) is out of range"));
  write_array<float>("n/labels.npy", "<f4", {4}, {0, 1.5f, 0, 1}); // targets, unless classes are counted
  folder_.write("n/meta.json", R"({"num_classes": 2})");
  EXPECT_THAT(message_of("n"), HasSubstr("labels.npy: label 1.5 at element 1"));
  write_ogb("u");
  folder_.write("u/raw/node-label.csv.gz", "nan\nnan\nnan\nnan\nnan\n");
  EXPECT_THAT(message_of("u"), HasSubstr("no vertex has a label"));
}

TEST_F(BadInput, EmptyGraphs) {
  folder_.write("e.txt", "");
  EXPECT_THAT(message_of("e.txt"), HasSubstr("e.txt has no edges"));
  folder_.write("c.txt", "# nothing but words\n\n");
  EXPECT_THAT(message_of("c.txt"), HasSubstr("c.txt has no edges"));
  write_ogb("g");
  folder_.write("g/raw/num-node-list.csv.gz", "0\n");
  EXPECT_THAT(message_of("g"), HasSubstr("num-node-list.csv.gz says 0 vertices: the graph is empty"));
  write_ogb("h");
  folder_.write("h/raw/edge.csv.gz", "");
  EXPECT_THAT(message_of("h"), HasSubstr("has no edges"));
  write_npy("n");
  write_array<std::int64_t>("n/edge_index.npy", "<i8", {2, 0}, {});
  EXPECT_THAT(message_of("n"), HasSubstr("edge_index.npy has no edges"));
  folder_.write("m.mtx", "%%MatrixMarket matrix coordinate pattern general\n0 0 0\n");
  EXPECT_THAT(message_of("m.mtx"), HasSubstr("the graph is empty"));
}

TEST_F(BadInput, MetaThatDisagreesOrIsNonsense) {
  write_npy("n");
  auto const told = [&](std::string const& text) {
    folder_.write("n/meta.json", text);
    return message_of("n");
  };

  EXPECT_EQ(told(R"({"num_nodes": 4, "num_edge_lines": 3, "num_classes": 2})"), "accepted");
  EXPECT_THAT(told(R"({"num_edge_lines": 7})"),
              AllOf(HasSubstr("edge_index.npy says 3 edges"), HasSubstr("meta.json says 7")));
  for (std::string const value : {"-4", "4.7", "4.0", "true", "\"4\"", "18446744073709551612", "1e400"})
    for (std::string const key : {"num_nodes", "num_edge_lines", "num_classes"})
      EXPECT_THAT(told("{\"" + key + "\": " + value + "}"), HasSubstr("meta.json: ")) << key << value;
  EXPECT_THAT(told(R"({"num_classes": 1000000000000})"),
              HasSubstr("meta.json: num_classes is 1000000000000; a whole number from 0 to 2147483647"));
  EXPECT_THAT(told(R"({"num_classes": 2, "num_classes": 9})"),
              HasSubstr("meta.json: the key \"num_classes\" is given twice"));
  EXPECT_THAT(told(R"({"num_classes": 0})"), HasSubstr("meta.json says 0 classes, but the labels have 2"));
  EXPECT_THAT(told(R"({"name": "a\nb"})"), HasSubstr("meta.json: name holds a control character"));
  EXPECT_THAT(told("{\"name\": \"" + std::string(300, 'x') + "\"}"),
              HasSubstr("meta.json: name has 300 bytes; at most 255 are wanted"));
  EXPECT_THAT(told(R"({"splits": {"a\nb": [1]}})"),
              HasSubstr("meta.json: the name of a split holds a control character"));
  EXPECT_THAT(told(R"([1, 2])"), HasSubstr("meta.json: an object {..} is wanted"));
  for (auto const* const name : {"a/b", "/etc", "..", "."})
    EXPECT_THAT(told(fmt::format(R"({{"splits": {{"{}": [1]}}}})", name)),
                HasSubstr("is not the name of a folder"));
  EXPECT_THAT(told(R"({"splits": 5})"), HasSubstr("meta.json: splits must be an object"));
  write_array<std::uint8_t>("n/labels.npy", "|u1", {4, 3}, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
  EXPECT_THAT(told(R"({"num_classes": 5})"), HasSubstr("meta.json says 5 classes, but the labels have 3"));
}

TEST_F(BadInput, ClassesBeyond32Bits) {
  write_npy("n");
  // 1 in 32 bits.
  write_array<std::int64_t>("n/labels.npy", "<i8", {4}, {0, 1, (std::int64_t{1} << 32) + 1, 1});
  EXPECT_THAT(message_of("n"), HasSubstr("labels.npy: label 4294967297 at element 2"));
  folder_.write("n/meta.json", R"({"num_classes": 1099511627776})");
  EXPECT_THAT(message_of("n"), HasSubstr("meta.json: num_classes is 1099511627776"));
  Input input{.path = folder_.write("e.txt", "0 1\n")};
  input.random_labels = std::int64_t{1} << 32;
  EXPECT_THAT(message(input), HasSubstr("the number of random classes is 4294967296"));
  input.random_labels = 0;
  input.random_features = std::int64_t{1} << 62;
  EXPECT_THAT(message(input), HasSubstr("the number of random features is 4611686018427387904"));
}

/// What a user is told when the edges are merged.
class BadWeights : public BadInput {
 protected:
  std::string message_of_merge(std::string const& text, EdgeRules::Repeats repeats) const {
    auto const source = open_graph(comm_, {.path = folder_.write("w.txt", text)});
    ChunkPool pool;
    EdgeStore<std::uint32_t, true> store(comm_, source->facts().num_vertices, false, pool);
    try {
      static_cast<void>(store.collect(*source, {.repeats = repeats}, [](double) {}));
    } catch (runtime::UserError const& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(BadWeights, RepeatsThatAddUpToInfinity) {
  using enum EdgeRules::Repeats;
  std::string const twice = "0 1 3e38\n1 2 1\n1 0 3e38\n";

  EXPECT_THAT(message_of_merge(twice, drop),
              AllOf(HasSubstr("the 2 weights of the edge between vertices"), HasSubstr("add up to 6")));
  EXPECT_THAT(message_of_merge("3 2 -3e38\n2 3 -3e38\n", drop), HasSubstr("add up to -6"));
  EXPECT_EQ(message_of_merge(twice, keep), "accepted");
  EXPECT_EQ(message_of_merge("0 1 3e38\n1 0 3e38\n0 1 -3e38\n", drop), "accepted"); // 3e38
}

} // namespace
} // namespace orthant::graph
