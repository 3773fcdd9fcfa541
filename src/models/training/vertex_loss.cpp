// SPDX-License-Identifier: Apache-2.0
#include "models/training/vertex_loss.hpp"

#include "models/gnn/operands/graph_operands.hpp"
#include "models/parameters/device_copy.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace orthant::models {
namespace {

void require_targets(graph::GraphStore const& store) {
  auto const& facts = store.facts();
  if (facts.label_kind == graph::LabelKind::none)
    runtime::throw_user(
        "{} has no labels to train on; partition it with --random-labels C or from data with labels",
        store.name());
  if (!facts.has_split)
    runtime::throw_user(
        "{} has no split into train, valid and test; partition it with --random-split a,b,c or --split NAME",
        store.name());
}

template<class T>
runtime::Matrix<T> to_matrix(char const* label, std::vector<T> const& numbers, pmm::Block const& block) {
  runtime::Matrix<T> const matrix(std::string(label), static_cast<std::size_t>(block.stored_rows.size()),
                                  static_cast<std::size_t>(block.columns.size()));
  auto const mirror = Kokkos::create_mirror_view(matrix);
  std::copy(numbers.begin(), numbers.end(), mirror.data());
  Kokkos::deep_copy(matrix, mirror);
  return matrix;
}

/// Reads the targets for this rank's block of the logits. Not collective.
pmm::RowTargets read_targets(graph::GraphStore const& store, pmm::Placement const& logits,
                             pmm::Block const& block) {
  auto const order = order_of(logits.layout.row_order);
  std::vector<std::int8_t> splits(static_cast<std::size_t>(block.stored_rows.size()), pmm::no_row_group);
  for (auto const split : {graph::Split::train, graph::Split::valid, graph::Split::test}) {
    auto const mask = store.read_mask(split, order, block.stored_rows);
    for (std::size_t i = 0; i < splits.size(); ++i)
      if (mask[i] != 0) splits[i] = static_cast<std::int8_t>(split);
  }
  pmm::RowTargets targets;
  targets.groups = to_vector<std::int8_t>("orthant::models::splits", splits);
  if (store.facts().label_kind == graph::LabelKind::single)
    targets.classes =
        to_vector<std::int32_t>("orthant::models::classes", store.read_labels(order, block.stored_rows));
  else if (store.facts().label_kind == graph::LabelKind::real)
    targets.numbers = to_matrix("orthant::models::numbers",
                                store.read_targets(order, block.stored_rows, block.columns), block);
  else
    targets.indicator = to_matrix("orthant::models::label_indicator",
                                  store.read_label_indicator(order, block.stored_rows, block.columns), block);
  return targets;
}

/// Computes the class weights; each rank counts its share of the vertices. Collective over the grid's world.
template<class T>
runtime::Vector<T> balanced_weights(pmm::ProcessGrid const& grid, graph::GraphStore const& store) {
  auto const& world = grid.world();
  auto const& facts = store.facts();
  std::vector<double> counts(static_cast<std::size_t>(facts.num_classes));
  runtime::together(world, [&] {
    auto const rows = runtime::balanced_range(facts.num_vertices, world.size(), world.rank());
    auto const is_trained = store.read_mask(graph::Split::train, graph::Order::p1, rows);
    if (facts.label_kind == graph::LabelKind::single) {
      auto const labels = store.read_labels(graph::Order::p1, rows);
      for (std::size_t i = 0; i < labels.size(); ++i)
        if (is_trained[i] != 0 && labels[i] >= 0) counts[static_cast<std::size_t>(labels[i])] += 1;
      return;
    }
    auto const indicator = store.read_label_indicator(graph::Order::p1, rows, {0, facts.num_classes});
    for (std::size_t k = 0; k < indicator.size(); ++k)
      if (is_trained[k / counts.size()] != 0 && indicator[k] == 1) counts[k % counts.size()] += 1;
  });
  runtime::all_reduce(runtime::host, world, std::span(counts));
  auto const sum = std::reduce(counts.begin(), counts.end());
  auto const num_present = static_cast<double>(std::ranges::count_if(counts, [](double n) { return n > 0; }));
  std::vector<T> weights;
  for (auto const count : counts)
    weights.push_back(static_cast<T>(count > 0 ? sum / (num_present * count) : 1));
  return to_vector<T>("orthant::models::class_weights", weights);
}

} // namespace

ClassWeights parse_class_weights(std::string_view word) {
  if (word == "none") return ClassWeights::none;
  if (word == "balanced") return ClassWeights::balanced;
  runtime::throw_user("class weights are none or balanced, not '{}'", word);
}

