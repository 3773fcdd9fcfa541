// SPDX-License-Identifier: Apache-2.0
#include "models/plan/gcn_settings.hpp"

#include "runtime/error.hpp"

namespace orthant::models {

Norm parse_norm(std::string_view word) {
  if (word == "rms") return Norm::rms;
  if (word == "none") return Norm::none;
  runtime::throw_user("--norm is rms or none, not '{}'", word);
}

bool is_normalised(GcnPlan const& plan, GcnSettings const& settings, std::size_t l) {
  return settings.norm == Norm::rms && is_activated(plan, l);
}

GcnShape shape_of(graph::StoreFacts const& facts, GcnSettings const& settings) {
  ORTHANT_REQUIRE(settings.num_layers() > 0, "a GCN needs a layer");
  GcnShape shape;
  shape.num_vertices = facts.num_vertices;
  auto const has_projection = settings.projected_width > 0;
  if (has_projection) shape.projected_features = facts.num_features;
  shape.widths = {has_projection ? settings.projected_width : facts.num_features};
  shape.widths.insert(shape.widths.end(), settings.hidden_widths.begin(), settings.hidden_widths.end());
  if (settings.has_head)
    shape.head_classes = facts.num_classes;
  else
    shape.widths.push_back(facts.num_classes);
  shape.has_residuals = settings.has_residuals;
  shape.has_sparse_features = facts.feature_kind == graph::FeatureKind::sparse;
  shape.features_need_gradient = settings.trains_features;
  shape.has_input_dropout = settings.input_dropout() > 0;
  shape.schedule = settings.schedule;
  shape.is_symmetric = facts.is_symmetric;
  shape.hidden_axes = settings.hidden_axes;
  return shape;
}

GcnPlan plan_gcn(graph::StoreFacts const& facts, GcnSettings const& settings) {
  auto plan = plan_gcn(shape_of(facts, settings), settings.order);
  if (settings.trains_features)
    (plan.projection ? plan.projection->input : plan.layers.front().input).layout.storage =
        pmm::Storage::flat_sharded;
  return plan;
}

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
  return plan_gcn(facts, settings);
}

} // namespace orthant::models
