// SPDX-License-Identifier: Apache-2.0
//
// Draws of the next token: their frequencies, and the tokens that top-k, top-p and min-p leave.
#include "cli/lm/lm_inference.hpp"

#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using cli::Sampling;

// Probabilities 0.05, 0.4, 0.1, 0.15, 0.3.
std::vector<double> const five_logits{std::log(0.05), std::log(0.4), std::log(0.1), std::log(0.15),
                                      std::log(0.3)};

/// How often each token is drawn in `num_draws` steps of completion 3.
std::vector<double> counts_of(Sampling const& sampling, std::int64_t num_draws) {
  std::vector<double> counts(five_logits.size(), 0);
  for (std::int64_t step = 0; step < num_draws; ++step)
    ++counts[static_cast<std::size_t>(cli::next_token(five_logits, sampling, 3, step))];
  return counts;
}

/// Within five standard deviations of a binomial distribution; exactly 0 where the probability is.
void expect_frequencies(Sampling const& sampling, std::vector<double> const& probabilities) {
  constexpr std::int64_t num_draws = 20'000;
  auto const counts = counts_of(sampling, num_draws);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    auto const mean = num_draws * probabilities[i];
    EXPECT_NEAR(counts[i], mean, 5 * std::sqrt(mean * (1 - probabilities[i]))) << i;
  }
}

TEST(Sampling, DrawsWithTheProbabilitiesOfTheSoftmax) {
  expect_frequencies({.seed = 1}, {0.05, 0.4, 0.1, 0.15, 0.3});
}

TEST(Sampling, DividesLogitsByTheTemperature) {
  auto const sum = 0.0025 + 0.16 + 0.01 + 0.0225 + 0.09;
  expect_frequencies({.temperature = 0.5, .seed = 1},
                     {0.0025 / sum, 0.16 / sum, 0.01 / sum, 0.0225 / sum, 0.09 / sum});
}

TEST(Sampling, LeavesTheMostProbableTokens) {
  std::vector<double> const two{0, 0.4 / 0.7, 0, 0, 0.3 / 0.7};
  expect_frequencies({.top_k = 2, .seed = 2}, two);
  expect_frequencies({.top_p = 0.65, .seed = 3}, two);
  expect_frequencies({.min_p = 0.5, .seed = 4}, two); // at least 0.2
  expect_frequencies({.top_k = 1, .seed = 5}, {0, 1, 0, 0, 0});
}

TEST(Sampling, TakesTheLowerOfTwoTokensThatAreEquallyProbable) {
  EXPECT_EQ(cli::next_token(std::vector<double>{0, 1, 1}, {.temperature = 0}, 0, 0), 1);
  EXPECT_EQ(cli::next_token(std::vector<double>{0, 1, 1}, {.top_k = 1}, 0, 0), 1);
}

TEST(Sampling, DependsOnSeedCompletionAndStep) {
  auto const draws = [](std::uint64_t seed, std::int64_t s) {
    std::vector<std::int32_t> all;
    for (std::int64_t step = 0; step < 40; ++step)
      all.push_back(cli::next_token(five_logits, {.seed = seed}, s, step));
    return all;
  };

  EXPECT_EQ(draws(1, 0), draws(1, 0));
  EXPECT_NE(draws(1, 0), draws(2, 0));
  EXPECT_NE(draws(1, 0), draws(1, 1));
}

} // namespace
} // namespace orthant::testing
