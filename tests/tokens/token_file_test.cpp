// SPDX-License-Identifier: Apache-2.0
#include "tokens/token_file.hpp"

#include "runtime/comm/communicator.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/files/hdf5_output.hpp"
#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"
#include "tokens/tokenize.hpp"
#include "tokens/vocabulary.hpp"

#include <cstdio>
#include <gtest/gtest.h>
#include <mpi.h>
#include <vector>

namespace orthant::testing {
namespace {

using tokens::Part;
using tokens::TokenFile;
using tokens::TokenizerKind;
using Ids = std::vector<std::int32_t>;

class TokenFiles : public ::testing::Test {
 protected:
  /// Rank 0 writes it.
  [[nodiscard]] std::string text_file(std::string const& text) const {
    auto path = folder_.file("text.txt");
    if (world_.is_root()) test::write_file(path, text);
    MPI_Barrier(MPI_COMM_WORLD);
    return path;
  }
  [[nodiscard]] tokens::TokenizeOptions options(std::string const& text, TokenizerKind kind,
                                                double fraction = 0.5) const {
    return {text_file(text), folder_.file("t.h5"), kind, fraction};
  }
  tokens::TokenFacts make(std::string const& text, TokenizerKind kind, double fraction = 0.5) const {
    return tokens::tokenize(world_, options(text, kind, fraction));
  }
  [[nodiscard]] TokenFile open() const { return TokenFile::open(world_, folder_.file("t.h5")); }
  static Ids all_of(TokenFile& file, Part part) {
    Ids ids(static_cast<std::size_t>(file.num_tokens(part)));
    file.read(part, 0, ids);
    return ids;
  }
  /// Rank 0 adds one to the byte where `found` begins in the file, at `offset` behind it.
  void damage(std::string const& found, std::int64_t offset) const {
    if (world_.is_root()) {
      auto const path = folder_.file("t.h5");
      auto const at = test::text_of_file(path).find(found);
      ASSERT_NE(at, std::string::npos);
      auto const place = static_cast<std::int64_t>(at) + offset;
      auto* const file = std::fopen(path.c_str(), "r+b");
      std::fseek(file, place, SEEK_SET);
      auto const byte = std::fgetc(file);
      std::fseek(file, place, SEEK_SET);
      std::fputc(byte ^ 1, file);
      std::fclose(file);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  test::ScratchFolder folder_{MPI_COMM_WORLD};
};

TEST_F(TokenFiles, CharactersAreNumberedInTheirOrder) {
  // n < a < b < e-acute < euro < an emoji
  auto const facts = make("ba\xe2\x82\xac\n\xf0\x9f\x98\x80\xc3\xa9"
                          "ab",
                          TokenizerKind::character);
  auto file = open();
  file.verify(world_);

  EXPECT_EQ(facts.vocabulary_size, 6);
  EXPECT_EQ(all_of(file, Part::train), (Ids{2, 1, 4, 0}));
  EXPECT_EQ(all_of(file, Part::valid), (Ids{5, 3, 1, 2}));
  EXPECT_EQ(file.vocabulary().text_of(4), "\xe2\x82\xac");
  EXPECT_EQ(file.facts().of(Part::train).num_bytes, 6);
  EXPECT_EQ(file.facts().of(Part::valid).num_bytes, 8);
  EXPECT_EQ(file.facts().tokenizer, TokenizerKind::character);
  EXPECT_EQ(file.facts().source, "text.txt");
}

TEST_F(TokenFiles, BytesAreTheirOwnNumbers) {
  make(std::string("\xff\0z", 3) + "!", TokenizerKind::byte, 0.8);
  auto file = open();
  file.verify(world_);

  EXPECT_EQ(file.vocabulary().size(), 256);
  EXPECT_EQ(all_of(file, Part::train), (Ids{255, 0, 'z'}));
  EXPECT_EQ(all_of(file, Part::valid), (Ids{'!'}));
}

/// In the middle of a text it is a character, and bytes of any file are what they are.
TEST_F(TokenFiles, AByteOrderMarkAtTheHeadIsNoToken) {
  std::string const mark = "\xef\xbb\xbf";
  for (auto const kind : {TokenizerKind::character, TokenizerKind::byte})
    for (std::string const text : {"a", "ab",
                                   "b\xc3\xa9"
                                   "a\n"}) {
      make(text, kind, 1);
      auto plain = open();
      auto const marked = make(mark + text, kind, 1);
      auto file = open();
      file.verify(world_);

      EXPECT_EQ(file.vocabulary().bytes(), plain.vocabulary().bytes()) << text;
      EXPECT_EQ(all_of(file, Part::train), all_of(plain, Part::train)) << text;
      EXPECT_EQ(marked.of(Part::train).num_bytes, std::ssize(text));
    }
  EXPECT_EQ(make("a" + mark, TokenizerKind::character).vocabulary_size, 2);
  auto const only = options(mark, TokenizerKind::byte);
  EXPECT_NE(test::message_of([&] { tokens::tokenize(world_, only); }).find("is empty"), std::string::npos);
  std::string const wide("\xff\xfe\x61\0", 4);
  auto const refused = options(wide, TokenizerKind::character);
  EXPECT_NE(test::message_of([&] { tokens::tokenize(world_, refused); }).find("text.txt is a text in UTF-16"),
            std::string::npos);
  EXPECT_EQ(make(wide, TokenizerKind::byte, 1).of(Part::train).num_tokens, 4);
}

/// A text longer than a block, in which characters of all lengths meet the ends of shares.
TEST_F(TokenFiles, AreTheSameBytesFromAnyNumberOfRanks) {
  std::string text;
  for (std::uint32_t i = 0; text.size() < 3'000'000; ++i)
    text += tokens::to_utf8(i % 7 == 0 ? 0x1f600 + i % 50 : i % 3 == 0 ? 0x20ac + i % 60 : 'a' + i % 26);
  make(text, TokenizerKind::character, 0.37);
  open().verify(world_);
  auto const from_all = test::text_of_file(folder_.file("t.h5"));
  MPI_Barrier(MPI_COMM_WORLD);

  if (world_.is_root()) {
    runtime::Communicator const self(MPI_COMM_SELF, "self");
    tokens::tokenize(self,
                     {folder_.file("text.txt"), folder_.file("one.h5"), TokenizerKind::character, 0.37});
    EXPECT_EQ(test::text_of_file(folder_.file("one.h5")), from_all);
  }
}

TEST_F(TokenFiles, HaveWiderNumbersForLargeVocabularies) {
  std::string text;
  Ids expected;
  constexpr std::int32_t count = 70'000;
  for (std::int32_t i = 0; i < count; ++i) {
    text += tokens::to_utf8(0x10000 + static_cast<std::uint32_t>(count - 1 - i));
    expected.push_back(count - 1 - i);
  }
  make(text, TokenizerKind::character, 1);
  auto file = open();
  file.verify(world_);

  EXPECT_EQ(tokens::token_type(65'536), runtime::Hdf5Type::uint16);
  EXPECT_EQ(tokens::token_type(65'537), runtime::Hdf5Type::uint32);
  EXPECT_EQ(all_of(file, Part::train), expected);
  EXPECT_EQ(file.num_tokens(Part::valid), 0);
}

TEST_F(TokenFiles, GiveAnyRunOfTokensForItsBytesAlone) {
  make("abcdefghij", TokenizerKind::byte, 0.8);
  auto file = open();
  Ids ids(3);

  file.read(Part::train, 4, ids);

  EXPECT_EQ(ids, (Ids{'e', 'f', 'g'}));
  EXPECT_EQ(file.bytes_read(), 6);
  EXPECT_THROW(file.read(Part::train, 6, ids), runtime::Error);
}

TEST_F(TokenFiles, AreNotMadeOfWhatIsNoText) {
  auto const wrong = options("abc\xc3(", TokenizerKind::character);
  EXPECT_NE(test::message_of([&] {
              tokens::tokenize(world_, wrong);
            }).find("is no UTF-8 text at byte 3; --tokenizer byte takes any file"),
            std::string::npos);
  // On some number of ranks a share ends before any of these bytes.
  for (auto const* const text : {"AB\200C", "A\200BC", "ABCDE\200F"}) {
    auto const stray = options(text, TokenizerKind::character);
    EXPECT_NE(test::message_of([&] { tokens::tokenize(world_, stray); }).find("is no UTF-8 text at byte"),
              std::string::npos)
        << text;
  }
  auto const empty = options("", TokenizerKind::byte);
  EXPECT_NE(test::message_of([&] { tokens::tokenize(world_, empty); }).find("is empty"), std::string::npos);
  auto missing = empty;
  missing.input = folder_.file("nowhere");
  EXPECT_NE(test::message_of([&] { tokens::tokenize(world_, missing); }).find("cannot read"),
            std::string::npos);
  EXPECT_EQ(test::num_partial_files(folder_.file("")), 0);
}

TEST_F(TokenFiles, ThatAreDamagedAreNamed) {
  make("some text that is long enough to be found again", TokenizerKind::byte, 0.5);
  damage(std::string("t\0h\0", 4), 0);
  EXPECT_NE(test::message_of([&] { open().verify(world_); }).find("the checksum of /tokens/train is wrong"),
            std::string::npos);
  make("some text", TokenizerKind::byte);
  damage("\"tokenizer\"", 1);
  auto const message = test::message_of([&] { static_cast<void>(open()); });
  EXPECT_NE(message.find("is damaged"), std::string::npos)
      << message; // HDF5's own checksum is the first to tell
  make("abba", TokenizerKind::character);
  damage(std::string("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16), 8);
  EXPECT_NE(
      test::message_of([&] { static_cast<void>(open()); }).find("the checksum of its vocabulary is wrong"),
      std::string::npos);
}

TEST_F(TokenFiles, ThatAreCutOffAreNamed) {
  make(std::string(100'000, 'x'), TokenizerKind::byte);
  if (world_.is_root()) std::filesystem::resize_file(folder_.file("t.h5"), 60'000);
  MPI_Barrier(MPI_COMM_WORLD);

  auto const message = test::message_of([&] { static_cast<void>(open()); });

  EXPECT_NE(message.find("t.h5"), std::string::npos) << message;
}

/// The facts, the checksums and the arrays fit each other, but a token has no text.
TEST_F(TokenFiles, WithATokenBeyondTheVocabularyAreNamed) {
  auto facts = make("abab", TokenizerKind::character);
  if (world_.is_root()) {
    runtime::Communicator const self(MPI_COMM_SELF, "self");
    std::vector<std::uint16_t> const wrong{0, 2};
    facts.parts[0].sum = runtime::sum_of_box<std::uint16_t>({2}, {0}, {2}, std::span(wrong));
    runtime::Hdf5Output file(self, folder_.file("t.h5"), "token");
    std::vector<std::uint16_t> const right{0, 1};
    std::vector<std::uint8_t> const bytes{'a', 'b'};
    std::vector<std::int64_t> const ends{1, 2};
    for (auto const part : tokens::all_parts)
      file.create_array(tokens::array_of(part), runtime::Hdf5Type::uint16, {2});
    file.create_array(tokens::bytes_array, runtime::Hdf5Type::uint8, {2});
    file.create_array(tokens::ends_array, runtime::Hdf5Type::int64, {2});
    file.write(tokens::array_of(Part::train), {0}, {2}, std::span(wrong));
    file.write(tokens::array_of(Part::valid), {0}, {2}, std::span(right));
    file.write(tokens::bytes_array, {0}, {2}, std::span(bytes));
    file.write(tokens::ends_array, {0}, {2}, std::span(ends));
    auto const text = facts.to_json();
    file.write_attribute("/", "format", std::string(tokens::file_format));
    file.write_attribute("/", "version", tokens::file_version);
    file.write_attribute("/", "facts", text);
    file.write_attribute("/", "facts_sum", tokens::sum_of(text));
    file.publish();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  auto file = open();

  EXPECT_NE(test::message_of([&] {
              file.verify(world_);
            }).find("/tokens/train holds token 2, and its vocabulary has 2 tokens"),
            std::string::npos);
}

TEST_F(TokenFiles, AreNotOtherFiles) {
  if (world_.is_root()) {
    runtime::Communicator const self(MPI_COMM_SELF, "self");
    runtime::Hdf5Output other(self, folder_.file("t.h5"), "other");
    other.create_array("/numbers", runtime::Hdf5Type::int64, {1});
    std::vector<std::int64_t> const one{1};
    other.write("/numbers", {0}, {1}, std::span(one));
    other.publish();
  }
  MPI_Barrier(MPI_COMM_WORLD);

  EXPECT_NE(
      test::message_of([&] { static_cast<void>(open()); }).find("is an HDF5 file, but not one of tokens"),
      std::string::npos);
  EXPECT_NE(test::message_of([&] {
              static_cast<void>(TokenFile::open(world_, text_file("no HDF5")));
            }).find("text.txt"),
            std::string::npos);
}

} // namespace
} // namespace orthant::testing
