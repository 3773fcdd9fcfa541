// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/network_step.hpp"

#include "models/gnn/operands/trained_features.hpp"
#include "models/gnn/plan/attention_step.hpp"
#include "models/gnn/plan/gnn_model.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "models/gnn/plan/relation_step.hpp"
#include "models/layers/propagation_terms.hpp"
#include "models/training/parameter_update.hpp"
#include "models/training/vertex_loss.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "pmm/rows/bias.hpp"

namespace orthant::models {
namespace {

/// Lists the parts of one epoch.
class EpochList {
 public:
  /// `trains`: a training pass, with dropout.
  EpochList(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
            NetworkEpochTraits const& traits, bool trains)
      : step_(step),
        plan_(plan),
        settings_(settings),
        traits_(traits),
        pass_(trains ? Pass::training : Pass::evaluation),
        drops_out_(trains && settings.dropout > 0),
        drops_coefficients_(trains && settings.attention_dropout > 0),
        has_owners_(plan.layers.front().owners.has_value()),
        format_(settings.operand_format),
        num_gathered_(traits.num_own_features(step, plan)),
        num_parameters_(length_of_all(parameters_of(plan, settings))) {}

  void forward() {
    pmm::plan_flat_gather(step_, num_parameters_);
    plan_dropped_edges(step_, plan_, traits_, pass_ == Pass::training);
    if (num_gathered_) plan_gather_features(step_, plan_.features(), *num_gathered_);
    if (!plan_.projection && drops_out_) drop_features();
    if (plan_.projection) {
      step_.begin_layer(projection_layer);
      plan_product(step_, products_of(*plan_.projection, settings_.formats()).product,
                   traits_.num_feature_nonzeros(plan_));
      if (settings_.has_bias) pmm::plan_add_bias(step_, plan_.projection->output, format_);
    }
    for (std::size_t l = 0; l < plan_.layers.size(); ++l) {
      forward_layer(l);
      plan_jump_take(step_, plan_, traits_, l);
    }
    if (plan_.head) {
      step_.begin_layer(head_layer());
      plan_jump_join_last(step_, plan_);
      plan_product(step_, products_of(*plan_.head, settings_.formats()).product);
      if (settings_.has_bias) pmm::plan_add_bias(step_, plan_.head->output);
      plan_jump_logits(step_, plan_);
    }
  }

  void backward() {
    if (plan_.head) {
      step_.begin_layer(head_layer());
      backward_linear(*plan_.head, std::nullopt, true);
      plan_jump_start_backward(step_, plan_);
    }
    for (auto l = plan_.layers.size(); l-- > 0;)
      backward_layer(l);
    if (plan_.projection) {
      step_.begin_layer(projection_layer);
      backward_linear(*plan_.projection, traits_.num_feature_nonzeros(plan_), settings_.trains_features);
    }
    if (settings_.trains_features && !plan_.projection && drops_out_) drop_features();
    if (num_gathered_) plan_spread_gradient(step_, plan_.stored_features(), *num_gathered_, format_);
    if (settings_.trains_features && !num_gathered_ && !plan_.projection && format_ == runtime::Wire::native)
      pmm::plan_copy(step_, plan_.features()); // 16-bit gradients are converted instead
    if (settings_.num_fixed_rows)
      step_.add_pass(
          {"clear_fixed_rows", 0, step_.scalar_bytes(step_.block(plan_.stored_features()).num_stored)});
    pmm::plan_flat_sum(step_, num_parameters_);
  }

 private:
  static constexpr std::int64_t projection_layer = -1;
  [[nodiscard]] std::int64_t head_layer() const { return static_cast<std::int64_t>(plan_.layers.size()); }

  void drop_features() {
    auto const entries = traits_.num_feature_nonzeros(plan_);
    if (!entries) return plan_apply_dropout(step_, plan_.features(), format_);
    for (auto const rows : {CsrRows::vertices, CsrRows::features})
      plan_apply_dropout_to_entries(step_, plan_.features(), rows, *entries, traits_.features_have_values);
  }

