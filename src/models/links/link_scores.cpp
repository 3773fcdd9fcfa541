// SPDX-License-Identifier: Apache-2.0
#include "models/links/link_scores.hpp"

#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace orthant::models {
namespace {

/// log(1 + exp(z)).
double softplus(double z) {
  return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z)));
}

/// Of all ranks, ascending. Collective.
std::vector<double> gathered(runtime::Communicator const& comm, std::span<double const> mine) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()));
  counts[static_cast<std::size_t>(comm.rank())] = std::ssize(mine);
  runtime::all_reduce(runtime::host, comm, std::span(counts));
  std::int64_t total = 0;
  for (auto const count : counts)
    total += count;
  std::vector<double> all(static_cast<std::size_t>(total));
  runtime::all_gatherv(runtime::host, comm, mine, std::span(all), std::span<std::int64_t const>(counts));
  std::ranges::sort(all);
  return all;
}

} // namespace

SplitScore score_links(runtime::Communicator const& comm, std::span<double const> positives,
                       std::span<double const> negatives) {
  std::array<double, 3> sums{static_cast<double>(positives.size() + negatives.size())};
  auto& [num_counted, num_correct, loss] = sums;
  for (auto const p : positives) {
    loss += softplus(-p);
    num_correct += p > 0 ? 1 : 0;
  }
  for (auto const q : negatives) {
    loss += softplus(q);
    num_correct += q > 0 ? 0 : 1;
  }
  runtime::all_reduce(runtime::host, comm, std::span(sums));
  SplitScore score;
  score.num_counted = static_cast<std::int64_t>(num_counted);
  score.num_correct = static_cast<std::int64_t>(num_correct);
  score.num_most_frequent = score.num_counted / 2;
  if (score.num_counted == 0) return score;
  score.loss = loss / num_counted;
  auto& ranking = score.ranking.emplace();
  if (!std::isfinite(score.loss)) return score; // nan has no place in an order

  auto const all = gathered(comm, negatives);
  auto const num_negatives = std::ssize(all);
  constexpr auto num_cuts = hits_at.size();
  std::array<double, 3 + num_cuts> found{static_cast<double>(positives.size())};
  for (auto const p : positives) {
    auto const [first, last] = std::ranges::equal_range(all, p);
    auto const num_below = first - all.begin(), num_above = all.end() - last, num_equal = last - first;
    found[1] += static_cast<double>(num_below) + 0.5 * static_cast<double>(num_equal);
    found[2] += 1 / (1 + static_cast<double>(num_above) + 0.5 * static_cast<double>(num_equal));
    for (std::size_t i = 0; i < num_cuts; ++i)
      if (num_negatives < hits_at[i] || p > all[static_cast<std::size_t>(num_negatives - hits_at[i])])
        found[3 + i] += 1;
  }
  runtime::all_reduce(runtime::host, comm, std::span(found));
  auto const num_positives = found[0];
  if (num_positives == 0) return score;
  if (num_negatives > 0) score.roc_auc = found[1] / (num_positives * static_cast<double>(num_negatives));
  ranking.mrr = found[2] / num_positives;
  for (std::size_t i = 0; i < num_cuts; ++i)
    ranking.hits[i] = found[3 + i] / num_positives;
  return score;
}

std::int64_t bytes_of_link_scores(graph::StoreFacts const& facts) {
  constexpr auto score_bytes = static_cast<std::int64_t>(sizeof(double));
  auto const most = std::max(facts.num_held_out[1], facts.num_held_out[2]);
  return 3 * most * score_bytes; // of positives and negatives, and all negatives once more
}

} // namespace orthant::models
