// SPDX-License-Identifier: Apache-2.0
#include "graph/arrays/npy.hpp"
#include "graph/read/open_graph.hpp"
#include "graph_probe.hpp"

#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

namespace orthant::graph {
namespace {

using ::testing::ElementsAre;
using testing::npy;
using testing::read_whole;
using testing::ScratchFolder;
using testing::world;

TEST(EdgeList, EveryShareOfEverySizeTogetherIsTheFile) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  std::mt19937 random(1);
  for (int const num_edges : {1, 2, 3, 7, 100, 5000}) {
    std::string text = "# a comment\n% another\n";
    std::vector<Edge> expected;
    for (int i = 0; i < num_edges; ++i) {
      Edge const edge{static_cast<std::int64_t>(random() % 100000), static_cast<std::int64_t>(random() % 7)};
      expected.push_back(edge);
      text +=
          fmt::format("{}\t{}{}", edge.source, edge.target, i + 1 < num_edges ? "\n" : ""); // no last '\n'
    }
    for (std::string const name : {"g.txt", "g.txt.gz"}) {
      Input const input{.path = folder.write(name, text)};

      auto const source = open_graph(comm, input);
      auto const whole = read_whole(comm, *source, 64);

      EXPECT_EQ(whole.edges, expected) << name << " with " << num_edges;
      EXPECT_EQ(source->facts().num_edges, num_edges);
      auto const& last =
          *std::ranges::max_element(expected, {}, [](Edge const& e) { return std::max(e.source, e.target); });
      EXPECT_EQ(source->facts().num_vertices, std::max(last.source, last.target) + 1);
      EXPECT_EQ(source->facts().format, "edgelist");
    }
  }
}

TEST(EdgeList, SeparatorsHeadersWeightsAndLineEnds) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  auto const path =
      folder.write("g.csv", "source,target,weight\r\n0,1,0.5\r\n\r\n 2 , 0 , -3 \r\n1\t2\t1e3\r\n");

  auto const source = open_graph(comm, {.path = path, .is_directed = true});
  auto const whole = read_whole(comm, *source);
  auto const plain = open_graph(comm, {.path = path, .use_weights = false});

  EXPECT_THAT(whole.edges, ElementsAre(Edge{0, 1}, Edge{2, 0}, Edge{1, 2}));
  EXPECT_THAT(whole.weights, ElementsAre(0.5f, -3.0f, 1000.0f));
  EXPECT_TRUE(source->facts().is_directed);
  EXPECT_TRUE(source->facts().is_weighted);
  EXPECT_FALSE(plain->facts().is_directed);
  EXPECT_FALSE(plain->facts().is_weighted);
  EXPECT_EQ(read_whole(comm, *plain).edges, whole.edges);
}

TEST(EdgeList, LinesLongerThanAnyBufferAndManyGzipMembers) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  std::string const long_comment = "#" + std::string(3 << 20, 'x') + "\n";
  auto const text = "0 1\n" + long_comment + "1 2\n" + long_comment + "2 3";
  auto const plain = folder.write("g.txt", text);
  auto const members = folder.write("g.txt.gz", "0 1\n");
  if (comm.is_root())
    for (std::string const part : {"1 ", "2\n2 3\n"}) { // a line across two members
      auto* const gz = gzopen(members.c_str(), "ab");
      gzwrite(gz, part.data(), static_cast<unsigned>(part.size()));
      gzclose(gz);
    }
  runtime::barrier(runtime::host, comm);

  for (auto const& path : {plain, members}) {
    auto const whole = read_whole(comm, *open_graph(comm, {.path = path}));
    EXPECT_THAT(whole.edges, ElementsAre(Edge{0, 1}, Edge{1, 2}, Edge{2, 3})) << path;
  }
}

