// SPDX-License-Identifier: Apache-2.0
//
// Documents as token files: the same from any number of ranks and threads.

#include "tokens/documents/tokenize_documents.hpp"

#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"
#include "tokens/bpe/tokenizer_files.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

namespace orthant::testing {
namespace {

using tokens::Part;
using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;

constexpr std::int32_t end_id = 257;

/// The 256 bytes, "the", and <|endoftext|>.
tokens::TokenizerFile bytes_and_one() {
  Json vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[tokens::to_byte_characters(std::string(1, static_cast<char>(byte)))] = byte;
  vocabulary["th"] = 256;
  Json const json{{"added_tokens", {{{"id", end_id}, {"content", "<|endoftext|>"}, {"special", true}}}},
                  {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                  {"model", {{"vocab", vocabulary}, {"merges", {"t h"}}}}};
  return {"small", tokens::read_tokenizer_json(json.dump(), "small"), json.dump()};
}

class Documents : public ::testing::Test {
 protected:
  /// Rank 0 writes it.
  std::string write(std::string const& name, std::string const& text) const {
    auto path = folder_.file(name);
    if (world_.is_root()) {
      if (name.ends_with(".gz")) {
        auto* const file = gzopen(path.c_str(), "wb");
        gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
        gzclose(file);
      } else
        test::write_file(path, text);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return path;
  }
  tokens::TokenFacts make(std::string const& input, std::int64_t threads = 1) const {
    return tokens::tokenize_documents(world_, {input, folder_.file("t.h5"), 1.0, "text", "", threads},
                                      tokenizer_);
  }
  Ids ids_of(std::string const& input) const {
    make(input);
    auto file = tokens::TokenFile::open(world_, folder_.file("t.h5"));
    file.verify(world_);
    Ids ids(static_cast<std::size_t>(file.num_tokens(Part::train)));
    file.read(Part::train, 0, ids);
    return ids;
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  test::ScratchFolder folder_{MPI_COMM_WORLD};
  tokens::TokenizerFile tokenizer_ = bytes_and_one();
};

TEST_F(Documents, AreSeparatedByTheEndToken) {
  write("b.txt", "th");
  write("a.txt", "a b");
  write("c.jsonl", "{\"text\": \"x\"}\n\n{\"text\": \"\", \"id\": 1}\n{\"text\": \"th\\n\"}");

  EXPECT_EQ(ids_of(folder_.file("a.txt")), (Ids{'a', ' ', 'b'}));
  EXPECT_EQ(ids_of(folder_.file("*.txt")), (Ids{'a', ' ', 'b', end_id, 256}));
  EXPECT_EQ(ids_of(folder_.file("c.jsonl")), (Ids{'x', end_id, 256, '\n'}));
  EXPECT_EQ(ids_of(folder_.file("c.jsonl") + "," + folder_.file("b.txt")),
            (Ids{'x', end_id, 256, '\n', end_id, 256}));
}

TEST_F(Documents, TellTheirTokenizer) {
  auto const facts = make(write("a.jsonl", "{\"text\": \"th th\"}\n{\"text\": \"x\"}\n"));
  auto const file = tokens::TokenFile::open(world_, folder_.file("t.h5"));

  EXPECT_EQ(file.facts().to_json(), facts.to_json());
  EXPECT_EQ(file.facts().tokenizer, tokens::TokenizerKind::bpe);
  EXPECT_EQ(file.facts().num_documents, 2);
  EXPECT_EQ(file.facts().bpe->name, "small");
  EXPECT_EQ(file.facts().bpe->end_token, end_id);
  EXPECT_EQ(file.facts().of(Part::train).num_bytes, 6) << "without the end token";
  EXPECT_EQ(file.tokenizer_json(world_), tokenizer_.json);
}

TEST_F(Documents, MayHaveNamesThatAreLongerThanThatOfAFile) {
  std::string names;
  Ids expected;
  for (int i = 0; i < 60; ++i) {
    names += (i == 0 ? "" : ",") + write(std::string(60, 'x') + std::to_string(i) + ".txt", "th");
    if (i > 0) expected.push_back(end_id);
    expected.push_back(256);
  }
  ASSERT_GT(names.size(), 4096U) << "PATH_MAX of Linux";

  EXPECT_EQ(ids_of(names), expected);
  EXPECT_NE(test::message_of([&] { make(std::string(5000, 'x')); }).find("there is no such file"),
            std::string::npos);
}

/// A text that cannot be cut is read by one thread.
TEST_F(Documents, WithoutSpacesAreNotSplit) {
  std::string text;
  for (int i = 0; i < 300'000; ++i)
    text += i % 3 == 0 ? "th" : "x";
  auto const path = write("a.txt", text);
  auto const from_one_thread = ids_of(path);
  EXPECT_EQ(from_one_thread.size(), 300'000U);
  make(path, 5);
  auto const from_all = test::text_of_file(folder_.file("t.h5"));
  MPI_Barrier(MPI_COMM_WORLD);

  if (world_.is_root()) {
    runtime::Communicator const self(MPI_COMM_SELF, "self");
    tokens::tokenize_documents(self, {path, folder_.file("one.h5"), 1.0, "text", "", 1}, tokenizer_);
    EXPECT_EQ(test::text_of_file(folder_.file("one.h5")), from_all);
  }
}

TEST_F(Documents, WithoutAnEndTokenAreOne) {
  auto tokenizer = tokenizer_;
  tokenizer.definition.added.clear();
  write("a.txt", "a");
  write("b.txt", "b");
  auto const message = [&](std::string const& input, std::string const& end) {
    return test::message_of([&] {
      tokens::tokenize_documents(world_, {folder_.file(input), folder_.file("t.h5"), 1.0, "text", end, 1},
                                 tokenizer);
    });
  };

  EXPECT_EQ(message("a.txt", ""), "no UserError");
  EXPECT_NE(message("*.txt", "").find("name it with --end-token TEXT"), std::string::npos);
  EXPECT_NE(message("a.txt", "<x>").find("--end-token '<x>' is not one of the tokenizer's 0 added tokens"),
            std::string::npos);
}

/// Texts and lines of several blocks and files, of which the parts begin anywhere.
TEST_F(Documents, AreTheSameBytesFromAnyNumberOfRanksAndThreads) {
  std::string text;
  std::string lines;
  for (int i = 0; text.size() < 2'500'000; ++i) {
    auto const word = std::string(static_cast<std::size_t>(i % 11), static_cast<char>('a' + i % 23)) +
                      (i % 5 == 0   ? "  the\n\n"
                       : i % 7 == 0 ? " \xe6\x97\xa5\xe6\x9c\xac"
                                    : "th ");
    text += word;
    if (i % 3 == 0) lines += Json{{"text", word}}.dump() + "\n";
  }
  write("a.txt", text);
  write("b.jsonl", lines);
  write("c.jsonl.gz", lines);
  write("d.txt.gz", text);
  auto const input = folder_.file("*.*[tlz]");
  make(input);
  auto const from_all = test::text_of_file(folder_.file("t.h5"));
  make(input, 3);
  EXPECT_EQ(test::text_of_file(folder_.file("t.h5")), from_all);
  MPI_Barrier(MPI_COMM_WORLD);

  if (world_.is_root()) {
    runtime::Communicator const self(MPI_COMM_SELF, "self");
    tokens::tokenize_documents(self, {input, folder_.file("one.h5"), 1.0, "text", "", 1}, tokenizer_);
    EXPECT_EQ(test::text_of_file(folder_.file("one.h5")), from_all);
  }
}

TEST_F(Documents, ThatCannotBeReadAreNamed) {
  auto const message = [&](std::string const& input) { return test::message_of([&] { make(input); }); };

  EXPECT_NE(message(folder_.file("*.none")).find("there is no such file"), std::string::npos);
  EXPECT_NE(message(write("a.jsonl", "{\"text\": 1}\n"))
                .find("has no text 'text'; name the member with --field NAME"),
            std::string::npos);
  EXPECT_NE(message(write("b.jsonl", "{\"text\": \"x\"}\nrest\n"))
                .find("the line at byte 14 of its text is no JSON"),
            std::string::npos);
  EXPECT_NE(message(write("c.txt", "")).find("is empty"), std::string::npos);
  if (world_.is_root()) test::write_file(folder_.file("d.jsonl.gz"), "{\"text\": \"plain\"}\n");
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_NE(message(folder_.file("d.jsonl.gz")).find("is no gzip file"), std::string::npos);
  write("e.txt.gz", std::string(100'000, 'x'));
  if (world_.is_root()) std::filesystem::resize_file(folder_.file("e.txt.gz"), 60);
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_NE(message(folder_.file("e.txt.gz")).find("is damaged"), std::string::npos);
  EXPECT_EQ(test::num_partial_files(folder_.file("")), 0);
}

} // namespace
} // namespace orthant::testing
