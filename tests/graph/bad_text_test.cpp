// SPDX-License-Identifier: Apache-2.0
//
// Text that is damaged, or holds other things than the numbers that are wanted.
#include "bad_input.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <limits>

namespace orthant::graph {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
  folder_.write("g/raw/edge.csv.gz", "source,target\nfrom,to\n0,1\n"); // the first line may be names
  EXPECT_THAT(message_of("g"), HasSubstr("edge.csv.gz:2: the source is not a vertex id"));
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

TEST_F(BadInput, MatrixMarketThatIsNoGraph) {
  auto const told = [&](std::string const& text) {
    folder_.write("m.mtx", text);
    return message_of("m.mtx");
  };
  EXPECT_THAT(told("1 1 1\n"), HasSubstr("m.mtx:1: a MatrixMarket file begins with"));
  EXPECT_THAT(told("%%MatrixMarket matrix array real general\n2 2\n"),
              HasSubstr("m.mtx:1: \"array\" is not a graph"));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate complex general\n"), HasSubstr("m.mtx:1: \"complex\""));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real hermitian\n"), HasSubstr("m.mtx:1: \"hermitian\""));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 1.5D+\n"),
              HasSubstr("m.mtx:3"));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 1.5DD3\n"),
              HasSubstr("m.mtx:3"));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 1D99\n"), HasSubstr("m.mtx:3"));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n%\n3 4 1\n1 1 1\n"),
              HasSubstr("m.mtx:3: the matrix has 3 rows and 4 columns"));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n3 3\n"),
              HasSubstr("m.mtx:2: \"3 3\" is not \"rows columns entries\""));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n"),
              HasSubstr("the line \"rows columns entries\" is missing"));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2\n"),
              HasSubstr("m.mtx:3: \"1 2\" is not an edge; \"source target weight\" is wanted"));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 nan\n"), HasSubstr("m.mtx:3"));
  EXPECT_THAT(told("%%MatrixMarket matrix coordinate integer general\n3 3 2\n1 2 -3\n2 3 1.5\n"),
              HasSubstr("m.mtx:4: the weight in \"2 3 1.5\" is no integer, as the first line says"));
}

TEST_F(BadInput, MatrixMarketThatIsDamagedIsReadOrRefused) {
  std::string const text =
      "%%MatrixMarket matrix coordinate real skew-symmetric\n% c\n4 4 3\n2 1 1.5D+03\n3 1 -2\n4 3 .5\n";
  int num_refused = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    folder_.write("m.mtx", mutant(text, i));
    auto const told = message_of("m.mtx");
    EXPECT_THAT(told, ::testing::AnyOf("accepted", HasSubstr("m.mtx")));
    num_refused += told != "accepted" ? 1 : 0;
  }
  EXPECT_GT(num_refused, 50);
  EXPECT_LT(num_refused, 195);
}

TEST_F(BadInput, TextOfTwoOrFourBytesPerCharacter) {
  auto const wide = [](std::string const& text, std::string const& mark, std::size_t before,
                       std::size_t after) {
    auto written = mark;
    for (char const c : text)
      written += std::string(before, '\0') + c + std::string(after, '\0');
    return written;
  };
  std::string const text = "0,1\r\n1,2\r\n";
  for (std::string const name : {"g.csv", "g.csv.gz", "g.mtx"}) {
    folder_.write(name, wide(text, "\xff\xfe", 0, 1));
    EXPECT_THAT(message_of(name),
                HasSubstr(name + " is a text in UTF-16, as its byte order mark says, and UTF-8 is wanted"));
    folder_.write(name, wide(text, "\xfe\xff", 1, 0));
    EXPECT_THAT(message_of(name), HasSubstr(name + " is a text in UTF-16"));
    folder_.write(name, wide(text, std::string("\xff\xfe\0\0", 4), 0, 3));
    EXPECT_THAT(message_of(name), HasSubstr(name + " is a text in UTF-32"));
  }
  write_ogb("o");
  folder_.write("o/meta.json", wide("{}", "\xff\xfe", 0, 1));
  EXPECT_THAT(message_of("o"), HasSubstr("meta.json is a text in UTF-16"));
  folder_.write("o/meta.json", "{}");
  folder_.write("o/raw/node-label.csv.gz", wide("0\n", "\xff\xfe", 0, 1));
  EXPECT_THAT(message_of("o"), HasSubstr("node-label.csv.gz is a text in UTF-16"));
}