  /// Non-zeros of layer l's input if it is sparse.
  [[nodiscard]] std::optional<std::int64_t> entries_of_input(std::size_t l) const {
    return l == 0 && !plan_.projection ? traits_.num_feature_nonzeros(plan_) : std::nullopt;
  }

  void forward_layer(std::size_t l) {
    auto const& layer = plan_.layers[l];
    auto const products = products_of(layer, settings_.formats());
    auto const entries = entries_of_adjacency(layer);
    step_.begin_layer(layer.index);
    if (plan_.teleport && plan_.teleport->first_layer == l) begin_teleport();
    plan_residual_start(step_, layer, traits_, settings_.formats(), entries_of_input(l));
    if (layer.relations) {
      if (layer.has_self_weight) move_self(layer, false);
      plan_relation_layer(step_, layer, traits_, settings_.wire, drops_coefficients_);
      if (layer.has_self_weight) plan_product(step_, self_products_of(layer, settings_.formats()).transform);
    } else if (layer.kind == LayerKind::dense) {
      plan_product(step_, products.transform, entries_of_input(l));
    } else if (layer.kind == LayerKind::propagation) {
      aggregate(layer, entries);
    } else if (layer.aggregates_first) {
      if (l > 0 || !traits_.keeps_first_aggregate) {
        if (layer.has_self_weight) move_self(layer, false);
        aggregate(layer, entries);
      }
      if (layer.map_share) plan_map_identity(step_, layer.weight);
      plan_product(step_, products.transform);
      if (layer.has_self_weight) plan_product(step_, self_products_of(layer, settings_.formats()).transform);
    } else {
      if (layer.has_self_weight) {
        plan_product(step_, self_products_of(layer, settings_.formats()).transform, entries_of_input(l));
        move_self(layer, false);
      }
      plan_product(step_, products.transform, entries_of_input(l));
      aggregate(layer, entries);
      if (layer.has_self_weight) plan_addition(layer.output);
    }
    if (is_activated(plan_, l))
      plan_activation(step_, activation_step(l));
    else if (adds_bias(layer))
      pmm::plan_add_bias(step_, layer.output, settings_.formats().of_output(layer.makes_logits));
    if (!layer.second) return;
    plan_product(step_, products_of(*layer.second, settings_.formats()).product);
    plan_activation(step_, second_step(layer));
  }

  [[nodiscard]] ActivationStep activation_step(std::size_t l) const {
    auto const& layer = plan_.layers[l];
    return {.parts = activation_of(plan_, settings_, l),
            .z = layer.output,
            .pass = pass_,
            .has_bias = adds_bias(layer),
            .draws_mask = drops_out_ && layer.drops_output,
            .is_residual = layer.is_residual && !layer.second,
            .copies_gradient = has_residual_in_place(layer),
            .has_partial_gradients = has_owners_,
            .format = format_};
  }
  /// The activation of a perceptron's second layer.
  [[nodiscard]] ActivationStep second_step(NetworkLayerPlan const& layer) const {
    return {.parts = activation_of_second(settings_),
            .z = layer.second->output,
            .has_bias = settings_.has_bias,
            .draws_mask = drops_out_,
            .is_residual = layer.is_residual,
            .has_partial_gradients = has_owners_,
            .format = format_};
  }

