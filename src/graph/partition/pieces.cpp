// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/pieces.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

namespace orthant::graph {
namespace {

using runtime::Range;
using Runs = std::vector<Range>;

constexpr int num_pieces = 16; // best_split() counts on it
constexpr std::int64_t most_leaves = 16'384;
constexpr std::int64_t least_leaf = 16;
/// A seam is worth a difference of the halves of 0.1 % of their weight.
constexpr std::int64_t seams_of_whole_weight = 1000;

void append(Runs& runs, Range run) {
  if (!runs.empty() && runs.back().end == run.begin)
    runs.back().end = run.end;
  else
    runs.push_back(run);
}

/// Non-zeros of the vertices before a place of the local order.
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
  std::vector<std::int64_t> places_; // where clusters begin, and N
  std::vector<std::int64_t> sums_;   // weights of the clusters before
};

/// Bit i: piece i goes to the second half. Half of the pieces do, and the first one does not.
struct PieceSplit {
  std::uint32_t second;
  int num_seams; // neighbouring pieces that go to different halves
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
    auto begin = run->begin; // of what is left of the run
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
    // Sums over the chosen ones of the first 8 pieces, and of the last 8.
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
