// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/permutation.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

namespace orthant::graph {

namespace {

constexpr std::int64_t exact_degrees = 1024; // 2^10
constexpr int exact_bits = 10;
constexpr int step_bits = 6;
constexpr std::uint32_t cluster_layer = 1U << 28; // layer of the streams; the layers of bins are below (Deal)

/// Small factors come first, because the first digits divide the rows into the largest parts.
std::vector<std::int64_t> radices_of(std::int64_t num_bins) {
  std::vector<std::int64_t> radices;
  auto rest = num_bins;
  auto const take = [&](std::int64_t radix, int most) {
    for (int i = 0; i < most && rest % radix == 0; ++i, rest /= radix)
      radices.push_back(radix);
  };
  take(2, 4); // 2, 4, 8 and 16 ranks along an axis are common
  take(3, 1);
  take(5, 1);
  take(2, 62);
  if (rest > 1) radices.push_back(rest);
  return radices;
}

/// 64 well-mixed bits for each path through the levels of one round (Steele, Lea and Flood, 2014).
std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

} // namespace

std::int64_t degree_class(std::int64_t degree) {
  if (degree <= exact_degrees) return degree;
  auto const exponent =
      static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(degree))) - 1; // >= 10
  auto const step = (degree >> (exponent - step_bits)) & ((1 << step_bits) - 1);
  return exact_degrees + 1 + ((exponent - exact_bits) << step_bits) + step;
}

std::int64_t num_degree_classes() {
  return exact_degrees + 1 + ((63 - exact_bits) << step_bits);
}

std::int64_t num_bins_for(std::int64_t num_vertices) {
  constexpr std::int64_t least_per_bin = 64;
  for (std::int64_t const bins : {960, 480, 240, 48})
    if (num_vertices >= bins * least_per_bin) return bins;
  return std::min<std::int64_t>(num_vertices, 48);
}

std::uint64_t cluster_coordinate(std::uint64_t t, std::uint64_t seed, std::uint32_t draw) {
  auto const shift = runtime::RandomStream(seed, runtime::Purpose::permutation, draw, cluster_layer).key();
  // x has the bits of t in reverse. y uses Sobol's second matrix, whose columns are v, v ^ (v >> 1).
  auto column = std::uint64_t{1} << 63;
  std::uint64_t fraction = 0;
  for (; t != 0; t >>= 1) {
    if ((t & 1) != 0) fraction ^= column;
    column = draw == 0 ? column >> 1 : column ^ (column >> 1);
  }
  return fraction ^ shift;
}

Deal::Deal(std::int64_t num_vertices, std::int64_t num_bins, std::uint64_t seed, std::uint32_t draw)
    : bins_{num_vertices, num_bins},
      key_(runtime::RandomStream(seed, runtime::Purpose::permutation, draw).key()),
      radices_(radices_of(num_bins)),
      last_round_(static_cast<std::uint64_t>(std::max<std::int64_t>(1, num_vertices % num_bins)), key_ ^ 1) {
  ORTHANT_REQUIRE(0 < num_bins && num_bins <= num_vertices, num_bins, " bins for ", num_vertices,
                  " vertices");
  places_.reserve(static_cast<std::size_t>(num_bins));
  for (std::int64_t bin = 0; bin < num_bins; ++bin)
    places_.emplace_back(
        static_cast<std::uint64_t>(bins_.size(bin)),
        runtime::RandomStream(seed, runtime::Purpose::permutation, draw, static_cast<std::uint32_t>(bin) + 1)
            .key());
}

std::int64_t Deal::arrange(std::int64_t round, std::int64_t place_in_round) const {
  auto rest = place_in_round;
  std::int64_t bin = 0; // digits so far: the part of the rows that the next digit divides
  std::uint64_t level = 0;
  auto const random = runtime::philox2x64<6>({{static_cast<std::uint64_t>(round), 0}}, key_)[0];
  for (auto const radix : radices_) {
    auto const digit = rest % radix;
    rest /= radix;
    auto const bits = scramble(random ^ (static_cast<std::uint64_t>(bin) << 8 | level));
    auto const shift =
        static_cast<std::int64_t>(runtime::multiply_high(bits, static_cast<std::uint64_t>(radix)));
    bin = bin * radix + (digit + shift) % radix;
    ++level;
  }
  return bin;
}

std::int64_t Deal::bin_of(std::int64_t place) const {
  auto const round = place / bins_.num_parts;
  auto const in_round = place % bins_.num_parts;
  if (round < bins_.count / bins_.num_parts) return arrange(round, in_round);
  // The last, partial round goes to the bins that are larger by one: the t-th of them ends where t B / r passes an integer, with r = number
  // of vertices left over.
  auto const num_left = bins_.count % bins_.num_parts;
  auto const t = static_cast<std::int64_t>(last_round_(static_cast<std::uint64_t>(in_round)));
  return ((t + 1) * bins_.num_parts + num_left - 1) / num_left - 1;
}

std::int64_t Deal::position_of(std::int64_t place) const {
  auto const bin = bin_of(place);
  auto const round = static_cast<std::uint64_t>(place / bins_.num_parts);
  return bins_.begin(bin) + static_cast<std::int64_t>(places_[static_cast<std::size_t>(bin)](round));
}