  void backward_layer(std::size_t l) {
    auto const& layer = plan_.layers[l];
    auto const products = products_of(layer, settings_.formats());
    auto const entries = entries_of_adjacency(layer);
    auto const has_input_gradient = needs_input_gradient(plan_, l);
    step_.begin_layer(layer.index);
    plan_jump_add_gradient(step_, plan_, traits_, l);
    plan_residual_start_backward(step_, layer, traits_, format_);
    if (layer.second) {
      plan_activation_backward(step_, second_step(layer));
      auto const of_second = products_of(*layer.second, settings_.formats());
      products_back(true, of_second.input_back, of_second.weight_back);
    }
    if (is_activated(plan_, l))
      plan_activation_backward(step_, activation_step(l));
    else if (adds_bias(layer))
      sum_bias_gradient(layer.output);
    backward_self(layer, entries_of_input(l), has_input_gradient);
    if (layer.relations) {
      plan_relation_layer_backward(step_, layer, traits_, settings_.wire, has_input_gradient);
    } else if (layer.kind == LayerKind::dense) {
      if (has_input_gradient) pmm::plan_copy(step_, layer.output);
      products_back(has_input_gradient, products.transform_back, products.weight_back, entries_of_input(l));
    } else if (layer.kind == LayerKind::propagation) {
      pmm::plan_copy(step_, layer.output);
      aggregate_back(layer, entries);
    } else if (layer.aggregates_first) {
      auto const work = products_back(has_input_gradient, products.transform_back, products.weight_back);
      if (has_input_gradient) aggregate_back(layer, entries);
      if (has_input_gradient && sends_columns_ahead(layer)) {
        auto const exchange = next_of_kind<pmm::PlannedCall>(work.end);
        step_.add_overlap({{exchange, exchange + 1}, work});
      }
    } else {
      aggregate_back(layer, entries);
      products_back(has_input_gradient, products.transform_back, products.weight_back, entries_of_input(l));
    }
    if (layer.map_share) plan_map_identity_backward(step_, layer.weight);
    if (layer.has_self_weight && has_input_gradient) plan_addition(layer.input);
    plan_residual_finish_backward(step_, layer, settings_.formats(), entries_of_input(l), has_input_gradient);
    if (plan_.teleport && plan_.teleport->first_layer == l) finish_teleport();
  }

  [[nodiscard]] bool adds_bias(NetworkLayerPlan const& layer) const {
    return settings_.has_bias && layer.adds_bias;
  }

  /// Moves of H0 to the sites where it is added, and of its gradient back (gnn/layers/teleport.hpp).
  void move_start(pmm::Placement const& site, bool is_backward) {
    auto const& start = teleport_start(plan_);
    if (site == start) return;
    if (has_owners_) return plan_select_rows(step_, start, site, is_backward);
    plan_relayout(step_, traits_.teleport_sizes(plan_, site, is_backward));
  }
  void begin_teleport() {
    for (auto const& site : plan_.teleport->sites)
      move_start(site, false);
    if (drops_out_ && plan_.teleport->drops_start) plan_apply_dropout(step_, teleport_start(plan_));
    sites_with_gradient_.assign(plan_.teleport->sites.size(), false);
  }
  void finish_teleport() {
    auto const& start = teleport_start(plan_);
    if (drops_out_ && plan_.teleport->drops_start) plan_apply_dropout(step_, start);
    for (auto const& site : plan_.teleport->sites) {
      move_start(site, true);
      plan_addition(start);
    }
  }
  void split_gradient(NetworkLayerPlan const& layer) {
    if (!layer.teleport_site) return;
    auto const is_further = sites_with_gradient_[*layer.teleport_site];
    plan_split_gradient(step_, is_further ? StartGradient::further : StartGradient::first, layer.aggregate());
    sites_with_gradient_[*layer.teleport_site] = true;
  }

