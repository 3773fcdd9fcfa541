// SPDX-License-Identifier: Apache-2.0
#include "runtime/numbers/random.hpp"

#include "runtime/error.hpp"
#include "support/statistics.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <vector>

namespace orthant::runtime {
namespace {

using test::chi_square_statistic;
using test::chi_square_tail;
using test::uniform_p_value;

void expect_uniform(double p_value) {
  EXPECT_GT(p_value, 1e-3);
  EXPECT_LT(p_value, 1 - 1e-3);
}

std::uint64_t key_of(std::uint64_t step) {
  return RandomStream(18, Purpose::permutation, step).key();
}

TEST(KeyedBijection, IsABijectionForEverySizeTo10000) {
  std::vector<std::uint32_t> seen(10'001, 0); // the size that last hit this image
  for (std::uint32_t n = 1; n <= 10'000; ++n) {
    auto const permute = KeyedBijection(n, key_of(n));
    std::uint32_t num_images = 0;
    std::uint32_t num_returns = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      auto const image = permute(i);
      if (image < n && seen[image] != n) {
        seen[image] = n;
        ++num_images;
      }
      // Every fourth size in full, of the others a few: the inverse of a bijection that is one.
      if (n % 4 == 0 || n < 200 || i < 8) num_returns += permute.inverse(image) == i ? 1 : 0;
    }
    ASSERT_EQ(num_images, n);
    ASSERT_EQ(num_returns, n % 4 == 0 || n < 200 ? n : 8) << "n is " << n;
  }
}

TEST(KeyedBijection, SeveralImagesAreThoseOfEach) {
  for (std::uint64_t const n : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{7}, std::uint64_t{1000},
                                std::uint64_t{48'980}, std::uint64_t{1} << 40}) {
    auto const permute = KeyedBijection(n, key_of(n));
    for (std::uint64_t count = 0; count <= std::min<std::uint64_t>(n, 37); ++count) {
      auto const first = (n - count) / 2;
      std::vector<std::int64_t> images(count, -1);
      permute.images(first, images);
      for (std::uint64_t i = 0; i < count; ++i)
        ASSERT_EQ(images[i], static_cast<std::int64_t>(permute(first + i))) << n << ", " << count;
    }
    if (n > 100'000) continue;
    std::vector<std::int64_t> all(n); // some of which are sent through again
    permute.images(0, all);
    for (std::uint64_t i = 0; i < n; ++i)
      ASSERT_EQ(all[i], static_cast<std::int64_t>(permute(i))) << n;
  }
}

TEST(KeyedBijection, ReturnsFromLargeSizes) {
  auto const draws = RandomStream(3, Purpose::test);
  for (std::uint64_t const n :
       {std::uint64_t{1} << 20, (std::uint64_t{1} << 20) + 1, std::uint64_t{111'059'956},
        (std::uint64_t{1} << 32) - 1, (std::uint64_t{1} << 32) + 1, std::uint64_t{99'999'999'977},
        std::uint64_t{100'000'000'000}, (std::uint64_t{1} << 62) - 1, std::uint64_t{1} << 62}) {
    auto const permute = KeyedBijection(n, key_of(n));
    for (std::uint64_t j = 0; j < 20'000; ++j) {
      auto const i = j < 100 ? j : j < 200 ? n - 1 - (j - 100) : draws.integer(n, n, j);
      auto const image = permute(i);
      ASSERT_LT(image, n);
      ASSERT_EQ(permute.inverse(image), i) << "n is " << n;
      auto const origin = permute.inverse(i);
      ASSERT_LT(origin, n);
      ASSERT_EQ(permute(origin), i) << "n is " << n;
    }
  }
}

TEST(KeyedBijection, SizesOutOfRangeAreRefused) {
  EXPECT_THROW(KeyedBijection(0, 1), Error);
  EXPECT_THROW(KeyedBijection((std::uint64_t{1} << 62) + 1, 1), Error);
}

TEST(KeyedBijection, KeyDecidesThePermutation) {
  constexpr std::uint64_t n = 1000;
  auto const first = KeyedBijection(n, 5);
  auto const again = KeyedBijection(n, 5);
  auto const other = KeyedBijection(n, 5 + (std::uint64_t{1} << 63));
  int num_equal = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    EXPECT_EQ(first(i), again(i));
    num_equal += first(i) == other(i) ? 1 : 0;
  }
  EXPECT_LT(num_equal, 10); // one expected
}

// A change here changes every run that anyone has made: it must be wanted.
TEST(KeyedBijection, ImagesArePinned) {
  auto const small = KeyedBijection(10, 42);
  std::vector<std::uint64_t> images;
  for (std::uint64_t i = 0; i < 10; ++i)
    images.push_back(small(i));
  EXPECT_EQ(images, (std::vector<std::uint64_t>{4, 1, 7, 5, 0, 3, 2, 8, 9, 6}));
  EXPECT_EQ(KeyedBijection(100'000'000'000, 42)(12'345'678'901), 96291861916u);
}

TEST(KeyedBijection, EveryPermutationOfFewIsEquallyLikely) {
  for (std::uint64_t n : {2, 3, 4, 5, 6}) {
    std::map<std::uint64_t, std::int64_t> counts;
    std::vector<std::uint64_t> images(n);
    std::iota(images.begin(), images.end(), 0);
    auto const code = [&] {
      return std::accumulate(images.begin(), images.end(), std::uint64_t{0},
                             [](auto sum, auto image) { return sum * 8 + image; });
    };
    do
      counts[code()] = 0;
    while (std::next_permutation(images.begin(), images.end()));

    for (std::uint64_t step = 0; step < 72'000; ++step) {
      auto const permute = KeyedBijection(n, key_of(step));
      for (std::uint64_t i = 0; i < n; ++i)
        images[i] = permute(i);
      ++counts.at(code());
    }
    std::vector<std::int64_t> cells;
    for (auto const& [permutation, count] : counts)
      cells.push_back(count);
    SCOPED_TRACE(n);
    expect_uniform(uniform_p_value(cells));
  }
}

// The image of each pair of inputs, over keys: n (n - 1) equally likely cells, for pairs near and far.
TEST(KeyedBijection, ImagesOfAPairAreUniform) {
  for (std::uint64_t const n : {std::uint64_t{9}, std::uint64_t{16}, std::uint64_t{17}, std::uint64_t{30}}) {
    for (auto const& [i, j] : {std::array<std::uint64_t, 2>{0, 1}, {0, 2}, {1, n - 1}, {n / 2, n / 2 + 1}}) {
      std::vector<std::int64_t> cells(n * (n - 1));
      for (std::uint64_t step = 0; step < 20 * cells.size(); ++step) {
        auto const permute = KeyedBijection(n, key_of(step));
        auto const x = permute(i);
        auto const y = permute(j);
        ++cells[x * (n - 1) + (y > x ? y - 1 : y)];
      }
      SCOPED_TRACE(testing::Message() << n << ' ' << i << ' ' << j);
      expect_uniform(uniform_p_value(cells));
    }
  }
}

// Batch 0 of many epochs takes what the inverse sends below B. The counts of n vertices (or of disjoint
// pairs) are exchangeable: each has variance M p (1 - p), two have covariance M (p2 - p^2), so their sum of
// squares about the mean over M (p - p2) is chi-square with one freedom less than there are.
TEST(KeyedBijection, BatchesHoldEveryVertexAndPairEquallyOften) {
  constexpr double epochs = 4000;
  for (auto const& [n, batch] : {std::array<std::uint64_t, 2>{1000, 125}, {243, 61}, {64, 32}, {1001, 500}}) {
    std::vector<std::int64_t> singles(n);
    std::vector<std::int64_t> neighbours(n / 2);
    std::vector<std::int64_t> halves(n / 2); // i and i + n/2
    std::vector<char> is_in(n);
    for (std::uint64_t epoch = 0; epoch < static_cast<std::uint64_t>(epochs); ++epoch) {
      auto const permute = KeyedBijection(n, key_of(epoch));
      for (std::uint64_t i = 0; i < n; ++i) {
        is_in[i] = permute.inverse(i) < batch ? 1 : 0;
        singles[i] += is_in[i];
      }
      for (std::uint64_t i = 0; i < n / 2; ++i) {
        neighbours[i] += is_in[2 * i] & is_in[2 * i + 1];
        halves[i] += is_in[i] & is_in[i + n / 2];
      }
    }

    auto const falling = [&](int k) { // P(k given vertices are in the batch)
      double p = 1;
      for (int j = 0; j < k; ++j)
        p *= (static_cast<double>(batch) - j) / (static_cast<double>(n) - j);
      return p;
    };
    SCOPED_TRACE(n);
    expect_uniform(chi_square_tail(chi_square_statistic(singles, epochs * (falling(1) - falling(2))),
                                   static_cast<double>(singles.size() - 1)));
    for (auto const& pairs : {neighbours, halves})
      expect_uniform(chi_square_tail(chi_square_statistic(pairs, epochs * (falling(2) - falling(4))),
                                     static_cast<double>(pairs.size() - 1)));
  }
}

// One large permutation looks random from within: images of runs and of strides fill 1,000 cells evenly, and
// so do the differences of neighbours' images. Drawing B of n without repetition shrinks the variance by 1 -
// B/n.
TEST(KeyedBijection, OneLargePermutationLooksRandom) {
  constexpr std::uint64_t n = 100'000'000;
  constexpr std::uint64_t batch = 200'000;
  for (std::uint64_t const stride : {1, 64, 100, 16'384}) {
    auto const permute = KeyedBijection(n, key_of(stride));
    std::vector<std::int64_t> cells(1000);
    std::vector<std::int64_t> differences(1000);
    std::vector<std::int64_t> low_digits(1000);
    auto previous = permute(0);
    for (std::uint64_t j = 1; j <= batch; ++j) {
      auto const image = permute(j * stride % n);
      ++cells[image / (n / 1000)];
      ++low_digits[image % 1000];
      ++differences[(image + n - previous) % n / (n / 1000)];
      previous = image;
    }
    SCOPED_TRACE(stride);
    expect_uniform(uniform_p_value(cells));
    expect_uniform(uniform_p_value(low_digits));
    expect_uniform(uniform_p_value(differences));
  }
}

using Exec = Kokkos::DefaultExecutionSpace;
using Images = Kokkos::View<std::uint64_t*, Exec::memory_space>;

struct PermuteOnDevice {
  KeyedBijection permute;
  Images images; // [2 n]
  KOKKOS_FUNCTION void operator()(std::uint64_t i) const {
    images(2 * i) = permute(i);
    images(2 * i + 1) = permute.inverse(i);
  }
};

TEST(KeyedBijection, KernelsPermuteAsTheHostDoes) {
  constexpr std::uint64_t n = 777;
  auto const permute = KeyedBijection(n, 99);
  auto const exec = Exec();
  Images const images("orthant::test::images", 2 * n);

  Kokkos::parallel_for("orthant::test::permute",
                       Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::uint64_t>>(exec, 0, n),
                       PermuteOnDevice{permute, images});
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), images);

  for (std::uint64_t i = 0; i < n; ++i) {
    EXPECT_EQ(host(2 * i), permute(i));
    EXPECT_EQ(host(2 * i + 1), permute.inverse(i));
  }
}

} // namespace
} // namespace orthant::runtime