LossFunction parse_loss_function(std::string_view word) {
  if (word == "auto" || word == "cross-entropy") return LossFunction::automatic;
  if (word == "binary") return LossFunction::binary;
  if (word == "focal") return LossFunction::focal;
  if (word == "mse") return LossFunction::squared_error;
  if (word == "mae") return LossFunction::absolute_error;
  if (word == "huber") return LossFunction::huber;
  runtime::throw_user("--loss is auto, cross-entropy, binary, focal, mse, mae or huber, not '{}'", word);
}

Scores scores_of(std::span<pmm::GroupScore const> groups) {
  Scores scores;
  for (std::size_t s = 0; s < groups.size(); ++s)
    scores.at(s) = SplitScore{groups[s], std::nullopt, std::nullopt};
  return scores;
}

pmm::LossKind loss_kind_of(graph::StoreFacts const& facts, bool trains_entries) {
  if (facts.label_kind == graph::LabelKind::real) return pmm::LossKind::real;
  if (facts.label_kind != graph::LabelKind::single) return pmm::LossKind::binary;
  return trains_entries ? pmm::LossKind::one_hot : pmm::LossKind::softmax;
}

void plan_target_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::Placement const& logits) {
  auto const block = step.block(logits);
  auto const num_rows = block.stored_rows.size();
  auto const kind = loss_kind_of(facts);
  step.add_array("orthant::models::splits", num_rows);
  if (kind == pmm::LossKind::softmax)
    step.add_array("orthant::models::classes", num_rows * std::int64_t{sizeof(std::int32_t)});
  else if (kind == pmm::LossKind::real)
    step.add_array("orthant::models::numbers",
                   num_rows * block.columns.size() * std::int64_t{sizeof(double)});
  else
    step.add_array("orthant::models::label_indicator", num_rows * block.columns.size());
}

void plan_vertex_loss_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts,
                             pmm::Placement const& logits) {
  plan_target_arrays(step, facts, logits);
  pmm::plan_loss_arrays(step, logits, loss_kind_of(facts));
}

pmm::RowTargets read_vertex_targets(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                    pmm::Placement const& logits) {
  require_targets(store);
  return runtime::together(grid.group(),
                           [&] { return read_targets(store, logits, pmm::block_of(grid, logits)); });
}

template<class T>
pmm::RowLoss<T> make_vertex_loss(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                 pmm::Placement const& logits, VertexLossSettings const& settings) {
  auto const targets = read_vertex_targets(grid, store, logits);
  pmm::RowLoss<T> loss(grid, logits, loss_kind_of(store.facts(), settings.trains_entries()), num_splits);
  loss.set_targets(targets);
  if (loss.num_rows(pmm::loss_row_group) == 0)
    runtime::throw_user(
        "{}: the training mask is empty: no training vertex has a label; partition it with another "
        "--split NAME or with --random-split a,b,c",
        store.name());
  if (settings.class_weights == ClassWeights::balanced)
    loss.set_class_weights(balanced_weights<T>(grid, store));
  if (settings.label_smoothing > 0) loss.set_label_smoothing(settings.label_smoothing);
  if (settings.function == LossFunction::focal) loss.set_focal_gamma(settings.focal_gamma);
  if (settings.function == LossFunction::absolute_error) loss.set_number_loss(pmm::NumberLoss::absolute);
  if (settings.function == LossFunction::huber) loss.set_number_loss(pmm::NumberLoss::huber);
  return loss;
}

template pmm::RowLoss<float> make_vertex_loss(pmm::ProcessGrid const&, graph::GraphStore const&,
                                              pmm::Placement const&, VertexLossSettings const&);
template pmm::RowLoss<double> make_vertex_loss(pmm::ProcessGrid const&, graph::GraphStore const&,
                                               pmm::Placement const&, VertexLossSettings const&);

