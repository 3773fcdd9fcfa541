// SPDX-License-Identifier: Apache-2.0
//
// The text of a completion as its tokens arrive.
#include "cli/lm/completions.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using cli::CompletionText;

/// What each token gives, separated by bars.
std::string given(CompletionText& text, std::vector<std::string> const& tokens) {
  std::string all;
  for (auto const& token : tokens) {
    if (text.has_stopped()) break;
    all += text.add(token) + "|";
  }
  return all + text.finish();
}

TEST(CompletionText, GivesWholeCharacters) {
  CompletionText text({});

  EXPECT_EQ(given(text, {"B\xc3", "\xa4r", "\xe2\x82", "\xac"}), "B|\xc3\xa4r||\xe2\x82\xac|");
  EXPECT_EQ(text.text(), "B\xc3\xa4r\xe2\x82\xac");
}

TEST(CompletionText, ReplacesBytesThatAreNoCharacter) {
  CompletionText text({});

  EXPECT_EQ(given(text, {"a\xff", "b\xc3", "c", "\xe2\x82"}), "a\xef\xbf\xbd|b|\xef\xbf\xbd"
                                                              "c||\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(CompletionText, EndsBeforeAStopTextThatSeveralTokensMake) {
  CompletionText text({"END", "\n\n"});

  EXPECT_EQ(given(text, {"an E", "N", "E", "ND", "more"}), "an ||EN||");
  EXPECT_TRUE(text.has_stopped());
  EXPECT_EQ(text.text(), "an EN");
}

TEST(CompletionText, GivesTheBeginningOfAStopTextThatDoesNotFollow) {
  CompletionText text({"END"});

  EXPECT_EQ(given(text, {"E", "N"}), "||EN");
  EXPECT_FALSE(text.has_stopped());
}

} // namespace
} // namespace orthant::testing
