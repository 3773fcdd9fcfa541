// SPDX-License-Identifier: Apache-2.0
//
// Tokenizers from the texts of their files. The ids of GPT-2's vocabulary are tiktoken's and Hugging Face's.

#include "tokens/bpe/tokenizer.hpp"

#include "runtime/comm/communicator.hpp"
#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"
#include "tokens/bpe/tokenizer_files.hpp"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <mpi.h>
#include <nlohmann/json.hpp>
#include <random>

namespace orthant::testing {
namespace {

using Ids = std::vector<std::uint32_t>;
using Json = nlohmann::json;

Ids encode(tokens::Tokenizer const& tokenizer, std::string_view text) {
  Ids ids;
  tokens::Encoder(tokenizer).encode(text, ids);
  return ids;
}

/// A vocabulary of the 256 bytes, "ab", "abc" and an added token.
Json small() {
  Json vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[tokens::to_byte_characters(std::string(1, static_cast<char>(byte)))] = byte;
  vocabulary["ab"] = 256;
  vocabulary["abc"] = 257;
  return {{"added_tokens", {{{"id", 258}, {"content", "<|endoftext|>"}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {{"a", "b"}, "ab c"}}}}};
}

tokens::Tokenizer read(Json const& json) {
  return {tokens::read_tokenizer_json(json.dump(), "tokenizer.json"), "tokenizer.json"};
}

TEST(TokenizerJson, IsRead) {
  auto const tokenizer = read(small());

  EXPECT_EQ(encode(tokenizer, "abcab<|endoftext|>b"), (Ids{257, 256, 258, 'b'}));
  EXPECT_EQ(tokenizer.decode(Ids{257, 256, 258, 'b'}), "abcab<|endoftext|>b");
  EXPECT_EQ(tokenizer.vocabulary().size(), 259);
  EXPECT_EQ(tokens::find_end_token(tokenizer.definition(), ""), 258U);
  EXPECT_TRUE(tokenizer.can_be_cut());
}

TEST(TokenizerJson, IsWrittenAsItIsRead) {
  auto const tokenizer = read(small());

  auto const written = tokens::to_tokenizer_json(tokenizer.definition());

  auto const again = tokens::read_tokenizer_json(written, "again");
  EXPECT_EQ(again.texts, tokenizer.definition().texts);
  EXPECT_EQ(again.merges, tokenizer.definition().merges);
  EXPECT_EQ(tokens::to_tokenizer_json(again), written);
}

/// </s> is both an added token and one that merges make.
TEST(TokenizerJson, IsWrittenWithTheAddedTokensOfMerges) {
  auto json = small();
  json["model"]["vocab"]["</"] = 259;
  json["model"]["vocab"]["s>"] = 260;
  json["model"]["vocab"]["</s>"] = 261;
  json["added_tokens"].push_back({{"id", 261}, {"content", "</s>"}, {"special", true}});
  json["model"]["merges"] = {"< /", "s >", "</ s>"};
  auto const definition = tokens::read_tokenizer_json(json.dump(), "first");

  auto const written = tokens::to_tokenizer_json(definition);

  auto const again = tokens::read_tokenizer_json(written, "again");
  EXPECT_EQ(again.texts, definition.texts);
  EXPECT_EQ(again.merges, definition.merges);
  EXPECT_FALSE(Json::parse(written)["model"]["vocab"].contains("<|endoftext|>"));
}

/// Without a pattern, merges cross spaces, so that no place is known where a text may be cut.
TEST(Tokenizer, CutsTextsOnlyIfAPatternSplitsThem) {
  Json const bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  auto const can_be_cut = [&](Json const& first) {
    auto json = small();
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {first, bytes}}};
    return read(json).can_be_cut();
  };
  auto json = small();
  json["model"]["vocab"]["\u0120b"] = 259;
  json["model"]["vocab"]["a\u0120b"] = 260;
  json["model"]["merges"] = {"\u0120 b", "a \u0120b"};
  json["pre_tokenizer"] = bytes;

  EXPECT_EQ(encode(read(json), "a b"), (Ids{260}));
  EXPECT_FALSE(read(json).can_be_cut());
  EXPECT_FALSE(can_be_cut({{"type", "Digits"}, {"individual_digits", true}}));
  EXPECT_TRUE(can_be_cut({{"type", "Split"},
                          {"pattern", {{"Regex", tokens::expression_of(tokens::Pattern::llama3)}}},
                          {"behavior", "Isolated"}}));
}