namespace {

constexpr std::int8_t is_unknown = -1;

/// AUC of one class, from scores paired with whether the vertex has the class; nullopt unless some have it and some
/// have not. Sorts `scores`.
std::optional<double> area(std::vector<std::pair<double, bool>>& scores) {
  std::ranges::sort(scores, {}, &std::pair<double, bool>::first);
  auto num_wins = 0.0; // twice the number of pairs in the right order; exact below 2^53
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

} // namespace

RocAuc::RocAuc(pmm::ProcessGrid const& grid, graph::GraphStore const& store, pmm::Placement const& logits)
    : grid_(grid),
      column_axes_(logits.layout.columns),
      is_single_(store.facts().label_kind == graph::LabelKind::single),
      num_classes_(store.facts().num_classes) {
  auto const order = order_of(logits.layout.row_order);
  auto const block = pmm::block_of(grid, logits);
  auto const rows = block.stored_rows;
  num_rows_ = static_cast<std::size_t>(rows.size());
  classes_ = block.columns;
  runtime::together(grid.world(), [&] {
    for (auto const split : {graph::Split::train, graph::Split::valid, graph::Split::test})
      masks_[static_cast<std::size_t>(split)] = store.read_mask(split, order, rows);
    if (!is_single_) {
      has_it_ = store.read_label_indicator(order, rows, classes_);
      return;
    }
    auto const labels = store.read_labels(order, rows);
    has_it_.reserve(num_rows_ * static_cast<std::size_t>(classes_.size()));
    for (auto const label : labels)
      for (auto j = classes_.begin; j < classes_.end; ++j)
        has_it_.push_back(label < 0 ? is_unknown : static_cast<std::int8_t>(label == j));
  });
}

/// Replaces rows of logits by their softmax. Collective over the axes that the columns are split over.
void RocAuc::softmax(std::vector<double>& scores) const {
  auto const width = static_cast<std::size_t>(classes_.size());
  std::vector<double> largest(num_rows_, -std::numeric_limits<double>::infinity()), sums(num_rows_);
  auto const for_each = [&](auto&& visit) {
    for (std::size_t i = 0; i < num_rows_; ++i)
      for (std::size_t j = 0; j < width; ++j)
        visit(i, scores[i * width + j]);
  };
  for_each([&](std::size_t i, double logit) { largest[i] = std::max(largest[i], logit); });
  if (column_axes_ != pmm::AxisSet())
    runtime::all_reduce(runtime::host, grid_.over(column_axes_), std::span(largest), runtime::Reduction::max);
  for_each([&](std::size_t i, double& score) { sums[i] += score = std::exp(score - largest[i]); });
  if (column_axes_ != pmm::AxisSet())
    runtime::all_reduce(runtime::host, grid_.over(column_axes_), std::span(sums));
  for_each([&](std::size_t i, double& score) { score /= sums[i]; });
}

/// Gathers the scores of one class per rank: those of class first + r on rank r. Collective.
std::vector<std::pair<double, bool>> RocAuc::bring(std::vector<double> const& scores, std::size_t split,
                                                   std::int64_t first, bool contributes) const {
  auto const& world = grid_.world();
  auto const num_ranks = static_cast<std::size_t>(world.size());
  auto const width = static_cast<std::size_t>(classes_.size());
  std::vector<double> sent, received;
  std::vector<std::int64_t> sent_labels, received_labels, counts(num_ranks), arriving(num_ranks);
  for (std::size_t rank = 0; rank < num_ranks && contributes; ++rank) {
    auto const label = first + static_cast<std::int64_t>(rank);
    if (label < classes_.begin || label >= classes_.end) continue;
    auto const j = static_cast<std::size_t>(label - classes_.begin);
    for (std::size_t i = 0; i < num_rows_; ++i) {
      auto const has_it = has_it_[i * width + j];
      if (masks_[split][i] == 0 || has_it == is_unknown) continue;
      sent.push_back(scores[i * width + j]);
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
  std::vector<std::pair<double, bool>> brought(total);
  for (std::size_t i = 0; i < total; ++i)
    brought[i] = {received[i], received_labels[i] == 1};
  return brought;
}

template<class T>
Areas RocAuc::operator()(pmm::DistMatrix<T> const& logits) const {
  auto const width = static_cast<std::size_t>(classes_.size());
  auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), logits.local());
  std::vector<double> scores(num_rows_ * width);
  for (std::size_t i = 0; i < num_rows_; ++i)
    for (std::size_t j = 0; j < width; ++j)
      scores[i * width + j] = static_cast<double>(numbers(i, j));
  if (is_single_) softmax(scores);
  auto const& world = grid_.world();
  auto const contributes = logits.is_first_replica() && grid_.coordinate(pmm::Axis::data) == 0;
  Areas result;
  for (std::size_t split = 0; split < result.size(); ++split) {
    std::array<double, 2> sum{}; // sum of the areas, and their number
    for (std::int64_t first = 0; first < num_classes_; first += world.size()) {
      auto of_class = bring(scores, split, first, contributes);
      if (auto const found = area(of_class)) {
        sum[0] += *found;
        sum[1] += 1;
      }
    }
    runtime::all_reduce(runtime::host, world, std::span(sum));
    if (sum[1] > 0) result[split] = sum[0] / sum[1];
  }
  return result;
}

std::int64_t bytes_of_areas(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                            pmm::Placement const& logits) {
  constexpr std::int64_t of_score = sizeof(double) + sizeof(std::int8_t), of_pair = 48, num_masks = 3;
  auto const block = pmm::block_of(grid, logits);
  auto const num_rows = block.stored_rows.size();
  return num_rows * (block.columns.size() * of_score + num_masks) +
         std::ranges::max(facts.split_sizes) * of_pair;
}

template Areas RocAuc::operator()(pmm::DistMatrix<float> const&) const;
template Areas RocAuc::operator()(pmm::DistMatrix<double> const&) const;

} // namespace orthant::models