TEST_F(BadInput, NumbersInTextThatOthersReadDifferently) {
  auto const told = [&](std::string const& text) {
    folder_.write("e.txt", text);
    return message_of("e.txt");
  };

  EXPECT_EQ(told("0 1\r\n1 2\r\n"), "accepted");
  EXPECT_THAT(told("0 1\r2\n2 1\r1\n"), HasSubstr("e.txt:1: a carriage return inside a line")); // old Mac
  EXPECT_THAT(told("0 1\n#\r0 2\n"), HasSubstr("e.txt:2: a carriage return inside a line"));
  for (std::string const id : {"0x10", "+5", "5.0", "1e2", "-0",
                               "\xef\xbb\xbf"
                               "5"})
    EXPECT_THAT(told("0 1\n" + id + " 2\n"), HasSubstr("e.txt:2: ")) << id;
  EXPECT_THAT(told(std::string("0 1\n1 2\0\n", 9)), HasSubstr("e.txt:2: "));
  EXPECT_THAT(told("0 1\n1 99999999999999999999999999999999999999999\n"),
              HasSubstr("e.txt:2: target id 99999999999999999999999999999999999999999 is too large"));
  EXPECT_THAT(told("0 1 1e400\n"), HasSubstr("e.txt:1"));
  write_ogb("l");
  folder_.write("l/raw/node-label.csv.gz", "0\n0.99999999999\n1\n0\n1\n"); // 1 as a float
  EXPECT_THAT(message_of("l"), HasSubstr("node-label.csv.gz:2: label 0.99999999999 is out of range"));
  folder_.write("l/raw/node-label.csv.gz", "0,0\n0.99999999999,1\n1,1\n0,1\n1,1\n");
  EXPECT_THAT(message_of("l"), HasSubstr("node-label.csv.gz:2: column 1 is 0.99999999999"));
}

TEST_F(BadInput, WeightsThatAreIgnoredAreStillOneField) {
  auto const told = [&](std::string const& line) {
    folder_.write("e.txt", "0 1 1\n" + line + "\n");
    return message({.path = folder_.path() / "e.txt", .use_weights = false});
  };

  EXPECT_EQ(told("1 2 2024-01-01"), "accepted");
  EXPECT_THAT(told("1 2 3 4"), HasSubstr("e.txt:2: \"1 2 3 4\" is not an edge"));
  EXPECT_THAT(told("1 2"), HasSubstr("e.txt:2"));
  EXPECT_THAT(told("1 2,"), HasSubstr("e.txt:2"));
}

TEST_F(BadInput, ClaimsThatTheFileIsTooSmallFor) {
  folder_.write("m.mtx", "%%MatrixMarket matrix coordinate pattern general\n3 3 100000000000\n1 2\n2 1\n");
  EXPECT_THAT(message_of("m.mtx"), HasSubstr("m.mtx says 100000000000 edges, but "));
  folder_.write("m.mtx", "%%MatrixMarket matrix coordinate pattern general\n3 3 999999999999999999\n1 2\n");
  EXPECT_THAT(message_of("m.mtx"), HasSubstr("m.mtx says 999999999999999999 edges, but "));
  folder_.write("m.mtx",
                "%%MatrixMarket matrix coordinate pattern general\n2000000000000 2000000000000 1\n1 2\n");
  EXPECT_THAT(message_of("m.mtx"), HasSubstr("m.mtx says 2000000000000 vertices; a graph has 1 to 2^40"));
  write_ogb("g");
  folder_.write("g/raw/num-edge-list.csv.gz", "900000000000000000\n");
  EXPECT_THAT(message_of("g"), AllOf(HasSubstr("num-edge-list.csv.gz says 900000000000000000 edges, but "),
                                     HasSubstr("edge.csv.gz has only")));
  write_ogb("n");
  folder_.write("n/raw/num-node-list.csv.gz", "1000000000000\n");
  EXPECT_THAT(message_of("n"), AllOf(HasSubstr("num-node-list.csv.gz says 1000000000000 vertices, but "),
                                     HasSubstr("node-feat.csv.gz has only")));
  remove("n/raw/node-feat.csv.gz");
  EXPECT_THAT(message_of("n"), HasSubstr("node-label.csv.gz has only"));
  write_ogb("e");
  remove("e/raw/node-feat.csv.gz");
  folder_.write("e/raw/node-feat.csv", "");
  EXPECT_THAT(message_of("e"), HasSubstr("node-feat.csv is empty; a line of features a vertex is wanted"));
}

} // namespace
} // namespace orthant::graph