TEST(TokenizerJson, OfOtherKindsIsRefusedByName) {
  std::vector<std::pair<std::string, std::string>> const refused{
      {R"({"model": {"type": "Unigram"}})", "a model of type Unigram"},
      {R"({"model": {"type": "WordPiece"}})", "a model of type WordPiece"},
      {R"({"model": {"byte_fallback": true}})", "byte_fallback, as SentencePiece"},
      {R"({"model": {"end_of_word_suffix": "</w>"}})", "the end_of_word_suffix '</w>'"},
      {R"({"model": {"dropout": 0.1}})", "drops merges at random"},
      {R"({"normalizer": {"type": "Lowercase"}})", "a normalizer of type Lowercase"},
      {R"({"pre_tokenizer": {"type": "Metaspace"}})", "the pre_tokenizer Metaspace"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Isolated"}})",
       R"(splits by a pattern that is not one of GPT-2, Llama 3 and Qwen: \w+)"},
      {R"({"pre_tokenizer": {"type": "Digits"}})", "no pre_tokenizer ByteLevel"},
      {R"({"added_tokens": [{"id": 1, "content": "x", "single_word": true}]})",
       "the added token 'x' as a single word"}};
  for (auto const& [patch, message] : refused) {
    auto json = small();
    json.merge_patch(Json::parse(patch));
    EXPECT_NE(test::message_of([&] { read(json); }).find(message), std::string::npos)
        << test::message_of([&] { read(json); });
  }
}

TEST(TokenizerJson, ThatIsDamagedIsNamed) {
  EXPECT_NE(test::message_of([] {
              static_cast<void>(tokens::read_tokenizer_json("{\"model\": ", "t.json"));
            }).find("'t.json' cannot be read as a tokenizer.json"),
            std::string::npos);
  std::vector<std::pair<std::string, std::string>> const damaged{
      {R"({"model": {"merges": [["a", "z"]]}})", "its merge of 'a' and 'z' needs the token 'az'"},
      {R"({"model": {"vocab": {"a": -1}}})", "-1 is no number of a token"},
      {R"({"model": {"vocab": {"a": 98}}})", "two tokens have the number 98"},
      {R"({"model": {"vocab": null}})", "cannot be read"}};
  for (auto const& [patch, message] : damaged) {
    auto json = small();
    json.merge_patch(Json::parse(patch));
    EXPECT_NE(test::message_of([&] { read(json); }).find(message), std::string::npos)
        << test::message_of([&] { read(json); });
  }
  auto without_a = small();
  without_a["model"]["vocab"].erase("z");
  auto const tokenizer = read(without_a);
  EXPECT_NE(test::message_of([&] { encode(tokenizer, "z"); }).find("no token for the byte 0x7a"),
            std::string::npos);
}

TEST(Encoder, MergesLongPiecesInTheOrderOfRanks) {
  auto const tokenizer = read(small());
  std::string text;
  Ids expected;
  for (int i = 0; i < 10'000; ++i) {
    text += i % 3 == 0 ? "abc" : "ab";
    expected.push_back(i % 3 == 0 ? 257 : 256);
  }

  EXPECT_EQ(encode(tokenizer, text), expected);
}

/// The data set of GPT-2's vocabulary, or empty.
std::filesystem::path gpt2_folder() {
  auto const* const data = std::getenv("ORTHANT_DATA");
  if (data == nullptr) return {};
  auto folder = std::filesystem::path(data) / "datasets" / "gpt2_bpe";
  return std::filesystem::exists(folder / "gpt2.tiktoken") ? folder : std::filesystem::path();
}

class Gpt2 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpt2_folder().empty()) GTEST_SKIP() << "ORTHANT_DATA has no gpt2_bpe";
    file_ = tokens::read_tokenizer(world_, gpt2_folder() / "gpt2.tiktoken", "");
  }
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  tokens::TokenizerFile file_;
};

