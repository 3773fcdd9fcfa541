// SPDX-License-Identifier: Apache-2.0
//
// Which vertices a batch has: covers, sizes, strata, groups, statistics over epochs, and what is refused.
#include "sampling/vertex_sampler.hpp"

#include "runtime/error.hpp"
#include "support/statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace orthant::sampling {
namespace {

using runtime::UserError;
using test::chi_square_statistic;
using test::chi_square_tail;

std::vector<std::int64_t> keys_of(Sampler const& sampler, std::int64_t epoch, std::int64_t batch) {
  BatchKeys keys;
  sampler.draw(epoch, batch, keys);
  return keys.keys;
}

std::int64_t divided_up(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

TEST(VertexSampler, AnEpochHasEveryVertexOnceInBatchesOfEqualSize) {
  for (std::int64_t const n : {10, 34, 203, 1001})
    for (std::int64_t const size : {2, 3, 5, 7})
      for (std::int64_t const groups : {1, 2, 3})
        for (std::int64_t const accumulated : {1, 2}) {
          if (divided_up(n, size) < groups) continue;
          SCOPED_TRACE(testing::Message() << n << ' ' << size << ' ' << groups << ' ' << accumulated);
          VertexSampler const sampler({7, size, groups, accumulated, {}}, n, n / 2);
          auto const step = groups * accumulated;
          ASSERT_EQ(sampler.num_batches(), divided_up(divided_up(n, size), step) * step);
          ASSERT_EQ(sampler.num_steps() * step, sampler.num_batches());

          std::vector<int> visits(static_cast<std::size_t>(n));
          for (std::int64_t t = 0; t < sampler.num_batches(); ++t) {
            auto const keys = keys_of(sampler, 4, t);
            auto const count = static_cast<std::int64_t>(keys.size());
            ASSERT_TRUE(count == n / sampler.num_batches() || count == divided_up(n, sampler.num_batches()));
            for (auto const key : keys)
              ++visits.at(static_cast<std::size_t>(key));
          }
          ASSERT_EQ(std::count(visits.begin(), visits.end(), 1), n);
        }
}

TEST(VertexSampler, GroupsAreAccumulatedBatches) {
  VertexSampler const groups({3, 20, 4, 1, {}}, 203, 100);
  VertexSampler const accumulated({3, 20, 1, 4, {}}, 203, 100);
  VertexSampler const both({3, 20, 2, 2, {}}, 203, 100);

  ASSERT_EQ(groups.num_batches(), accumulated.num_batches());
  ASSERT_EQ(groups.num_batches(), both.num_batches());
  for (std::int64_t step = 0; step < groups.num_steps(); ++step)
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(groups.batch_of(step, i), accumulated.batch_of(step, 0, i));
      EXPECT_EQ(groups.batch_of(step, i), both.batch_of(step, i % 2, i / 2));
      EXPECT_EQ(keys_of(groups, 5, 4 * step + i), keys_of(accumulated, 5, 4 * step + i));
    }
}

TEST(VertexSampler, SeedEpochAndBatchDecide) {
  VertexSampler const sampler({3, 20, 1, 1, {}}, 203, 100);
  VertexSampler const again({3, 20, 1, 1, {}}, 203, 50);
  VertexSampler const other({4, 20, 1, 1, {}}, 203, 100);

  EXPECT_EQ(keys_of(sampler, 1, 2), keys_of(again, 1, 2));
  EXPECT_NE(keys_of(sampler, 1, 2), keys_of(sampler, 2, 2));
  EXPECT_NE(keys_of(sampler, 1, 2), keys_of(sampler, 1, 3));
  EXPECT_NE(keys_of(sampler, 1, 2), keys_of(other, 1, 2));
}

TEST(VertexSampler, FactorsAreThoseOfTheActualSize) {
  BatchKeys keys;
  VertexSampler const sampler({3, 4, 1, 1, {}}, 11, 5); // batches of 4, 4 and 3
  sampler.draw(0, 2, keys);
  EXPECT_EQ(keys.factors, (std::vector<double>{10.0 / 2}));

  VertexSampler const stratified({3, 4, 1, 1, 0.5}, 11, 5); // training vertices: 2, 2 and 1
  stratified.draw(0, 0, keys);
  EXPECT_EQ(keys.stratum_sizes, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(keys.factors, (std::vector<double>{4.0 / 1, 6.0 / 2, 5.0 / 2, 5.0 / 1}));
  stratified.draw(0, 2, keys);
  EXPECT_EQ(keys.stratum_sizes, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(keys.factors, (std::vector<double>{0, 6.0 / 2, 5.0 / 1, 5.0 / 1})); // nobody meets another of 0
}

// Others needed in an epoch: fewer than there are, more than there are, and more in a step than there are.
TEST(VertexSampler, StratifiedEpochsHaveEveryTrainingVertexOnce) {
  for (auto const& [n, num_train, size, fraction] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t, double>{203, 30, 40, 0.25},
        {203, 150, 20, 0.5},
        {100, 73, 20, 0.3},
        {40, 30, 8, 0.1},
        {60, 50, 20, 0.6}})
    for (std::int64_t const groups : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << n << ' ' << num_train << ' ' << size << ' ' << groups);
      if (divided_up(num_train, std::llround(fraction * static_cast<double>(size))) < groups) continue;
      VertexSampler const sampler({7, size, groups, 1, fraction}, n, num_train);
      auto const num_others = size - std::llround(fraction * static_cast<double>(size));
      std::vector<int> visits(static_cast<std::size_t>(n));

      for (std::int64_t step = 0; step < sampler.num_steps(); ++step) {
        std::set<std::int64_t> step_keys;
        for (std::int64_t group = 0; group < groups; ++group) {
          BatchKeys keys;
          sampler.draw(2, sampler.batch_of(step, group), keys);
          ASSERT_EQ(keys.stratum_sizes[1], num_others);
          ASSERT_EQ(keys.size(), keys.stratum_sizes[0] + num_others);
          for (std::int64_t i = 0; i < keys.size(); ++i) {
            auto const key = keys.keys[static_cast<std::size_t>(i)];
            ASSERT_EQ(key < num_train, i < keys.stratum_sizes[0]); // stratum 0 first
            ++visits.at(static_cast<std::size_t>(key));
          }
          ASSERT_EQ(std::set(keys.keys.begin(), keys.keys.end()).size(), keys.keys.size());
          step_keys.insert(keys.keys.begin(), keys.keys.end());
        }
        // The groups of a step have no vertex in common, as long as there are enough others for all of them.
        if (groups * num_others <= n - num_train) {
          std::int64_t num_in_step = 0;
          for (std::int64_t group = 0; group < groups; ++group)
            num_in_step +=
                static_cast<std::int64_t>(keys_of(sampler, 2, sampler.batch_of(step, group)).size());
          ASSERT_EQ(static_cast<std::int64_t>(step_keys.size()), num_in_step);
        }
      }

      ASSERT_EQ(std::count(visits.begin(), visits.begin() + num_train, 1), num_train);
      if (sampler.num_batches() * num_others + groups * num_others <= n - num_train) {
        ASSERT_LE(*std::max_element(visits.begin() + num_train, visits.end()), 1);
      }
    }
}

void expect_plausible(double p_value) {
  EXPECT_GT(p_value, 1e-3);
  EXPECT_LT(p_value, 1 - 1e-3);
}

/// P(k given vertices of n are in a batch of b).
double falling(std::int64_t n, std::int64_t b, int k) {
  double p = 1;
  for (int i = 0; i < k; ++i)
    p *= static_cast<double>(b - i) / static_cast<double>(n - i);
  return p;
}

// Counts over M epochs of n exchangeable things have variance M (p - p^2) and covariance M (q - p^2), q the
// probability of two of them: their squares about the mean, over M (p - q), sum to chi-square with one
// freedom less. For single vertices p - q = p (1 - b/n) n/(n-1): the usual statistic over M p, divided by 1 -
// b/n and by n/(n-1). For disjoint pairs p = falling(2), q = falling(4).
void expect_uniform(std::vector<std::vector<std::int64_t>> const& batches, std::int64_t first_key,
                    std::int64_t n) {
  auto const b = static_cast<std::int64_t>(batches[0].size());
  auto const epochs = static_cast<double>(batches.size());
  std::vector<std::int64_t> singles(static_cast<std::size_t>(n));
  std::vector<std::int64_t> neighbours(static_cast<std::size_t>(n / 2)); // 2i and 2i + 1
  std::vector<std::int64_t> halves(static_cast<std::size_t>(n / 2));     // i and i + n/2
  for (auto const& batch : batches) {
    std::vector<int> is_in(static_cast<std::size_t>(n));
    for (auto const key : batch)
      is_in.at(static_cast<std::size_t>(key - first_key)) = 1;
    for (std::size_t i = 0; i < singles.size(); ++i)
      singles[i] += is_in[i];
    for (std::size_t i = 0; i < halves.size(); ++i) {
      neighbours[i] += is_in[2 * i] & is_in[2 * i + 1];
      halves[i] += is_in[i] & is_in[i + halves.size()];
    }
  }
  auto const p_value = [&](std::vector<std::int64_t> const& counts, int k) {
    auto const variance = epochs * (falling(n, b, k) - falling(n, b, 2 * k));
    return chi_square_tail(chi_square_statistic(counts, variance), static_cast<double>(counts.size() - 1));
  };
  expect_plausible(p_value(singles, 1));
  expect_plausible(p_value(neighbours, 2));
  expect_plausible(p_value(halves, 2));
}

TEST(VertexSampler, BatchesOf2000EpochsHoldEveryVertexAndPairEquallyOften) {
  for (auto const& [n, size] :
       {std::array<std::int64_t, 2>{1000, 125}, {1001, 200}, {203, 50}, {64, 32}, {203, 20}}) {
    VertexSampler const sampler({17, size, 1, 1, {}}, n, n);
    for (auto const t : {std::int64_t{0}, sampler.num_batches() - 1}) {
      std::vector<std::vector<std::int64_t>> batches;
      for (std::int64_t epoch = 0; epoch < 2000; ++epoch)
        batches.push_back(keys_of(sampler, epoch, t));
      SCOPED_TRACE(testing::Message() << n << ' ' << size << ' ' << t);
      expect_uniform(batches, 0, n);
    }
  }
}

TEST(VertexSampler, StratifiedBatchesAreUniformWithinTheirStrata) {
  constexpr std::int64_t n = 400;
  constexpr std::int64_t num_train = 150;
  VertexSampler const sampler({17, 60, 1, 1, 0.4}, n, num_train); // 24 or fewer train, 36 do not; 7 batches
  for (auto const t : {std::int64_t{0}, sampler.num_batches() - 1}) { // the last one of a second round
    std::vector<std::vector<std::int64_t>> trained;
    std::vector<std::vector<std::int64_t>> others;
    for (std::int64_t epoch = 0; epoch < 2000; ++epoch) {
      BatchKeys keys;
      sampler.draw(epoch, t, keys);
      auto const middle = keys.keys.begin() + keys.stratum_sizes[0];
      trained.emplace_back(keys.keys.begin(), middle);
      others.emplace_back(middle, keys.keys.end());
    }
    SCOPED_TRACE(t);
    expect_uniform(trained, 0, num_train);
    expect_uniform(others, num_train, n - num_train);
  }
}

// A change here changes every run that anyone has made: it must be wanted.
TEST(VertexSampler, BatchesArePinned) {
  EXPECT_EQ(keys_of(VertexSampler({42, 4, 1, 1, {}}, 34, 10), 3, 1),
            (std::vector<std::int64_t>{8, 12, 26, 2}));
  EXPECT_EQ(keys_of(VertexSampler({42, 4, 1, 1, 0.5}, 34, 10), 3, 1),
            (std::vector<std::int64_t>{5, 1, 32, 29}));
}

std::string message_of(VertexSamplerOptions const& options, std::int64_t num_vertices,
                       std::int64_t num_train) {
  try {
    VertexSampler const sampler(options, num_vertices, num_train);
  } catch (UserError const& error) {
    return error.what();
  }
  return "accepted";
}

TEST(VertexSampler, RefusesWhatMakesNoBatches) {
  auto const has = [](std::string const& message, char const* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  has(message_of({0, 1, 1, 1, {}}, 34, 10), "at least 2 vertices, not 1");
  has(message_of({0, 35, 1, 1, {}}, 34, 10), "give --batch 34 or less");
  has(message_of({0, 8, 1, 1, {}}, 34, 0), "no training vertices");
  has(message_of({0, 17, 3, 1, {}}, 34, 10), "some of the 3 data groups have no work");
  has(message_of({0, 17, 1, 35, {}}, 34, 10), "35 batches an epoch, but there are 34 vertices");
  has(message_of({0, 8, 2, std::int64_t{1} << 62, {}}, 34, 10), "accumulate less");
  for (auto const fraction : {0.0, 1.0, -0.5, 1.5})
    has(message_of({0, 8, 1, 1, fraction}, 34, 10), "between 0 and 1");
  has(message_of({0, 20, 1, 1, 0.6}, 34, 10), "wants 12 training vertices a batch of 20");
  has(message_of({0, 20, 1, 1, 0.4}, 34, 30), "wants 12 vertices that do not train a batch of 20");
  has(message_of({0, 8, 1, 1, 0.5}, 34, 34), "but the graph has 0");
  has(message_of({0, 20, 3, 1, 0.5}, 34, 20), "some of the 3 data groups have no work");
  has(message_of({0, 8, 2, 1, 0.1}, 34, 3), "3 vertices that train");

  EXPECT_EQ(message_of({0, 34, 1, 1, {}}, 34, 34), "accepted");
  EXPECT_EQ(message_of({0, 2, 17, 1, {}}, 34, 1), "accepted");
}

} // namespace
} // namespace orthant::sampling
