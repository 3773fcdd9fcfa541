// SPDX-License-Identifier: Apache-2.0
#include "tokens/bpe/pieces.hpp"

#include "tokens/bpe/unicode.hpp"
#include "tokens/vocabulary.hpp"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

namespace orthant::testing {
namespace {

using tokens::CharacterClass;
using tokens::Pattern;
using Pieces = std::vector<std::string>;

Pieces split(std::vector<Pattern> const& patterns, std::string_view text) {
  Pieces pieces;
  auto take = [&](std::string_view piece) { pieces.emplace_back(piece); };
  tokens::for_each_piece(patterns, text, take);
  return pieces;
}

/// tiktoken and Hugging Face's tokenizers have the same numbers.
TEST(UnicodeClasses, AreThoseOfUnicode16) {
  std::array<int, 4> counts{};
  for (std::uint32_t code = 0; code < tokens::num_code_points; ++code)
    ++counts[static_cast<std::size_t>(tokens::UnicodeClasses::get().of(code))];

  EXPECT_EQ(counts[static_cast<std::size_t>(CharacterClass::letter)], 141'028);
  EXPECT_EQ(counts[static_cast<std::size_t>(CharacterClass::number)], 1'911);
  EXPECT_EQ(counts[static_cast<std::size_t>(CharacterClass::space)], 25);
  EXPECT_EQ(tokens::UnicodeClasses::get().of(0x180e), CharacterClass::other);
}

TEST(Pieces, AreThoseOfGpt2) {
  std::vector const gpt2{Pattern::gpt2};

  EXPECT_EQ(split(gpt2, "12345"), (Pieces{"12345"}));
  EXPECT_EQ(split(gpt2, "x!!\n\n y"), (Pieces{"x", "!!", "\n\n", " y"}));
  EXPECT_EQ(split(gpt2, "DON'T"), (Pieces{"DON", "'", "T"}));
  EXPECT_EQ(split(gpt2, "we'll  go"), (Pieces{"we", "'ll", " ", " go"}));
  EXPECT_EQ(split(gpt2, "(x)"), (Pieces{"(", "x", ")"}));
  EXPECT_EQ(split(gpt2, "foo\n\nbar"), (Pieces{"foo", "\n", "\n", "bar"}));
  EXPECT_EQ(split(gpt2, "a\xff\xff 1"), (Pieces{"a", "\xff\xff", " 1"}));
}

TEST(Pieces, AreThoseOfLlama3) {
  std::vector const llama3{Pattern::llama3};

  EXPECT_EQ(split(llama3, "12345"), (Pieces{"123", "45"}));
  EXPECT_EQ(split(llama3, "x!!\n\n y"), (Pieces{"x", "!!\n\n", " y"}));
  EXPECT_EQ(split(llama3, "DON'T"), (Pieces{"DON", "'T"}));
  EXPECT_EQ(split(llama3, "it'\u017f"), (Pieces{"it", "'\u017f"}));
  EXPECT_EQ(split(llama3, "(x)"), (Pieces{"(x", ")"}));
  EXPECT_EQ(split(llama3, "foo\n\nbar"), (Pieces{"foo", "\n\n", "bar"}));
  EXPECT_EQ(split({Pattern::qwen2}, "a123"), (Pieces{"a", "1", "2", "3"}));
  EXPECT_EQ(split({Pattern::llama3}, "a \n "), (Pieces{"a", " \n", " "}));
  EXPECT_EQ(split({Pattern::cl100k}, "a \n "), (Pieces{"a", " \n "}));
}

TEST(Pieces, OfSeveralPatternsAreSplitInTurn) {
  EXPECT_EQ(split({Pattern::single_digits, Pattern::gpt2}, "a 12"), (Pieces{"a", " ", "1", "2"}));
  EXPECT_EQ(split({Pattern::digit_runs, Pattern::gpt2}, "a 12"), (Pieces{"a", " ", "12"}));
}

/// Random texts of what patterns treat differently, cut at every place that is allowed.
TEST(Pieces, OfATextThatIsCutAreThoseOfTheWhole) {
  std::vector<std::string> const parts{" ",   "  ",  "\n",           "\r\n", "\t", "\u00a0", "\u3000",
                                       "a",   "The", "'s",           "'LL",  "1",  "12345",  "!",
                                       "...", "(",   "\xe6\x97\xa5", "\xff", "_",  "\u0301"};
  std::vector<std::vector<Pattern>> const tokenizers{{Pattern::gpt2},
                                                     {Pattern::llama3},
                                                     {Pattern::qwen2},
                                                     {Pattern::cl100k},
                                                     {Pattern::single_digits, Pattern::gpt2},
                                                     {Pattern::digit_runs, Pattern::gpt2}};
  std::mt19937 draw(1);
  int num_cuts = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (auto count = draw() % 30; count > 0; --count)
      text += parts[draw() % parts.size()];
    for (auto cut = tokens::first_cut(text, 1); cut < text.size(); cut = tokens::first_cut(text, cut + 1)) {
      ++num_cuts;
      for (auto const& patterns : tokenizers) {
        auto joined = split(patterns, std::string_view(text).substr(0, cut));
        std::ranges::copy(split(patterns, std::string_view(text).substr(cut)), std::back_inserter(joined));
        ASSERT_EQ(joined, split(patterns, text)) << ::testing::PrintToString(text) << " at " << cut;
      }
      EXPECT_EQ(tokens::last_cut(std::string_view(text).substr(0, cut + 1), 0), cut);
    }
  }
  EXPECT_GT(num_cuts, 1000);
}

TEST(Patterns, AreKnownByTheirExpressions) {
  for (auto const pattern : {Pattern::gpt2, Pattern::llama3, Pattern::qwen2, Pattern::cl100k})
    EXPECT_EQ(tokens::pattern_of(tokens::expression_of(pattern)), pattern);
  EXPECT_FALSE(tokens::pattern_of(R"(\w+)").has_value());
}

} // namespace
} // namespace orthant::testing
