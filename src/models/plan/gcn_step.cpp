// SPDX-License-Identifier: Apache-2.0
#include "models/plan/gcn_step.hpp"

#include "models/core/rms_norm.hpp"
#include "models/core/vertex_loss.hpp"
#include "models/plan/gcn_parameters.hpp"
#include "models/plan/gcn_products.hpp"
#include "models/training/parameter_update.hpp"
#include "pmm/rows/bias.hpp"

namespace orthant::models {
namespace {

/// Lists the parts of one epoch.
class EpochList {
 public:
  EpochList(pmm::StepPlan& step, GcnPlan const& plan, GcnSettings const& settings,
            GcnEpochTraits const& traits)
      : step_(step),
        plan_(plan),
        settings_(settings),
        traits_(traits),
        has_owners_(plan.layers.front().owners.has_value()),
        num_parameters_(length_of_all(parameters_of(plan, settings))) {}

  void forward() {
    pmm::plan_flat_gather(step_, num_parameters_);
    if (plan_.projection) {
      step_.begin_layer(projection_layer);
      plan_product(step_, products_of(*plan_.projection, settings_.wire).product,
                   traits_.num_feature_nonzeros(plan_));
    }
    for (std::size_t l = 0; l < plan_.layers.size(); ++l)
      forward_layer(l);
    if (plan_.head) {
      step_.begin_layer(head_layer());
      plan_product(step_, products_of(*plan_.head, settings_.wire).product);
    }
  }

  void backward() {
    if (plan_.head) {
      step_.begin_layer(head_layer());
      backward_linear(*plan_.head, std::nullopt, true);
    }
    for (auto l = plan_.layers.size(); l-- > 0;)
      backward_layer(l);
    if (plan_.projection) {
      step_.begin_layer(projection_layer);
      backward_linear(*plan_.projection, traits_.num_feature_nonzeros(plan_),
                      plan_.features().layout.storage == pmm::Storage::flat_sharded);
    }
    pmm::plan_flat_sum(step_, num_parameters_);
  }

 private:
  static constexpr std::int64_t projection_layer = -1;
  [[nodiscard]] std::int64_t head_layer() const { return static_cast<std::int64_t>(plan_.layers.size()); }

  /// Of what layer l reads.
  [[nodiscard]] std::optional<std::int64_t> entries_of_input(std::size_t l) const {
    return l == 0 && !plan_.projection ? traits_.num_feature_nonzeros(plan_) : std::nullopt;
  }

  void forward_layer(std::size_t l) {
    auto const& layer = plan_.layers[l];
    auto const products = products_of(layer, settings_.formats());
    auto const entries = entries_of_adjacency(layer);
    step_.begin_layer(layer.index);
    plan_residual(layer, false);
    if (layer.aggregates_first) {
      if (l > 0 || !traits_.keeps_first_aggregate) aggregate(layer, entries);
      plan_product(step_, products.transform);
    } else {
      plan_product(step_, products.transform, entries_of_input(l));
      aggregate(layer, entries);
    }
    if (is_normalised(plan_, settings_, l)) plan_rms_norm(step_, layer.output);
  }

  void backward_layer(std::size_t l) {
    auto const& layer = plan_.layers[l];
    auto const products = products_of(layer, settings_.formats());
    auto const entries = entries_of_adjacency(layer);
    auto const has_input_gradient = needs_input_gradient(plan_, l);
    step_.begin_layer(layer.index);
    plan_residual(layer, true);
    if (is_normalised(plan_, settings_, l)) {
      plan_rms_norm(step_, layer.output); // a number per row, as forward
      plan_column_sums(layer.output);
    }
    if (settings_.has_bias) plan_column_sums(layer.output);
    if (layer.aggregates_first) {
      if (has_input_gradient) plan_product(step_, products.transform_back);
      plan_product(step_, products.weight_back);
      if (has_input_gradient) aggregate_back(layer, entries);
    } else {
      aggregate_back(layer, entries);
      if (has_input_gradient) plan_product(step_, products.transform_back);
      plan_product(step_, products.weight_back, entries_of_input(l));
    }
  }

