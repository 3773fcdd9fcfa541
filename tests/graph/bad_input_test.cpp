// SPDX-License-Identifier: Apache-2.0
//
// Wrong input: each case is one line of text for the user, the same on all ranks, that names the file and the
// line or byte.
#include "graph/npy.hpp"
#include "graph/open_graph.hpp"
#include "graph_probe.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <zip.h>

namespace orthant::graph {
namespace {

using runtime::Communicator;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::read_whole;
using testing::ScratchFolder;

class BadInput : public ::testing::Test {
 protected:
  Communicator comm_ = Communicator(MPI_COMM_WORLD, "world");
  ScratchFolder folder_ = ScratchFolder(comm_);

  /// What a user is told who reads `input`; checked to be one line, and one and the same on all ranks.
  std::string message(Input const& input) const {
    std::string text = "accepted";
    try {
      static_cast<void>(read_whole(comm_, *open_graph(comm_, input), 100));
    } catch (runtime::UserError const& error) {
      text = error.what();
    }
    std::vector<std::int64_t> hash{static_cast<std::int64_t>(std::hash<std::string>{}(text) >> 1)};
    for (auto const other : testing::gather_all(comm_, hash))
      EXPECT_EQ(other, hash[0]) << "the ranks disagree; here: " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  std::string message_of(std::string const& name) const { return message({.path = folder_.path() / name}); }

  /// A sound OGB folder of five vertices, into which a test puts its mistake.
  void write_ogb(std::string const& name) const {
    folder_.write(name + "/raw/edge.csv.gz", "0,1\n1,2\n2,3\n3,4\n");
    folder_.write(name + "/raw/num-node-list.csv.gz", "5\n");
    folder_.write(name + "/raw/num-edge-list.csv.gz", "4\n");
    folder_.write(name + "/raw/node-feat.csv.gz", "1,2\n3,4\n5,6\n7,8\n9,10\n");
    folder_.write(name + "/raw/node-label.csv.gz", "0\n1\nnan\n0\n1\n");
    folder_.write(name + "/split/s/train.csv.gz", "0\n");
    folder_.write(name + "/split/s/valid.csv.gz", "1\n");
    folder_.write(name + "/split/s/test.csv.gz", "2\n");
  }
  /// The same as .npy.
  void write_npy(std::string const& name) const {
    write_array<std::int64_t>(name + "/edge_index.npy", "<i8", {2, 3}, {0, 1, 2, 1, 2, 3});
    write_array<float>(name + "/x.npy", "<f4", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    write_array<std::int64_t>(name + "/labels.npy", "<i8", {4}, {0, 1, -1, 1});
  }
  template<class T>
  void write_array(std::string const& name, std::string const& type, std::vector<std::int64_t> const& shape,
                   std::vector<T> const& values) const {
    folder_.write(name, npy_header(type, shape) + std::string(reinterpret_cast<char const*>(values.data()),
                                                              values.size() * sizeof(T)));
  }
};

TEST_F(BadInput, TheSoundFoldersAreAccepted) {
  write_ogb("g");
  write_npy("n");

  EXPECT_EQ(message_of("g"), "accepted");
  EXPECT_EQ(message_of("n"), "accepted");
}

TEST_F(BadInput, GzipThatEndsEarlyIsDamagedOrIsNone) {
  write_ogb("g");
  auto const edges = folder_.path() / "g" / "raw" / "edge.csv.gz";
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += fmt::format("{},{}\n", i * 7919 % 5, i * 31 % 5);
  folder_.write("g/raw/edge.csv.gz", text);
  std::string sound;
  {
    std::ifstream file(edges, std::ios::binary);
    sound.assign(std::istreambuf_iterator<char>(file), {});
  }
  runtime::barrier(runtime::host, comm_);
  auto const replace = [&](std::string const& content) {
    if (comm_.is_root()) std::ofstream(edges, std::ios::binary) << content;
    runtime::barrier(runtime::host, comm_);
    return message_of("g");
  };

  auto const half = sound.size() / 2;
  EXPECT_THAT(replace(sound.substr(0, half)),
              AllOf(HasSubstr("edge.csv.gz"), HasSubstr(fmt::format("end early, at byte {}", half))));
  EXPECT_THAT(replace(sound.substr(0, sound.size() - 4)), HasSubstr("end early")); // in the check sum
  EXPECT_THAT(replace(""), HasSubstr("end early, at byte 0"));
  auto flipped = sound;
  flipped[half] = static_cast<char>(flipped[half] ^ 0x10);
  EXPECT_THAT(replace(flipped),
              AllOf(HasSubstr("edge.csv.gz"),
                    ::testing::AnyOf(HasSubstr("not sound gzip data at byte"), HasSubstr("edge.csv.gz:"))));
  EXPECT_THAT(replace("0,1\n1,2\n"), HasSubstr("not sound gzip data at byte"));
}

TEST_F(BadInput, TextWhereANumberShouldBe) {
  write_ogb("g");

  folder_.write("g/raw/edge.csv.gz", "0,1\n1,2\n2,three\n3,4\n");
  EXPECT_THAT(message_of("g"), HasSubstr("edge.csv.gz:3: the target is not a vertex id in \"2,three\""));
  folder_.write("g/raw/edge.csv.gz", "0,1\n\n1 2 3\n");
  EXPECT_THAT(message_of("g"), HasSubstr("edge.csv.gz:3: \"1 2 3\" is not an edge"));
  folder_.write("g/raw/edge.csv.gz", "0,1\n1\n");
  EXPECT_THAT(message_of("g"), HasSubstr("edge.csv.gz:2: the target is not a vertex id"));
  folder_.write("g/raw/edge.csv.gz", "0,1.5\n");
  EXPECT_THAT(message_of("g"), HasSubstr("edge.csv.gz:1: the target is not a vertex id in \"0,1.5\""));
  folder_.write("g/raw/edge.csv.gz", "source,target\n0,1\n");
  EXPECT_THAT(message_of("g"), HasSubstr("edge.csv.gz:1: the source is not a vertex id"));
  write_ogb("f");
  folder_.write("f/raw/node-feat.csv.gz", "1,2\n3,4\n5,x\n7,8\n9,10\n");
  EXPECT_THAT(message_of("f"), HasSubstr("node-feat.csv.gz:3: column 2 is not a number: \"x\""));
  write_ogb("l");
  folder_.write("l/raw/node-label.csv.gz", "0\n1\ncat\n0\n1\n");
  EXPECT_THAT(message_of("l"), HasSubstr("node-label.csv.gz:3: column 1 is not a number: \"cat\""));
  write_ogb("s");
  folder_.write("s/split/s/valid.csv.gz", "1\n-3\n");
  EXPECT_THAT(message_of("s"), HasSubstr("valid.csv.gz:2: \"-3\" is not a vertex id"));
  write_ogb("c");
  folder_.write("c/raw/num-node-list.csv.gz", "five\n");
  EXPECT_THAT(message_of("c"), HasSubstr("num-node-list.csv.gz:1: \"five\" is not a count"));
  folder_.write("c/raw/num-node-list.csv.gz", "5\n6\n");
  EXPECT_THAT(message_of("c"), HasSubstr("num-node-list.csv.gz:2: more than one line"));
  folder_.write("binary.txt", std::string("\x7f"
                                          "ELF\x02\x01\x01\x00\x00\n",
                                          10));
  EXPECT_THAT(message_of("binary.txt"), HasSubstr("binary.txt:1: \"?ELF"));
}

TEST_F(BadInput, NegativeAndTooLargeIds) {
  write_ogb("g");

  folder_.write("g/raw/edge.csv.gz", "0,1\n1,-2\n2,3\n3,4\n");
  EXPECT_THAT(message_of("g"), HasSubstr("edge.csv.gz:2: negative target id in \"1,-2\""));
  folder_.write("g/raw/edge.csv.gz", "0,1\n1,2\n2,3\n5,4\n");
  EXPECT_THAT(message_of("g"), AllOf(HasSubstr("edge.csv.gz:4: source id 5 is too large"),
                                     HasSubstr("num-node-list.csv.gz says 5 vertices"), HasSubstr("0 to 4")));
  folder_.write("g/raw/edge.csv.gz", "0,99999999999999999999\n");
  EXPECT_THAT(message_of("g"), HasSubstr("edge.csv.gz:1: target id 99999999999999999999 is too large"));
  folder_.write("e.txt", "0 1\n5 9000000000000000\n");
  EXPECT_THAT(message_of("e.txt"), HasSubstr("e.txt:2: target id 9000000000000000 is too large"));
  folder_.write("m.mtx", "%%MatrixMarket matrix coordinate pattern general\n% c\n3 3 2\n1 2\n0 1\n");
  EXPECT_THAT(message_of("m.mtx"), HasSubstr("m.mtx:5: source id 0 is too small: ids start at 1"));
  folder_.write("m.mtx", "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 4\n2 1\n");
  EXPECT_THAT(message_of("m.mtx"), HasSubstr("m.mtx:3: target id 4 is too large"));
  write_npy("n");
  write_array<std::int64_t>("n/edge_index.npy", "<i8", {2, 3}, {0, 1, 2, 1, -2, 3});
  EXPECT_THAT(message_of("n"), HasSubstr("edge_index.npy: id -2 at element 4 (byte 160) is negative"));
  write_array<std::int64_t>("n/edge_index.npy", "<i8", {2, 3}, {0, 4, 2, 1, 2, 3});
  EXPECT_THAT(
      message_of("n"),
      HasSubstr("edge_index.npy: id 4 at element 1 (byte 136) is too large: the graph has 4 vertices"));
  write_npy("i");
  for (std::string const part : {"train", "valid", "test"})
    write_array<std::int64_t>("i/" + part + "_idx.npy", "<i8", {1}, {part == "test" ? 7 : 0});
  EXPECT_THAT(message_of("i"), HasSubstr("test_idx.npy: id 7 at element 0"));
}

TEST_F(BadInput, TheLineIsRightOnEveryRanksShare) {
  for (int const bad_line : {1, 2, 17, 500, 999, 1000}) {
    std::string text = "# comment\n";
    for (int line = 2; line <= 1001; ++line)
      text += line == bad_line + 1 ? "x 1\n" : "0 1\n";
    folder_.write("e.txt", text);
    // The very first line of data may name columns only if all its fields are words.
    EXPECT_THAT(message_of("e.txt"),
                HasSubstr(fmt::format("e.txt:{}: the source is not a vertex id", bad_line + 1)));
  }
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
  folder_.write("g/raw/node-label.csv.gz", "0\n1\n9\n0\n1\n");
  EXPECT_THAT(message_of("g"), HasSubstr("node-label.csv.gz:3: label 9 is out of range"));
  folder_.write("g/raw/node-label.csv.gz", "0\n-2\n1\n0\n1\n");
  EXPECT_THAT(message_of("g"), HasSubstr("node-label.csv.gz:2: label -2 is out of range"));
  folder_.write("g/raw/node-label.csv.gz", "0\n0.5\n1\n0\n1\n");
  EXPECT_THAT(message_of("g"), HasSubstr("node-label.csv.gz:2: label 0.5 is out of range"));
  folder_.write("g/raw/node-label.csv.gz", "0\n3\n1\n0\n1\n");
  folder_.write("g/meta.json", R"({"num_classes": 3})");
  EXPECT_THAT(message_of("g"), HasSubstr("node-label.csv.gz:2: label 3 is out of range: 0 to 2"));
  folder_.write("g/raw/node-label.csv.gz", "0,1\n1,1\n0,2\n0,0\n1,nan\n");
  EXPECT_THAT(message_of("g"),
              HasSubstr("node-label.csv.gz:3: column 2 is 2; labels of several columns are 0, 1 or nan"));
  write_npy("n");
  write_array<std::int64_t>("n/labels.npy", "<i8", {4}, {0, 1, -2, 1});
  EXPECT_THAT(message_of("n"), HasSubstr("labels.npy: label -2 at element 2 (byte 144) is out of range"));
  write_array<float>("n/labels.npy", "<f4", {4}, {0, 1.5f, 0, 1});
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

TEST_F(BadInput, PathsAndFormatsThatAreNotThere) {
  EXPECT_THAT(message_of("nowhere"),
              AllOf(HasSubstr("cannot read"), HasSubstr("nowhere: No such file or directory")));
  folder_.write("folder/notes.md", "nothing");
  EXPECT_THAT(message_of("folder"),
              AllOf(HasSubstr("not a graph in a known format"), HasSubstr("looked for raw/edge.csv[.gz]")));
  folder_.write("a.npy", "x");
  EXPECT_THAT(message_of("a.npy"), HasSubstr("name the folder that holds it"));
  folder_.write("g.txt", "0 1\n");
  EXPECT_THAT(message({.path = folder_.path() / "g.txt", .format = InputFormat::npy}),
              HasSubstr("the format npy is a folder"));
  EXPECT_THAT(message({.path = folder_.path() / "g.txt", .split = "time"}), HasSubstr("has no splits"));
  write_ogb("o");
  EXPECT_THAT(message({.path = folder_.path() / "o", .split = "time"}),
              HasSubstr("has no split \"time\"; it has s"));
  EXPECT_THAT(message({.path = folder_.path() / "o", .format = InputFormat::npy}),
              HasSubstr("not a graph in a known format"));
  if (comm_.is_root()) std::filesystem::remove(folder_.path() / "o" / "split" / "s" / "valid.csv.gz");
  runtime::barrier(runtime::host, comm_);
  EXPECT_THAT(message_of("o"), AllOf(HasSubstr("cannot read"), HasSubstr("valid.csv.gz")));
  EXPECT_THROW(static_cast<void>(parse_input_format("csv")), runtime::UserError);
  if (::geteuid() != 0) { // root may read everything
    auto const locked = folder_.write("locked.txt", "0 1\n");
    std::filesystem::permissions(locked, std::filesystem::perms::none);
    EXPECT_THAT(message_of("locked.txt"), HasSubstr("locked.txt: Permission denied"));
  }
}

TEST_F(BadInput, MatrixMarketThatIsNoGraph) {
  auto const told = [&](std::string const& text) {
    folder_.write("m.mtx", text);
    return message_of("m.mtx");
  };
  EXPECT_THAT(told("1 1 1\n"), HasSubstr("m.mtx:1: a MatrixMarket file begins with"));
  EXPECT_THAT(told("%%MatrixMarket matrix array real general\n2 2\n"),
              HasSubstr("m.mtx:1: \"array\" is not a graph"));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate complex general\n"), HasSubstr("m.mtx:1: \"complex\""));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real skew-symmetric\n"),
              HasSubstr("m.mtx:1: \"skew-symmetric\""));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n%\n3 4 1\n1 1 1\n"),
              HasSubstr("m.mtx:3: the matrix has 3 rows and 4 columns"));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n3 3\n"),
              HasSubstr("m.mtx:2: \"3 3\" is not \"rows columns entries\""));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n"),
              HasSubstr("the line \"rows columns entries\" is missing"));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2\n"),
              HasSubstr("m.mtx:3: \"1 2\" is not an edge; \"source target weight\" is wanted"));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 nan\n"), HasSubstr("m.mtx:3"));
}