/// With and without a line of names, plain and compressed, on shares of any size; in matrices, tables and lists, too.
TEST(TextFiles, AByteOrderMarkIsNoPartOfThem) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  std::string const mark = "\xef\xbb\xbf";
  std::string const matrix = "%%MatrixMarket matrix coordinate pattern general\n% x\n";
  for (int const num_edges : {1, 2, 5, 300}) {
    std::string text;
    std::vector<Edge> expected;
    for (int i = 0; i < num_edges; ++i) {
      text += fmt::format("{},{}\r\n", 10 + i, i);
      expected.push_back({10 + i, i});
    }
    for (std::string const head : {"", "source,target\r\n", "# a comment\n"})
      for (std::string const name : {"g.csv", "g.csv.gz"}) {
        auto const path = folder.write(name, mark + head + text);
        EXPECT_EQ(read_whole(comm, *open_graph(comm, {.path = path})).edges, expected) << head << name;
      }
    auto entries = fmt::format("400 400 {}\n", num_edges);
    for (auto const& [source, target] : expected)
      entries += fmt::format("{} {}\n", source + 1, target + 1);
    for (std::string const name : {"g.mtx", "g.mtx.gz"}) {
      auto const path = folder.write(name, mark + matrix + entries);
      EXPECT_EQ(read_whole(comm, *open_graph(comm, {.path = path, .is_directed = true})).edges, expected)
          << name;
    }
  }
  for (std::string const ending : {".csv", ".csv.gz"}) {
    auto const name = "folder" + ending;
    folder.write(name + "/meta.json", mark + R"({"name": "mine"})");
    folder.write(name + "/raw/edge" + ending, mark + "source,target\n0,1\n1,2\n2,0\n");
    folder.write(name + "/raw/num-node-list" + ending, mark + "3\n");
    folder.write(name + "/raw/num-edge-list" + ending, mark + "3\n");
    folder.write(name + "/raw/node-feat" + ending, mark + "a,b\n1.5,2\n-1,0\n1e-3,7\n");
    folder.write(name + "/raw/node-label" + ending, mark + "1\n0\n1\n");
    for (std::string const part : {"train", "valid", "test"})
      folder.write(name + "/split/s/" + part + ending, mark + (part == "train" ? "2\n" : ""));

    auto const source = open_graph(comm, {.path = folder.path() / name});
    auto const whole = read_whole(comm, *source);

    EXPECT_EQ(source->facts().name, "mine");
    EXPECT_THAT(whole.edges, ElementsAre(Edge{0, 1}, Edge{1, 2}, Edge{2, 0}));
    EXPECT_THAT(whole.features, ElementsAre(1.5f, 2, -1, 0, 1e-3f, 7));
    EXPECT_THAT(whole.classes, ElementsAre(1, 0, 1));
    EXPECT_THAT(whole.train, ElementsAre(2));
  }
}

TEST(MatrixMarket, FormsAndFields) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  auto const symmetric = folder.write(
      "s.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n%-- a comment\n\n3 3 3\n2 1\n3 1\n3 3\n");
  auto const general = folder.write(
      "g.mtx.gz", "%%MatrixMarket Matrix Coordinate Real General\n% x\n4 4 2\n1 4 2.5\n4 1 -1e0\n");

  auto const source = open_graph(comm, {.path = symmetric, .is_directed = true});
  auto const weighted = open_graph(comm, {.path = general, .is_directed = true});
  auto const whole = read_whole(comm, *source);
  auto const weighted_whole = read_whole(comm, *weighted);

  EXPECT_THAT(whole.edges, ElementsAre(Edge{1, 0}, Edge{2, 0}, Edge{2, 2}));
  EXPECT_FALSE(source->facts().is_directed) << "a symmetric matrix stands for both directions";
  EXPECT_EQ(source->facts().num_vertices, 3);
  EXPECT_EQ(source->facts().num_edges, 3);
  EXPECT_TRUE(weighted->facts().is_directed);
  EXPECT_THAT(weighted_whole.edges, ElementsAre(Edge{0, 3}, Edge{3, 0}));
  EXPECT_THAT(weighted_whole.weights, ElementsAre(2.5f, -1.0f));
}

TEST(MatrixMarket, SkewSymmetryIsAPatternAndExponentsMayBeOfFortran) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  InputFiles files;
  auto const skew = open_graph(
      comm,
      {.path = folder.write(
           "s.mtx", "%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 2\n2 1 0.5\n3 1 -2\n")},
      &files);
  auto const fortran = open_graph(
      comm, {.path = folder.write(
                 "f.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 4\n1 1 1.5D+03\n1 2 -2d-1\n2 1 "
                          "1.2345678901D0\n2 2 7.\n")});
  auto const whole = read_whole(comm, *skew);

  EXPECT_THAT(whole.edges, ElementsAre(Edge{1, 0}, Edge{2, 0}));
  EXPECT_TRUE(whole.weights.empty());
  EXPECT_FALSE(skew->facts().is_directed);
  if (comm.is_root()) {
    EXPECT_THAT(files.notes, ElementsAre(::testing::HasSubstr("skew-symmetric")));
  }
  EXPECT_THAT(read_whole(comm, *fortran).weights, ElementsAre(1500.0F, -0.2F, 1.2345678901F, 7.0F));
}

