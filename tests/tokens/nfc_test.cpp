// SPDX-License-Identifier: Apache-2.0
#include "tokens/bpe/unicode.hpp"

#include <gtest/gtest.h>
#include <string>

namespace orthant::testing {
namespace {

/// Examples of Unicode Standard Annex 15 and of its test file.
TEST(Nfc, ComposesWhatTheStandardShows) {
  EXPECT_EQ(tokens::to_nfc("plain"), "plain");
  EXPECT_EQ(tokens::to_nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(tokens::to_nfc("\u212b \u2126"), "\u00c5 \u03a9") << "singletons";
  EXPECT_EQ(tokens::to_nfc("s\u0323\u0307"), "\u1e69");
  EXPECT_EQ(tokens::to_nfc("s\u0307\u0323"), "\u1e69") << "marks are sorted";
  EXPECT_EQ(tokens::to_nfc("\u1e0b\u0323"), "\u1e0d\u0307");
  EXPECT_EQ(tokens::to_nfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(tokens::to_nfc("\uac00\u11a7"), "\uac00\u11a7") << "is no trailing consonant";
  EXPECT_EQ(tokens::to_nfc("\u0958"), "\u0915\u093c") << "excluded from composition";
  EXPECT_EQ(tokens::to_nfc("a\u0301\u0301"), "\u00e1\u0301");
}

TEST(Nfc, KeepsBytesThatAreNotText) {
  EXPECT_EQ(tokens::to_nfc("e\xff\u0301"), "e\xff\u0301");
}

} // namespace
} // namespace orthant::testing
