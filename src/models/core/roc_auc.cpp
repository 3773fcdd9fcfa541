// SPDX-License-Identifier: Apache-2.0
#include "models/core/roc_auc.hpp"

#include "models/core/vertex_order.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace orthant::models {
namespace {

constexpr std::int8_t is_unknown = -1;

/// This rank's rows and columns of the scores: what is judged, and by which labels.
struct ScoredBlock {
  std::size_t num_rows = 0;
  runtime::Range classes;
  std::vector<double> scores;      // [rows x classes]
  std::vector<std::int8_t> has_it; // [rows x classes] 1, 0 or is_unknown
  std::array<std::vector<std::uint8_t>, 3> masks;
};

/// Rows of logits become those of their softmax. Collective over the axes that the columns are split over.
void softmax(pmm::ProcessGrid const& grid, pmm::AxisSet column_axes, ScoredBlock& block) {
  auto const width = static_cast<std::size_t>(block.classes.size());
  std::vector<double> largest(block.num_rows, -std::numeric_limits<double>::infinity()), sums(block.num_rows);
  auto const for_each = [&](auto&& visit) {
    for (std::size_t i = 0; i < block.num_rows; ++i)
      for (std::size_t j = 0; j < width; ++j)
        visit(i, block.scores[i * width + j]);
  };
  for_each([&](std::size_t i, double logit) { largest[i] = std::max(largest[i], logit); });
  if (column_axes != pmm::AxisSet())
    runtime::all_reduce(runtime::host, grid.over(column_axes), std::span(largest), runtime::Reduction::max);
  for_each([&](std::size_t i, double& score) { sums[i] += score = std::exp(score - largest[i]); });
  if (column_axes != pmm::AxisSet())
    runtime::all_reduce(runtime::host, grid.over(column_axes), std::span(sums));
  for_each([&](std::size_t i, double& score) { score /= sums[i]; });
}

/// Of scores and whether their vertices have the class; none unless some have it and some have not. Sorts them.
std::optional<double> area(std::vector<std::pair<double, bool>>& scores) {
  std::ranges::sort(scores, {}, &std::pair<double, bool>::first);
  auto num_wins = 0.0; // pairs in the right order, twice; exact below 2^53
  std::int64_t num_below = 0, num_positive = 0;
  for (auto begin = scores.begin(); begin != scores.end();) {
    std::int64_t positive = 0, negative = 0;
    auto end = begin;
    for (; end != scores.end() && end->first == begin->first; ++end)
      ++(end->second ? positive : negative);
    num_wins += static_cast<double>(positive) * static_cast<double>(2 * num_below + negative);
    num_below += negative;
    num_positive += positive;
    begin = end;
  }
  if (num_below == 0 || num_positive == 0) return std::nullopt;
  return num_wins / (2.0 * static_cast<double>(num_below) * static_cast<double>(num_positive));
}

/// Brings the scores of one class per rank together: those of first + r on rank r. Collective.
std::vector<std::pair<double, bool>> bring(runtime::Communicator const& world, ScoredBlock const& block,
                                           std::size_t split, std::int64_t first, bool contributes) {
  auto const num_ranks = static_cast<std::size_t>(world.size());
  auto const width = static_cast<std::size_t>(block.classes.size());
  std::vector<double> sent, received;
  std::vector<std::int64_t> sent_labels, received_labels, counts(num_ranks), arriving(num_ranks);
  for (std::size_t rank = 0; rank < num_ranks && contributes; ++rank) {
    auto const label = first + static_cast<std::int64_t>(rank);
    if (label < block.classes.begin || label >= block.classes.end) continue;
    auto const j = static_cast<std::size_t>(label - block.classes.begin);
    for (std::size_t i = 0; i < block.num_rows; ++i) {
      auto const has_it = block.has_it[i * width + j];
      if (block.masks[split][i] == 0 || has_it == is_unknown) continue;
      sent.push_back(block.scores[i * width + j]);
      sent_labels.push_back(has_it);
      ++counts[rank];
    }
  }
  runtime::all_to_all(runtime::host, world, counts, arriving);
  std::size_t total = 0;
  for (auto const count : arriving)
    total += static_cast<std::size_t>(count);
  received.resize(total);
  received_labels.resize(total);
  runtime::all_to_allv(runtime::host, world, sent, counts, received, arriving);
  runtime::all_to_allv(runtime::host, world, sent_labels, counts, received_labels, arriving);
  std::vector<std::pair<double, bool>> scores(total);
  for (std::size_t i = 0; i < total; ++i)
    scores[i] = {received[i], received_labels[i] == 1};
  return scores;
}

template<class T>
ScoredBlock read_block(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                       pmm::DistMatrix<T> const& logits) {
  auto const order = order_of(logits.placement().layout.row_order);
  auto const rows = logits.block().stored_rows;
  ScoredBlock block;
  block.num_rows = static_cast<std::size_t>(rows.size());
  block.classes = logits.block().columns;
  auto const width = static_cast<std::size_t>(block.classes.size());
  auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), logits.local());
  block.scores.resize(block.num_rows * width);
  for (std::size_t i = 0; i < block.num_rows; ++i)
    for (std::size_t j = 0; j < width; ++j)
      block.scores[i * width + j] = static_cast<double>(numbers(i, j));
  auto const is_single = store.facts().label_kind == graph::LabelKind::single;
  runtime::together(grid.world(), [&] {
    for (auto const split : {graph::Split::train, graph::Split::valid, graph::Split::test})
      block.masks[static_cast<std::size_t>(split)] = store.read_mask(split, order, rows);
    if (!is_single) {
      block.has_it = store.read_label_indicator(order, rows, block.classes);
      return;
    }
    auto const labels = store.read_labels(order, rows);
    block.has_it.resize(block.scores.size());
    for (std::size_t i = 0; i < block.num_rows; ++i)
      for (std::size_t j = 0; j < width; ++j) {
        auto const label = block.classes.begin + static_cast<std::int64_t>(j);
        block.has_it[i * width + j] =
            labels[i] < 0 ? is_unknown : static_cast<std::int8_t>(labels[i] == label);
      }
  });
  if (is_single) softmax(grid, logits.placement().layout.columns, block);
  return block;
}

} // namespace

template<class T>
std::array<std::optional<double>, 3> roc_auc(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                             pmm::DistMatrix<T> const& logits) {
  auto const& world = grid.world();
  auto const block = read_block(grid, store, logits);
  auto const contributes = logits.is_first_replica() && grid.coordinate(pmm::Axis::data) == 0;
  std::array<std::optional<double>, 3> result;
  for (std::size_t split = 0; split < result.size(); ++split) {
    std::array<double, 2> sum{}; // of the areas, and their number
    for (std::int64_t first = 0; first < store.facts().num_classes; first += world.size()) {
      auto scores = bring(world, block, split, first, contributes);
      if (auto const of_class = area(scores)) {
        sum[0] += *of_class;
        sum[1] += 1;
      }
    }
    runtime::all_reduce(runtime::host, world, std::span(sum));
    if (sum[1] > 0) result[split] = sum[0] / sum[1];
  }
  return result;
}

template std::array<std::optional<double>, 3> roc_auc(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                      pmm::DistMatrix<float> const&);
template std::array<std::optional<double>, 3> roc_auc(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                      pmm::DistMatrix<double> const&);

} // namespace orthant::models
