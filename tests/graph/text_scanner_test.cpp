// SPDX-License-Identifier: Apache-2.0
#include "graph/text/text_scanner.hpp"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>

namespace orthant::graph {
namespace {

TEST(TextScanner, RoundsAsTheLibraryDoes) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    auto const bits = static_cast<std::uint32_t>(random());
    auto const value = std::bit_cast<float>(bits);
    if (!std::isfinite(value)) continue;
    for (auto const& text : {fmt::format("{}\n", value), fmt::format("{:.3f}\n", std::fmod(value, 100.0f)),
                             fmt::format("{:.17g}\n", static_cast<double>(value))}) {
      float read = 0;

      auto const* const end = text::parse_float(text.data(), read);

      ASSERT_EQ(end, text.data() + text.size() - 1) << text;
      ASSERT_EQ(read, std::strtof(text.c_str(), nullptr)) << text;
    }
  }
}

TEST(TextScanner, KnowsWhatIsNoNumber) {
  for (std::string const text : {"abc\n", "-\n", ".\n", "\n", "--1\n", "+-1\n", "e5\n"}) {
    float value = 0;
    EXPECT_EQ(text::parse_float(text.data(), value), nullptr) << text;
  }
  std::int64_t id = 0;
  EXPECT_EQ(text::parse_natural("1234567890123456789\n", id), nullptr);
  ASSERT_NE(text::parse_natural("999999999999999999\n", id), nullptr);
  EXPECT_EQ(id, 999999999999999999);
  float value = 0;
  ASSERT_NE(text::parse_float("1e-60\n", value), nullptr);
  EXPECT_EQ(value, 0.0f);
  ASSERT_NE(text::parse_float("-1e60\n", value), nullptr);
  EXPECT_EQ(value, -std::numeric_limits<float>::infinity());
  ASSERT_NE(text::parse_float("nan\n", value), nullptr);
  EXPECT_TRUE(std::isnan(value));
  ASSERT_NE(text::parse_float("+2.5\n", value), nullptr);
  EXPECT_EQ(value, 2.5f);
}

} // namespace
} // namespace orthant::graph