TEST(NpyFolder, TypesSparseFeaturesWeightsAndMissingLabels) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  folder.write("d/edge_index.npy", npy<std::int32_t>("<i4", {2, 3}, {0, 1, 2, 1, 2, 2}));
  folder.write("d/edge_weight.npy", npy<double>("<f8", {3}, {0.5, 1, 2}));
  folder.write("d/labels.npy", npy<float>("<f4", {4, 1}, {0, std::nanf(""), 2, 1}));
  folder.write("d/x_indptr.npy", npy<std::int64_t>("<i8", {5}, {0, 2, 2, 3, 4}));
  folder.write("d/x_indices.npy", npy<std::int32_t>("<i4", {4}, {2, 0, 1, 2})); // row 0 unsorted
  folder.write("d/x_data.npy", npy<float>("<f4", {4}, {5, 6, 7, 8}));
  folder.write("d/x_shape.npy", npy<std::int64_t>("<i8", {2}, {4, 3}));
  folder.write("d/train_idx.npy", npy<std::int64_t>("<i8", {2}, {3, 0}));
  folder.write("d/valid_idx.npy", npy<std::int64_t>("<i8", {1}, {2}));
  folder.write("d/test_idx.npy", npy<std::int64_t>("<i8", {0}, {}));

  auto const source = open_graph(comm, {.path = folder.path() / "d"});
  auto const whole = read_whole(comm, *source, 3);

  auto const& facts = source->facts();
  EXPECT_EQ(facts.num_vertices, 4);
  EXPECT_EQ(facts.num_classes, 3);
  EXPECT_EQ(facts.feature_kind, FeatureKind::sparse);
  EXPECT_EQ(facts.num_features, 3);
  EXPECT_THAT(whole.edges, ElementsAre(Edge{0, 1}, Edge{1, 2}, Edge{2, 2}));
  EXPECT_THAT(whole.weights, ElementsAre(0.5f, 1.0f, 2.0f));
  EXPECT_THAT(whole.features, ElementsAre(6, 0, 5, 0, 0, 0, 0, 7, 0, 0, 0, 8));
  EXPECT_THAT(whole.classes, ElementsAre(0, -1, 2, 1));
  EXPECT_THAT(whole.train, ElementsAre(0, 3));
  EXPECT_THAT(whole.valid, ElementsAre(2));
  EXPECT_TRUE(whole.test.empty());
}

TEST(NpyFolder, EveryNumberTypeBecomesFloat) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  folder.write("d/edge_index.npy", npy<std::uint8_t>("|u1", {2, 2}, {0, 1, 1, 0}));
  auto const read_features = [&](std::string const& content) {
    folder.write("d/x.npy", content);
    return read_whole(comm, *open_graph(comm, {.path = folder.path() / "d"})).features;
  };

  EXPECT_THAT(read_features(npy<std::uint8_t>("|u1", {2, 2}, {0, 1, 255, 3})), ElementsAre(0, 1, 255, 3));
  EXPECT_THAT(read_features(npy<std::int16_t>("<i2", {2, 1}, {-300, 4})), ElementsAre(-300, 4));
  EXPECT_THAT(read_features(npy<double>("<f8", {2, 1}, {0.25, -8})), ElementsAre(0.25, -8));
  // 1.5, 2^-24, 65504, -0.25 as IEEE halves
  EXPECT_THAT(read_features(npy<std::uint16_t>("<f2", {2, 2}, {0x3e00, 1, 0x7bff, 0xb400})),
              ElementsAre(1.5f, 0x1p-24f, 65504.0f, -0.25f));
}

TEST(OgbFolder, SeveralLabelColumnsAreSeveralLabels) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  folder.write("g/raw/edge.csv.gz", "0,1\n1,2\n");
  folder.write("g/raw/num-node-list.csv.gz", "3\n");
  folder.write("g/raw/num-edge-list.csv.gz", "2\n");
  folder.write("g/raw/node-label.csv.gz", "0,1,1\n1.0,nan,0\nnan,nan,nan\n");
  folder.write("g/raw/edge-weight.csv.gz", "0.5\n2\n");

  auto const source = open_graph(comm, {.path = folder.path() / "g"});
  auto const whole = read_whole(comm, *source, 2);

  EXPECT_EQ(source->facts().label_kind, LabelKind::multi);
  EXPECT_EQ(source->facts().num_classes, 3);
  EXPECT_FALSE(source->facts().has_split);
  EXPECT_THAT(whole.indicator, ElementsAre(0, 1, 1, 1, -1, 0, -1, -1, -1));
  EXPECT_THAT(whole.weights, ElementsAre(0.5f, 2.0f));
}