  [[nodiscard]] std::int64_t entries_of_adjacency(NetworkLayerPlan const& layer) const {
    if (!layer.aggregates()) return 0;
    if (layer.owners && layer.owners->kept) return layer.owners->kept->num_nonzeros;
    return traits_.num_nonzeros(layer.adjacency);
  }
  [[nodiscard]] NetworkLayerAggregates between_owners(NetworkLayerPlan const& layer) const {
    return aggregates_of(layer, cells(layer), settings_.formats(), needed(layer));
  }
  [[nodiscard]] pmm::NeededCountsOfAxes const& needed(NetworkLayerPlan const& layer) const {
    return layer.owners && layer.owners->kept ? layer.owners->kept->needed : traits_.needed;
  }
  [[nodiscard]] pmm::CellSizes cells(NetworkLayerPlan const& layer) const {
    return !layer.owners ? pmm::CellSizes() : traits_.cells ? *traits_.cells : cells_of(step_, layer);
  }
  [[nodiscard]] AttentionSteps attention_steps(NetworkLayerPlan const& layer, std::int64_t entries) const {
    return {step_.shape(), step_.coordinates(), layer, cells(layer), entries, needed(layer), settings_.wire};
  }
  void multiply_by_adjacency(NetworkLayerPlan const& layer, std::int64_t entries, bool is_backward) {
    if (layer.owners) {
      auto const [forward, backward] = between_owners(layer);
      plan_aggregate(step_, is_backward ? backward : forward, entries);
    } else {
      auto const products = products_of(layer, settings_.formats());
      plan_product(step_, is_backward ? products.aggregate_back : products.aggregate, entries);
    }
  }
  void aggregate(NetworkLayerPlan const& layer, std::int64_t entries) {
    if (layer.attention)
      return plan_attention(step_, attention_steps(layer, entries), drops_coefficients_, plan_.drops_edges);
    if (layer.takes_maximum)
      return plan_maximum(step_, layer, cells(layer), entries, needed(layer), settings_.wire);
    auto const multiply = [&] { multiply_by_adjacency(layer, entries, false); };
    if (layer.num_powers > 0) return plan_powers(step_, layer, multiply);
    plan_bring_scaled(step_, layer, traits_);
    multiply();
    if (layer.own && layer.own->list_forward) layer.own->list_forward(step_, layer);
    if (layer.has_self_scale) plan_add_scaled(step_, layer.aggregate());
    if (layer.teleport_site) plan_add_teleport(step_, layer.aggregate());
  }
  void aggregate_back(NetworkLayerPlan const& layer, std::int64_t entries) {
    if (layer.attention) return plan_attention_backward(step_, attention_steps(layer, entries));
    if (layer.takes_maximum)
      return plan_maximum_backward(step_, layer, cells(layer), entries, needed(layer), settings_.wire);
    auto const multiply = [&] { multiply_by_adjacency(layer, entries, true); };
    if (layer.num_powers > 0) return plan_powers_backward(step_, layer, multiply);
    split_gradient(layer);
    plan_bring_scaled_back(step_, layer, traits_);
    multiply();
    if (layer.own && layer.own->list_backward) layer.own->list_backward(step_, layer);
    if (layer.has_self_scale) plan_add_scaled(step_, layer.aggregated());
  }

  /// Gradient of a bias. In the schedule `rows` it stays partial.
  void sum_bias_gradient(pmm::Placement const& gradient) {
    pmm::plan_sum_columns(step_, gradient, format_);
    if (!has_owners_) pmm::plan_reduce_sums(step_, gradient);
  }

  /// Elementwise sum: F is added to D (unless a norm adds F as it writes D) and dF' to dF; V is added to Q, and its gradient to dF.
  void plan_addition(pmm::Placement const& sum) {
    auto const bytes = step_.wire_bytes(step_.block(sum).num_stored, format_);
    step_.add_pass({"add", 2 * bytes, bytes});
  }

  void move_self(NetworkLayerPlan const& layer, bool is_backward) {
    plan_move_self(step_, layer, traits_, is_backward, format_);
  }
  void backward_self(NetworkLayerPlan const& layer, std::optional<std::int64_t> entries,
                     bool has_input_gradient) {
    if (!layer.has_self_weight) return;
    auto const products = self_products_of(layer, settings_.formats());
    if (!layer.aggregates_first) move_self(layer, true);
    plan_product(step_, products.weight_back, layer.aggregates_first ? std::nullopt : entries);
    if (!has_input_gradient) return;
    plan_product(step_, products.transform_back);
    if (layer.aggregates_first) move_self(layer, true);
  }

