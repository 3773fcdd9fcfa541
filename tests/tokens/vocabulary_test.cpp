// SPDX-License-Identifier: Apache-2.0
#include "tokens/vocabulary.hpp"

#include "support/user_messages.hpp"

#include <array>
#include <gtest/gtest.h>
#include <string>

namespace orthant::testing {
namespace {

/// A character of each length, with its bytes as RFC 3629 writes them (section 7).
struct Known {
  std::uint32_t code_point;
  std::string bytes;
};
std::array<Known, 6> const known{{{0x41, "A"},
                                  {0x7f, "\x7f"},
                                  {0x391, "\xce\x91"},
                                  {0x2262, "\xe2\x89\xa2"},
                                  {0x233b4, "\xf0\xa3\x8e\xb4"},
                                  {0x10ffff, "\xf4\x8f\xbf\xbf"}}};

TEST(Utf8, ReadsAndWritesWhatTheStandardShows) {
  for (auto const& [code_point, bytes] : known) {
    auto const found = tokens::first_character(bytes + "x");

    EXPECT_EQ(found.code_point, code_point);
    EXPECT_EQ(found.num_bytes, bytes.size());
    EXPECT_EQ(tokens::to_utf8(code_point), bytes);
  }
}

TEST(Utf8, EveryCodePointButSurrogatesComesBack) {
  for (std::uint32_t code = 0; code < tokens::num_code_points; ++code) {
    auto const found = tokens::first_character(tokens::to_utf8(code));
    if (code >= 0xd800 && code < 0xe000)
      ASSERT_EQ(found.num_bytes, 0) << code;
    else
      ASSERT_EQ(found.code_point, code);
  }
}

TEST(Utf8, RefusesWhatIsNoCharacter) {
  std::array<std::string, 9> const wrong{"",      "\x80",         "\xc0\x80",         "\xe0\x80\x80", "\xc3",
                                         "\xc3(", "\xf0\x9f\x98", "\xf4\x90\x80\x80", "\xed\xa0\x80"};
  for (auto const& text : wrong)
    EXPECT_EQ(tokens::first_character(text).num_bytes, 0) << ::testing::PrintToString(text);
}

TEST(Vocabulary, OfBytesHasEachByte) {
  auto const vocabulary = tokens::Vocabulary::of_bytes();

  ASSERT_EQ(vocabulary.size(), 256);
  EXPECT_EQ(vocabulary.text_of(65), "A");
  EXPECT_EQ(vocabulary.text_of(255), "\xff");
}

TEST(Vocabulary, OfCharactersHasTheirBytes) {
  auto const vocabulary = tokens::Vocabulary::of_characters(std::array<std::uint32_t, 3>{'\n', 'z', 0x391});

  ASSERT_EQ(vocabulary.size(), 3);
  EXPECT_EQ(vocabulary.text_of(1), "z");
  EXPECT_EQ(vocabulary.text_of(2), "\xce\x91");
  EXPECT_THROW(static_cast<void>(vocabulary.text_of(3)), runtime::Error);
}

TEST(Vocabulary, RefusesEndsThatDescend) {
  EXPECT_THROW(tokens::Vocabulary("abc", {2, 1, 3}), runtime::Error);
  EXPECT_EQ(tokens::Vocabulary("abc", {1, 1, 3}).text_of(1), ""); // a number without a token
  EXPECT_THROW(tokens::Vocabulary("abc", {1, 2}), runtime::Error);
}

TEST(Tokenizer, IsCharByteOrBpe) {
  EXPECT_EQ(tokens::parse_tokenizer("char"), tokens::TokenizerKind::character);
  EXPECT_EQ(tokens::parse_tokenizer("bpe"), tokens::TokenizerKind::bpe);
  EXPECT_EQ(test::message_of([] { static_cast<void>(tokens::parse_tokenizer("word")); }),
            "a tokenizer is char, byte or bpe, not 'word'");
}

} // namespace
} // namespace orthant::testing