  [[nodiscard]] std::int64_t entries_of_adjacency(GcnLayerPlan const& layer) const {
    if (layer.owners && layer.owners->kept) return layer.owners->kept->num_nonzeros;
    return traits_.num_nonzeros(layer.adjacency);
  }
  [[nodiscard]] GcnLayerAggregates between_owners(GcnLayerPlan const& layer) const {
    if (auto const& kept = layer.owners->kept)
      return aggregates_of(layer, kept->cells, settings_.formats(), kept->needed);
    return aggregates_of(layer, traits_.cells ? *traits_.cells : cells_of(step_, layer), settings_.formats(),
                         traits_.needed);
  }
  void aggregate(GcnLayerPlan const& layer, std::int64_t entries) {
    if (layer.owners) return plan_aggregate(step_, between_owners(layer).forward, entries);
    plan_product(step_, products_of(layer, settings_.formats()).aggregate, entries);
  }
  void aggregate_back(GcnLayerPlan const& layer, std::int64_t entries) {
    if (layer.owners) return plan_aggregate(step_, between_owners(layer).backward, entries);
    plan_product(step_, products_of(layer, settings_.formats()).aggregate_back, entries);
  }

  /// The gradient of a number per column. Between owners it is an addend.
  void plan_column_sums(pmm::Placement const& gradient) {
    if (!has_owners_) plan_sum_rows(step_, gradient);
  }

  void plan_residual(GcnLayerPlan const& layer, bool is_backward) {
    if (layer.is_residual && !layer.owners) plan_relayout(step_, traits_.residual_sizes(layer, is_backward));
  }

  void backward_linear(LinearPlan const& linear, std::optional<std::int64_t> entries,
                       bool has_input_gradient) {
    auto const products = products_of(linear, settings_.wire);
    if (settings_.has_bias) plan_column_sums(linear.output);
    if (has_input_gradient) plan_product(step_, products.input_back);
    plan_product(step_, products.weight_back, entries);
  }

  pmm::StepPlan& step_;
  GcnPlan const& plan_;
  GcnSettings const& settings_;
  GcnEpochTraits const& traits_;
  bool has_owners_;
  std::int64_t num_parameters_; // in one array
};

} // namespace

std::int64_t num_adjacency_entries(graph::StoreFacts const& facts) {
  return facts.num_entries + (facts.adds_self_loops() ? facts.num_vertices - facts.num_self_loops : 0);
}

std::int64_t even_share(std::int64_t count, pmm::GridShape const& shape, pmm::Layout const& layout) {
  auto const blocks = std::int64_t{shape.size(layout.rows)} * shape.size(layout.columns);
  return (count + blocks - 1) / blocks;
}

GcnEpochTraits traits_of(graph::StoreFacts const& facts, pmm::GridShape const& shape,
                         pmm::Coordinates const& coordinates, GcnPlan const& plan,
                         GcnSettings const& settings) {
  GcnEpochTraits traits;
  traits.has_sparse_features = facts.feature_kind == graph::FeatureKind::sparse;
  traits.keeps_first_aggregate =
      keeps_first_aggregate(plan) && !traits.has_sparse_features && settings.dropout == 0;
  traits.loss = loss_kind_of(facts);
  traits.num_nonzeros = [=, in_features = facts.num_feature_entries,
                         in_adjacency = num_adjacency_entries(facts),
                         features = plan.features()](pmm::Placement const& placement) {
    return even_share(placement == features ? in_features : in_adjacency, shape, placement.layout);
  };
  traits.residual_sizes = [=, has_two_orders = facts.has_two_orders()](GcnLayerPlan const& layer,
                                                                       bool is_backward) {
    auto const orders = has_two_orders ? pmm::RowOrders::independent : pmm::RowOrders::equal;
    return is_backward ? pmm::expected_sizes(shape, coordinates, layer.output, layer.input, orders)
                       : pmm::expected_sizes(shape, coordinates, layer.input, layer.output, orders);
  };
  return traits;
}

void plan_pass(pmm::StepPlan& step, GcnPlan const& plan, GcnSettings const& settings,
               GcnEpochTraits const& traits) {
  EpochList list(step, plan, settings, traits);
  list.forward();
  pmm::plan_loss(step, plan.logits(), traits.loss, traits.counts_rows);
  list.backward();
}

void plan_epoch(pmm::StepPlan& step, GcnPlan const& plan, GcnSettings const& settings,
                GcnEpochTraits const& traits) {
  plan_pass(step, plan, settings, traits);
  plan_update(step, std::ssize(parameters_of(plan, settings)));
}

void plan_evaluation(pmm::StepPlan& step, GcnPlan const& plan, GcnSettings const& settings,
                     GcnEpochTraits const& traits) {
  EpochList(step, plan, settings, traits).forward();
  pmm::plan_scores(step, plan.logits(), traits.loss, num_splits);
}

} // namespace orthant::models