TEST_F(Gpt2, HasTheKnownIds) {
  tokens::Tokenizer const tokenizer(file_.definition, "gpt2");
  std::vector<std::pair<std::string, Ids>> const known{
      {"Hello world", {15496, 995}},
      {" Hello", {18435}},
      {"don't DON'T we'Ll", {9099, 470, 23917, 6, 51, 356, 6, 43, 75}},
      {"a  b   c", {64, 220, 275, 220, 220, 269}},
      {"\n\n\n", {628, 198}},
      {"x \n\n y\t\t", {87, 220, 628, 331, 197, 197}},
      {"1234567 3.14", {10163, 2231, 3134, 513, 13, 1415}},
      {"\u65e5\u672c\u8a9e", {33768, 98, 17312, 105, 45739, 252}},
      {"na\u00efve caf\u00e9", {2616, 38776, 40304}},
      {"nai\u0308ve", {38600, 136, 230, 303}},
      {"a\u180e"
       "b",
       {64, 157, 254, 236, 65}},
      {"it\u2019s", {270, 447, 247, 82}},
      {"<|endoftext|>", {27, 91, 437, 1659, 5239, 91, 29}},
      {"\uff21\uff22\uff23\u2460\u00bd \u0663",
       {171, 120, 94, 171, 120, 95, 171, 120, 96, 158, 239, 254, 23141, 18923, 96}},
      {"\ufeffBOM", {171, 119, 123, 33, 2662}},
      {std::string("\0\1control", 9), {188, 189, 13716}}};
  for (auto const& [text, ids] : known) {
    EXPECT_EQ(encode(tokenizer, text), ids) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
  EXPECT_EQ(tokenizer.vocabulary().size(), 50'257);
}

TEST_F(Gpt2, HasTheIdsOfTheDataSet) {
  tokens::Tokenizer const tokenizer(file_.definition, "gpt2");
  auto const vectors = Json::parse(test::text_of_file(gpt2_folder() / "vectors.json"));

  for (auto const& known : vectors.at("cases"))
    EXPECT_EQ(encode(tokenizer, known.at("text").get<std::string>()), known.at("ids").get<Ids>())
        << known.at("text");
}

/// Random bytes of all lengths: the tokenizer.json that a token file keeps has the same tokens, and they have the bytes.
TEST_F(Gpt2, IsTheSameAsTokenizerJson) {
  tokens::Tokenizer const tokenizer(file_.definition, "gpt2");
  auto definition = tokens::read_tokenizer_json(file_.json, "json");
  definition.finds_added = false;
  tokens::Tokenizer const again(definition, "json");
  std::mt19937 draw(1);
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (auto count = draw() % 200; count > 0; --count)
      text.push_back(static_cast<char>(draw() % 3 == 0 ? draw() : 'a' + draw() % 26));
    auto const ids = encode(tokenizer, text);
    EXPECT_EQ(tokenizer.decode(ids), text);
    EXPECT_EQ(encode(again, text), ids);
  }
}

TEST(TokenizerFiles, ThatAreNoneAreNamed) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const message = [&](std::string const& name, std::string const& text) {
    if (world.is_root()) test::write_file(folder.file(name), text);
    MPI_Barrier(MPI_COMM_WORLD);
    return test::message_of([&] { static_cast<void>(tokens::read_tokenizer(world, folder.file(name), "")); });
  };

  EXPECT_NE(message("a.tiktoken", "IQ== 0\nIg== x\n").find("its line 2 is no token in base64 and its rank"),
            std::string::npos);
  EXPECT_NE(message("b.tiktoken", "IQ== 0\nIg== 0\n").find("two tokens have the rank 0"), std::string::npos);
  EXPECT_NE(message("c.tiktoken", "IQ== 0\n").find("has 1 tokens, which is no known .tiktoken file"),
            std::string::npos);
  EXPECT_NE(message("d.tiktoken", "IQ== 0\nIg== 1\nIQ== 2\n").find("its ranks 0 and 2 are the same token"),
            std::string::npos);
  if (world.is_root()) std::filesystem::create_directory(folder.file("empty"));
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_NE(test::message_of([&] {
              static_cast<void>(tokens::read_tokenizer(world, folder.file("empty"), ""));
            }).find("contains no tokenizer: a tokenizer.json, a vocab.json with merges.txt, or exactly one"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] {
              static_cast<void>(tokens::read_tokenizer(world, folder.file("nowhere.h5"), ""));
            }).find("nowhere.h5"),
            std::string::npos);
  EXPECT_NE(message("vocab.json", "{}").find("needs 'merges.txt' in the same folder"), std::string::npos);
  EXPECT_NE(message("x.model", "").find("is no tokenizer: a tokenizer.json"), std::string::npos);
  EXPECT_NE(test::message_of([&] {
              static_cast<void>(tokens::read_tokenizer(world, folder.file("nowhere"), ""));
            }).find("--tokenizer is char, byte, or a tokenizer's file or folder; there is no"),
            std::string::npos);
}

/// Ranks may have gaps: the end token comes after the last one, and special tokens of a known file replace none.
TEST(TokenizerFiles, OfRanksKeepEveryToken) {
  auto const with_gap = tokens::read_ranks("IQ== 0\nIg== 2\n", "gpt2", "gap");

  EXPECT_EQ(with_gap.texts, (std::vector<std::string>{"!", "", "\"", "<|endoftext|>"}));
  std::string lines;
  for (int rank = 0; rank < 50'256; ++rank) { // three bytes each, as four digits of base64
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string token;
    for (auto rest = rank, i = 0; i < 4; ++i, rest /= 64)
      token += digits[static_cast<std::size_t>(rest % 64)];
    lines += token + " " + std::to_string(rank == 0 ? 50'256 : rank) + "\n";
  }
  EXPECT_NE(test::message_of([&] {
              static_cast<void>(tokens::read_ranks(lines, "", "known"));
            }).find("its token 50256 should be '<|endoftext|>', and is another one"),
            std::string::npos);
}

TEST(TokenizerFiles, OfVocabularyAndMergesAreRead) {
  Json vocabulary = small()["model"]["vocab"];
  vocabulary["<|endoftext|>"] = 258;

  tokens::Tokenizer const tokenizer(
      tokens::read_vocabulary_and_merges(vocabulary.dump(), "#version: 0.2\na b\nab c\n", "vocab.json"),
      "vocab.json");

  EXPECT_EQ(encode(tokenizer, "abcab"), (Ids{257, 256}));
  EXPECT_EQ(encode(tokenizer, "<|endoftext|>").size(), 13U);
  EXPECT_EQ(tokens::find_end_token(tokenizer.definition(), ""), 258U);
}

} // namespace
} // namespace orthant::testing
