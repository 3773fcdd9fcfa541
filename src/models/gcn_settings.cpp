// SPDX-License-Identifier: Apache-2.0
#include "models/gcn_settings.hpp"

#include "runtime/error.hpp"

namespace orthant::models {
namespace {

std::vector<std::int64_t> widths_of(graph::StoreFacts const& facts, GcnSettings const& settings) {
  std::vector<std::int64_t> widths{facts.num_features};
  widths.insert(widths.end(), settings.hidden_widths.begin(), settings.hidden_widths.end());
  widths.push_back(facts.num_classes);
  return widths;
}

} // namespace

GcnPlan plan_gcn(graph::GraphStore const& store, GcnSettings const& settings) {
  auto const& facts = store.facts();
  if (facts.feature_kind == graph::FeatureKind::none)
    runtime::throw_user(
        "{} has no features; partition it with --random-features D or from data with features", store.name());
  if (facts.label_kind == graph::LabelKind::none)
    runtime::throw_user(
        "{} has no labels to train on; partition it with --random-labels C or from data with labels",
        store.name());
  auto const is_sparse = facts.feature_kind == graph::FeatureKind::sparse;
  if (is_sparse && settings.trains_features)
    runtime::throw_user("{}: sparse features cannot be trained; leave out --trainable-features",
                        store.name());
  GcnShape shape;
  shape.num_vertices = facts.num_vertices;
  shape.widths = widths_of(facts, settings);
  shape.has_sparse_features = is_sparse;
  shape.features_need_gradient = settings.trains_features;
  shape.has_input_dropout = settings.dropout > 0;
  auto plan = plan_gcn(shape, settings.order);
  if (settings.trains_features) plan.layers.front().input.layout.storage = pmm::Storage::flat_sharded;
  return plan;
}

} // namespace orthant::models