TEST_F(BadInput, NpyThatCannotBeRead) {
  write_npy("n");
  auto const told = [&](std::string const& content) {
    folder_.write("n/edge_index.npy", content);
    return message_of("n");
  };
  auto const sound = npy_header("<i8", {2, 3}) + std::string(48, '\0');
  auto const with = [&](std::string const& from, std::string const& to) {
    auto text = sound;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  EXPECT_EQ(told(sound), "accepted");
  EXPECT_THAT(told("PK\x03\x04 not an array at all"), HasSubstr("edge_index.npy is not a .npy array"));
  EXPECT_THAT(told("\x93NUM"), HasSubstr("is not a .npy array"));
  EXPECT_THAT(told(with("<i8", ">i8")), AllOf(HasSubstr("big-endian ('>i8')"), HasSubstr("newbyteorder")));
  EXPECT_THAT(told(with("<i8", "<f8")), AllOf(HasSubstr("type '<f8'"), HasSubstr("vertex ids are integers")));
  EXPECT_THAT(told(with("<i8", "<c8")), HasSubstr("type '<c8' cannot be read"));
  EXPECT_THAT(told(with("False", "True ")), HasSubstr("Fortran order"));
  EXPECT_THAT(told(with("(2, 3)", "(3, 2)")),
              HasSubstr("shape [3, 2]; [2, edges], sources above targets, is wanted"));
  EXPECT_THAT(told(with("(2, 3)", "(2, 4)")), HasSubstr("needs 192 bytes, but the file has 176"));
  EXPECT_THAT(told(with("'descr'", "'nonsense'")), HasSubstr("header at byte 10"));
  auto newer = sound;
  newer[6] = 4;
  EXPECT_THAT(told(newer), HasSubstr("edge_index.npy: .npy version 4.0; versions 1 to 3 can be read"));
  EXPECT_THAT(told(sound.substr(0, 40)), HasSubstr("the header should end at byte 128"));
  EXPECT_THAT(told(npy_header("<i8", {2, std::int64_t{1} << 62}) + std::string(48, '\0')),
              HasSubstr("cannot be"));
}

TEST_F(BadInput, SparseFeaturesThatDoNotFit) {
  write_npy("n");
  if (comm_.is_root()) std::filesystem::remove(folder_.path() / "n" / "x.npy");
  auto const told = [&](std::vector<std::int64_t> const& indptr, std::vector<std::int32_t> const& indices) {
    write_array("n/x_indptr.npy", "<i8", {static_cast<std::int64_t>(indptr.size())}, indptr);
    write_array("n/x_indices.npy", "<i4", {static_cast<std::int64_t>(indices.size())}, indices);
    write_array<float>("n/x_data.npy", "<f4", {3}, {1, 2, 3});
    write_array<std::int64_t>("n/x_shape.npy", "<i8", {2}, {4, 6});
    return message_of("n");
  };
  EXPECT_EQ(told({0, 1, 2, 2, 3}, {5, 0, 1}), "accepted");
  EXPECT_THAT(told({0, 1, 2, 3}, {5, 0, 1}),
              AllOf(HasSubstr("x_indptr.npy: shape [4]"), HasSubstr("[5] is wanted")));
  EXPECT_THAT(told({0, 1, 2, 2, 3}, {5, 0}), HasSubstr("x_indices.npy: shape [2]"));
  EXPECT_THAT(told({0, 2, 1, 2, 3}, {5, 0, 1}), HasSubstr("x_indptr.npy: offset at element 2"));
  EXPECT_THAT(told({0, 1, 2, 2, 9}, {5, 0, 1}), HasSubstr("x_indptr.npy: offset at element 4"));
  EXPECT_THAT(told({0, 1, 2, 2, 3}, {6, 0, 1}), HasSubstr("x_indices.npy: column 6 at element 0"));
  EXPECT_THAT(told({0, 2, 2, 2, 3}, {5, 5, 1}), HasSubstr("has column 5 twice"));
}

TEST_F(BadInput, ArchivesThatLackSomething) {
  auto const raw = folder_.write("p/raw/marker", "").parent_path();
  folder_.write("p/raw/data.npz", "not a zip archive");
  EXPECT_THAT(message_of("p"), AllOf(HasSubstr("data.npz"), HasSubstr("as an .npz archive")));
  if (comm_.is_root()) {
    std::filesystem::remove(raw / "data.npz");
    int code = 0;
    auto* const archive = zip_open((raw / "data.npz").c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
    auto* const data = zip_source_buffer(archive, "x", 1, 0);
    static_cast<void>(zip_file_add(archive, "node_feat.npy", data, 0));
    zip_close(archive);
  }
  runtime::barrier(runtime::host, comm_);
  EXPECT_THAT(message_of("p"), HasSubstr("data.npz has no member edge_index.npy; it holds node_feat.npy"));
}

} // namespace
} // namespace orthant::graph
