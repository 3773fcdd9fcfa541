// SPDX-License-Identifier: Apache-2.0
#include "models/training/vertex_loss.hpp"

#include "models/gnn/operands/graph_operands.hpp"
#include "models/parameters/device_copy.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

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

/// Not collective: what this rank stores of the logits.
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
  if (store.facts().label_kind == graph::LabelKind::single) {
    targets.classes =
        to_vector<std::int32_t>("orthant::models::classes", store.read_labels(order, block.stored_rows));
    return targets;
  }
  auto const indicator = store.read_label_indicator(order, block.stored_rows, block.columns);
  targets.indicator = runtime::Matrix<std::int8_t>("orthant::models::label_indicator", splits.size(),
                                                   static_cast<std::size_t>(block.columns.size()));
  auto const mirror = Kokkos::create_mirror_view(targets.indicator);
  std::copy(indicator.begin(), indicator.end(), mirror.data());
  Kokkos::deep_copy(targets.indicator, mirror);
  return targets;
}

/// Each rank counts its share of the vertices. Collective over the grid's world.
template<class T>
runtime::Vector<T> balanced_weights(pmm::ProcessGrid const& grid, graph::GraphStore const& store) {
  auto const& world = grid.world();
  auto const& facts = store.facts();
  std::vector<double> counts(static_cast<std::size_t>(facts.num_classes));
  runtime::together(world, [&] {
    auto const rows = runtime::balanced_range(facts.num_vertices, world.size(), world.rank());
    auto const labels = store.read_labels(graph::Order::p1, rows);
    auto const is_trained = store.read_mask(graph::Split::train, graph::Order::p1, rows);
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (is_trained[i] != 0 && labels[i] >= 0) counts[static_cast<std::size_t>(labels[i])] += 1;
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

void require_fitting_labels(graph::GraphStore const& store, VertexLossSettings const& settings) {
  if (store.facts().label_kind != graph::LabelKind::multi) return;
  for (auto const& [option, is_asked] :
       {std::pair("--class-weights balanced", settings.class_weights == ClassWeights::balanced),
        std::pair("--label-smoothing", settings.label_smoothing > 0)})
    if (is_asked)
      runtime::throw_user("{} needs one class per vertex; vertices of {} may have several", option,
                          store.name());
}

Scores scores_of(std::span<pmm::GroupScore const> groups) {
  Scores scores;
  for (std::size_t s = 0; s < groups.size(); ++s)
    scores.at(s) = SplitScore{groups[s], std::nullopt, std::nullopt};
  return scores;
}

pmm::LossKind loss_kind_of(graph::StoreFacts const& facts) {
  return facts.label_kind == graph::LabelKind::single ? pmm::LossKind::softmax : pmm::LossKind::binary;
}

void plan_vertex_loss_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts,
                             pmm::Placement const& logits) {
  auto const block = step.block(logits);
  auto const num_rows = block.stored_rows.size();
  auto const kind = loss_kind_of(facts);
  step.add_array("orthant::models::splits", num_rows);
  if (kind == pmm::LossKind::softmax)
    step.add_array("orthant::models::classes", num_rows * std::int64_t{sizeof(std::int32_t)});
  else
    step.add_array("orthant::models::label_indicator", num_rows * block.columns.size());
  pmm::plan_loss_arrays(step, logits, kind);
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
  require_fitting_labels(store, settings);
  auto const targets = read_vertex_targets(grid, store, logits);
  pmm::RowLoss<T> loss(grid, logits, loss_kind_of(store.facts()), num_splits);
  loss.set_targets(targets);
  if (loss.num_rows(pmm::loss_row_group) == 0)
    runtime::throw_user(
        "{}: the training mask is empty: no training vertex has a label; partition it with another "
        "--split NAME or with --random-split a,b,c",
        store.name());
  if (settings.class_weights == ClassWeights::balanced)
    loss.set_class_weights(balanced_weights<T>(grid, store));
  if (settings.label_smoothing > 0) loss.set_label_smoothing(settings.label_smoothing);
  return loss;
}

template pmm::RowLoss<float> make_vertex_loss(pmm::ProcessGrid const&, graph::GraphStore const&,
                                              pmm::Placement const&, VertexLossSettings const&);
template pmm::RowLoss<double> make_vertex_loss(pmm::ProcessGrid const&, graph::GraphStore const&,
                                               pmm::Placement const&, VertexLossSettings const&);

} // namespace orthant::models