  void backward_linear(LinearPlan const& linear, std::optional<std::int64_t> entries,
                       bool has_input_gradient) {
    auto const products = products_of(linear, settings_.formats());
    if (settings_.has_bias) sum_bias_gradient(linear.output);
    products_back(has_input_gradient, products.input_back, products.weight_back, entries);
  }

  /// Lists dF, if it is needed, and dW; dF's reduction overlaps dW. Returns the operations of dW in the list.
  runtime::Range products_back(bool has_input_gradient, pmm::ProductPlan const& input_back,
                               pmm::ProductPlan const& weight_back,
                               std::optional<std::int64_t> entries = std::nullopt) {
    auto const first = step_.num_operations();
    auto const dw_is_first = shares_outputs(plan_, settings_); // dF overwrites what dW reads
    if (has_input_gradient && !dw_is_first) plan_product(step_, input_back);
    auto const place = step_.num_operations();
    plan_product(step_, weight_back, entries);
    runtime::Range const work{place, step_.num_operations()};
    if (has_input_gradient && dw_is_first) plan_product(step_, input_back);
    if (settings_.overlaps && has_input_gradient && !dw_is_first)
      step_.add_overlap({{next_of_kind<pmm::LocalProduct>(first), place}, work});
    return work;
  }
  template<class Kind>
  [[nodiscard]] std::int64_t next_of_kind(std::int64_t place) const {
    while (!std::holds_alternative<Kind>(step_.operations().at(static_cast<std::size_t>(place))))
      ++place;
    return place;
  }
  /// Whether the first exchange of dH's columns overlaps the computation of dW.
  [[nodiscard]] bool sends_columns_ahead(NetworkLayerPlan const& layer) const {
    auto const& owners = layer.owners;
    return owners && !layer.reads_edges() && settings_.overlaps &&
           owners->hidden_axes.contains(owners->roles.b) && step_.shape().size(owners->roles.b) > 1;
  }

  pmm::StepPlan& step_;
  NetworkPlan const& plan_;
  NetworkSettings const& settings_;
  NetworkEpochTraits const& traits_;
  Pass pass_;
  bool drops_out_, drops_coefficients_, has_owners_;
  runtime::Wire format_;                     // of activations and their gradients
  std::optional<std::int64_t> num_gathered_; // numbers of trained features in this rank's shard
  std::int64_t num_parameters_;              // length of the one array
  std::vector<bool> sites_with_gradient_;    // [sites] of the teleport: reached in the backward pass
};

} // namespace

void plan_pass(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
               NetworkEpochTraits const& traits) {
  EpochList list(step, plan, settings, traits, true);
  list.forward();
  if (predicts_links(settings))
    plan_link_loss(step, link_plan_of(step.shape(), step.coordinates(), plan, settings), traits.links);
  else
    pmm::plan_loss(step, plan.logits(), traits.loss, traits.counts_rows);
  list.backward();
}

void plan_epoch(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
                NetworkEpochTraits const& traits, OptimizerSettings const& optimizer) {
  plan_pass(step, plan, settings, traits);
  auto const parameters = parameters_of(plan, settings);
  auto const updated = updated_lengths_of(step, parameters);
  plan_update(step, optimizer, updated.trained, updated.normed, updated.statistics);
}

void plan_evaluation(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
                     NetworkEpochTraits const& traits) {
  EpochList(step, plan, settings, traits, false).forward();
  if (predicts_links(settings))
    plan_link_scores(step, link_plan_of(step.shape(), step.coordinates(), plan, settings), traits.links);
  else
    pmm::plan_scores(step, plan.logits(), traits.loss, num_splits);
}

} // namespace orthant::models