namespace {

using runtime::Range;
using Runs = std::vector<Range>;

constexpr int num_pieces = 16; // best_split() assumes this
constexpr std::int64_t most_leaves = 16'384;
constexpr std::int64_t least_leaf = 16;
/// A seam costs as much as a difference between the halves of 0.1 % of their weight.
constexpr std::int64_t seams_of_whole_weight = 1000;

void append(Runs& runs, Range run) {
  if (!runs.empty() && runs.back().end == run.begin)
    runs.back().end = run.end;
  else
    runs.push_back(run);
}

/// Number of nonzeros of the vertices before a place in the local order.
class WeightBefore {
 public:
  WeightBefore(std::span<std::int64_t const> sizes, std::span<std::int64_t const> weights)
      : weights_(weights.begin(), weights.end()),
        places_(sizes.size() + 1),
        sums_(sizes.size() + 1) {
    std::partial_sum(sizes.begin(), sizes.end(), places_.begin() + 1);
    std::partial_sum(weights.begin(), weights.end(), sums_.begin() + 1);
  }

  [[nodiscard]] std::int64_t num_vertices() const { return places_.back(); }
  [[nodiscard]] std::int64_t of(Range run) const { return before(run.end) - before(run.begin); }

 private:
  [[nodiscard]] std::int64_t before(std::int64_t place) const {
    auto const next = std::ranges::upper_bound(places_, place);
    if (next == places_.end()) return sums_.back();
    auto const k = static_cast<std::size_t>(next - places_.begin()) - 1;
    return sums_[k] + weights_[k] * (place - places_[k]) / (places_[k + 1] - places_[k]);
  }

  std::vector<std::int64_t> weights_;
  std::vector<std::int64_t> places_; // begins of the clusters, and N
  std::vector<std::int64_t> sums_;   // total weights of the clusters before
};

/// Bit i is set if piece i goes to the second half. Half of the pieces do, and the first one does not.
struct PieceSplit {
  std::uint32_t second;
  int num_seams; // pairs of adjacent pieces in different halves
};

std::vector<PieceSplit> all_splits() {
  std::vector<PieceSplit> splits;
  for (std::uint32_t second = 0; second < (1U << num_pieces); second += 2)
    if (std::popcount(second) == num_pieces / 2)
      splits.push_back({second, std::popcount((second ^ (second >> 1)) & ((1U << (num_pieces - 1)) - 1))});
  return splits;
}

class Dealer {
 public:
  Dealer(std::span<std::int64_t const> sizes, std::span<std::int64_t const> weights)
      : weight_(sizes, weights),
        leaf_(std::max(least_leaf, weight_.num_vertices() / most_leaves)) {}

  Runs deal_all() {
    if (weight_.num_vertices() > 0) deal({{0, weight_.num_vertices()}});
    return std::move(dealt_);
  }

 private:
  struct Piece {
    Runs runs;
    std::int64_t weight = 0;
  };
  using Pieces = std::array<Piece, num_pieces>;

  void deal(Runs const& sequence) {
    auto const num_vertices =
        std::accumulate(sequence.begin(), sequence.end(), std::int64_t{0},
                        [](std::int64_t sum, Range const& run) { return sum + run.size(); });
    if (num_vertices <= leaf_) {
      for (auto const& run : sequence)
        append(dealt_, run);
      return;
    }
    auto const pieces = cut(sequence, num_vertices);
    auto const second = best_split(pieces);
    std::array<Runs, 2> halves;
    for (std::size_t i = 0; i < pieces.size(); ++i)
      for (auto const& run : pieces[i].runs)
        append(halves[second >> i & 1U], run);
    deal(halves[0]);
    deal(halves[1]);
  }

  [[nodiscard]] Pieces cut(Runs const& sequence, std::int64_t num_vertices) const {
    Pieces pieces;
    auto run = sequence.begin();
    auto begin = run->begin; // begin of the rest of the run
    for (int i = 0; i < num_pieces; ++i) {
      auto& piece = pieces[static_cast<std::size_t>(i)];
      auto wanted = num_vertices * (i + 1) / num_pieces - num_vertices * i / num_pieces;
      while (wanted > 0) {
        if (begin == run->end) begin = (++run)->begin;
        Range const part{begin, std::min(run->end, begin + wanted)};
        piece.runs.push_back(part);
        piece.weight += weight_.of(part);
        wanted -= part.size();
        begin = part.end;
      }
    }
    return pieces;
  }

  [[nodiscard]] std::uint32_t best_split(Pieces const& pieces) const {
    // Sums over each subset of the first 8 pieces, and of the last 8.
    std::array<std::array<std::int64_t, 256>, 2> sums{};
    for (std::uint32_t chosen = 1; chosen < 256; ++chosen)
      for (std::size_t part = 0; part < 2; ++part)
        sums[part][chosen] = sums[part][chosen & (chosen - 1)] +
                             pieces[8 * part + static_cast<std::size_t>(std::countr_zero(chosen))].weight;
    auto const weight_of = [&](std::uint32_t chosen) { return sums[0][chosen & 255] + sums[1][chosen >> 8]; };
    auto const whole = std::max<std::int64_t>(1, weight_of((1U << num_pieces) - 1));
    auto best = splits_.front().second;
    auto least = std::numeric_limits<std::int64_t>::max();
    for (auto const& [second, num_seams] : splits_) {
      auto const difference = std::abs(2 * weight_of(second) - whole);
      auto const cost = seams_of_whole_weight * difference + num_seams * whole;
      if (cost >= least) continue;
      least = cost;
      best = second;
    }
    return best;
  }

  WeightBefore weight_;
  std::int64_t leaf_;
  std::vector<PieceSplit> splits_ = all_splits();
  Runs dealt_;
};

} // namespace

std::vector<Range> deal_pieces(std::span<std::int64_t const> sizes, std::span<std::int64_t const> weights) {
  ORTHANT_REQUIRE(sizes.size() == weights.size(), sizes.size(), " clusters have ", weights.size(),
                  " weights");
  return Dealer(sizes, weights).deal_all();
}

} // namespace orthant::graph