TEST(OgbFolder, PlainFilesAndTheChoiceOfSplit) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  folder.write("g/raw/edge.csv", "0,1\n1,2\n2,0\n");
  folder.write("g/raw/num-node-list.csv", "3\n");
  folder.write("g/raw/node-feat.csv", "1.5,2\n-1,0\n1e-3,7\n");
  folder.write("g/raw/node-label.csv", "1\n0\n1\n");
  int vertex = 0;
  for (std::string const name : {"b", "a", "c"}) {
    for (std::string const part : {"train", "valid", "test"})
      folder.write("g/split/" + name + "/" + part + ".csv",
                   part == "train" ? fmt::format("{}\n", vertex) : "");
    ++vertex;
  }
  auto const train_of = [&](std::string const& name) {
    return read_whole(comm, *open_graph(comm, {.path = folder.path() / "g", .split = name})).train;
  };

  auto const source = open_graph(comm, {.path = folder.path() / "g"});
  auto const whole = read_whole(comm, *source);

  EXPECT_THAT(whole.features, ElementsAre(1.5f, 2, -1, 0, 1e-3f, 7));
  EXPECT_EQ(source->facts().split_name, "a") << "the first by name where nothing else says";
  EXPECT_THAT(whole.train, ElementsAre(1));
  EXPECT_THAT(train_of("c"), ElementsAre(2));
  folder.write("g/meta.json",
               R"({"name": "mine", "num_classes": 5, "splits": {"b": [1, 0, 0], "a": [1, 0, 0]}})");
  EXPECT_THAT(train_of(""), ElementsAre(0)) << "the first that meta.json names";
  EXPECT_EQ(open_graph(comm, {.path = folder.path() / "g"})->facts().num_classes, 5);
  EXPECT_EQ(open_graph(comm, {.path = folder.path() / "g" / "raw"})->facts().name, "mine");
}

TEST(RandomParts, AreTheSameOnAnyNumberOfRanks) {
  auto const comm = world();
  auto const alone = comm.split(comm.rank(), 0, "self");
  ScratchFolder const folder(comm);
  Input input{.path = folder.write("g.txt", "0 1\n1 500\n")};
  input.random_features = 3;
  input.random_labels = 4;
  input.random_split = {{0.5, 0.25, 0.125}};
  input.seed = 5;

  auto const source = open_graph(comm, input);
  auto const whole = read_whole(comm, *source, 100);
  auto const serial = read_whole(alone, *open_graph(alone, input), 7);

  EXPECT_EQ(whole.features, serial.features);
  EXPECT_EQ(whole.classes, serial.classes);
  EXPECT_EQ(whole.train, serial.train);
  EXPECT_EQ(whole.valid, serial.valid);
  EXPECT_EQ(whole.test, serial.test);
  EXPECT_EQ(whole.train.size(), 251u); // 0.5 * 501, rounded
  EXPECT_EQ(whole.valid.size(), 125u);
  EXPECT_EQ(whole.test.size(), 62u);
  EXPECT_EQ(source->facts().num_classes, 4);
  for (auto const label : whole.classes)
    EXPECT_TRUE(label >= 0 && label < 4);
  input.seed = 6;
  EXPECT_NE(read_whole(comm, *open_graph(comm, input)).features, whole.features);
}

/// -100, -1 and nan in a file of labels.
TEST(NoLabel, IsOneOfThreeNumbersInEveryKindOfFile) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  auto const whole_of = [&](char const* name) {
    return read_whole(comm, *open_graph(comm, {.path = folder.path() / name}));
  };

  folder.write("text/raw/edge.csv", "0,1\n1,2\n2,3\n");
  folder.write("text/raw/num-node-list.csv", "4\n");
  folder.write("text/raw/num-edge-list.csv", "3\n");
  folder.write("text/raw/node-label.csv", "-100\n2\n-1\nnan\n");
  EXPECT_THAT(whole_of("text").classes, ElementsAre(-1, 2, -1, -1));
  folder.write("text/raw/node-label.csv", "-100,1\n0,-100\n-1,nan\n1,1\n");
  EXPECT_THAT(whole_of("text").indicator, ElementsAre(-1, 1, 0, -1, -1, -1, 1, 1));

  folder.write("npy/edge_index.npy", npy<std::int64_t>("<i8", {2, 3}, {0, 1, 2, 1, 2, 3}));
  folder.write("npy/labels.npy", npy<std::int64_t>("<i8", {4}, {-100, 2, -1, 0}));
  EXPECT_THAT(whole_of("npy").classes, ElementsAre(-1, 2, -1, 0));
  folder.write("npy/labels.npy", npy<float>("<f4", {4}, {-100, 2, std::nanf(""), -1}));
  EXPECT_THAT(whole_of("npy").classes, ElementsAre(-1, 2, -1, -1));
  folder.write("npy/labels.npy", npy<float>("<f4", {4, 2}, {-100, 1, 0, std::nanf(""), 1, -1, 0, 0}));
  EXPECT_THAT(whole_of("npy").indicator, ElementsAre(-1, 1, 0, -1, 1, -1, 0, 0));
}

} // namespace
} // namespace orthant::graph
