// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/layers/network_layer.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/rows/bias.hpp"
#include "pmm/rows/column_sums.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

template<class T>
runtime::Vector<T> lent(pmm::ProcessGrid const& grid, pmm::Placement const& placement,
                        GrowingVector<T>& memory) {
  return memory.reserve(pmm::block_of(grid, placement).num_padded);
}

/// Whether the logits have separate memory because outputs of type T are rounded.
template<class T>
bool has_own_logits(NetworkLayerPlan const& plan) {
  return plan.makes_logits && runtime::is_16_bit<T>;
}

/// Whether dQ is copied before dF overwrites it: the layer's only product reads dQ.
bool copies_gradient(NetworkLayerPlan const& plan, bool needs_input_gradient) {
  return plan.kind != LayerKind::convolution && needs_input_gradient;
}
/// For a layer that transforms first and shares memory: whether U is stored in the memory of the product with it, and dU in that of dQ.
/// True if the aggregation, forward and backward, reads only copies of its operand that messages made.
bool has_middle_in_place(pmm::GridShape const& shape, NetworkLayerPlan const& plan) {
  auto const& owners = plan.owners.value();
  if (owners.kept) return false; // U may have more rows than Q
  auto const& [a, b, c] = owners.roles;
  auto const gathers_back = shape.size(owners.backward == pmm::Flow::forward ? c : a) > 1;
  return shape.size(b) > 1 || (shape.size(c) > 1 && gathers_back);
}
/// Whether U, dU or dH is in the scratch.
bool has_middle(pmm::GridShape const& shape, NetworkLayerPlan const& plan,
                NetworkLayerOptions const& options) {
  if (plan.relations) return false;
  if (options.shares_outputs) // dH overwrites H
    return !plan.aggregates_first && !has_middle_in_place(shape, plan);
  return plan.kind == LayerKind::convolution || copies_gradient(plan, options.needs_input_gradient);
}

template<class T>
pmm::LentMemory room_in(pmm::DistMatrix<T> const& operand, NetworkLayerPlan const& plan,
                        NetworkLayerOptions const& options) {
  auto const is_free = lends_operand(operand.grid().shape(), plan, options.shares_outputs);
  return {operand.storage().data(), is_free ? operand.storage().extent(0) * sizeof(T) : 0};
}

} // namespace

// If outputs share memory, that of the input is free while this layer multiplies the gathered copy.
bool lends_operand(pmm::GridShape const& shape, NetworkLayerPlan const& layer, bool shares_outputs) {
  return shares_outputs && layer.index > 0 && layer.aggregates_first && has_middle_in_place(shape, layer);
}

void NetworkScratchPlan::add(pmm::StepPlan const& step, NetworkLayerPlan const& layer,
                             NetworkLayerOptions const& options) {
  auto const& formats = options.formats;
  auto const output = step.block(layer.output);
  if (!options.shares_outputs || (layer.makes_logits && formats.operand != runtime::Wire::native))
    gradient = std::max(gradient, output.num_padded);
  if (options.needs_input_gradient && (!options.shares_outputs || layer.index == 0))
    gradient = std::max(gradient, step.block(layer.input).num_padded);
  if (has_middle(step.shape(), layer, options))
    middle = std::max(middle, step.block(layer.middle).num_padded);
  if (layer.num_powers > 0) powers = std::max(powers, output.num_padded);
  auto const products = products_of(layer, formats);
  if (layer.transforms() && !layer.relations)
    for (auto const& product : {products.transform, products.weight_back})
      plan_buffers(workspace, step, product);
  if (layer.multiplies_adjacency()) plan_aggregation_buffers(workspace, step, layer, formats);
  if (layer.transforms() && !layer.relations) plan_buffers(overlapped, step, products.transform_back);
  if (layer.has_self_weight) {
    auto const own = self_products_of(layer, formats);
    for (auto const& product : {own.transform, own.weight_back, own.transform_back})
      plan_buffers(workspace, step, product);
  }
  self.add(step, layer, options.needs_input_gradient);
  pmm::reserve_column_sums(workspace, output.stored_rows.size(), output.columns.size());
}

template<class T>
void NetworkScratch<T>::reserve(NetworkScratchPlan const& needed) {
  static_cast<void>(gradient.reserve(needed.gradient));
  static_cast<void>(residual_gradient.reserve(needed.residual_gradient));
  static_cast<void>(row_sums.reserve(needed.row_sums));
  static_cast<void>(middle.reserve(needed.middle));
  static_cast<void>(powers.reserve(needed.powers));
  static_cast<void>(self.product.reserve(needed.self.product));
  static_cast<void>(self.moved.reserve(needed.self.moved));
  static_cast<void>(self.sum.reserve(needed.self.sum));
}

void NetworkScratchPlan::list(pmm::StepPlan& step, runtime::Wire format) const {
  step.add_array("orthant::models::gradient", step.wire_bytes(gradient, format));
  step.add_array("orthant::models::residual_gradient", step.wire_bytes(residual_gradient, format));
  step.add_array("orthant::models::row_sums", step.scalar_bytes(row_sums));
  step.add_array("orthant::models::middle", step.wire_bytes(middle, format));
  step.add_array("orthant::models::powers", step.scalar_bytes(powers));
  self.list(step);
  workspace.list(step);
  overlapped.list(step);
}

void plan_layer_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                       NetworkLayerOptions const& options) {
  auto const& formats = options.formats;
  if (layer.keeps_middle())
    plan_matrix(step, layer.middle, "orthant::models::aggregated", pmm::Lifetime::training, formats.operand);
  if (!options.shares_outputs || layer.makes_logits)
    plan_matrix(step, layer.output, "orthant::models::output", pmm::Lifetime::training,
                formats.of_output(layer.makes_logits));
  if (layer.transforms() && !layer.relations)
    plan_operand_weight(step, layer.weight, formats, layer.map_share.has_value());
  plan_self_arrays(step, layer);
  plan_own_arrays(step, layer);
}

template<class T>
NetworkLayer<T>::NetworkLayer(pmm::ProcessGrid const& grid, NetworkLayerPlan const& p,
                              NetworkLayerGraph<Sum> graph, NetworkLayerParameters<Sum> parameters,
                              NetworkLayerOptions const& options, NetworkScratch<T>& scratch,
                              NetworkLayerMemory<T>& memory, NetworkLayerPlaces<T> const& places)
    : NetworkLayer(grid, p, products_of(p, options.formats), std::move(parameters), options, scratch, memory,
                   places) {
  // Objects that make the workspace grow come first, because old and new memory exist together for a moment.
  if (p.multiplies_adjacency()) {
    if (p.keeps_weights(aggregated_columns(grid.shape(), grid.coordinates(), p)))
      keep_weights<Sum>(graph.adjacency);
    aggregation_ =
        make_aggregation<T>(grid, p, options.formats, std::move(graph.adjacency), scratch.workspace);
  }
  // H is kept for dW. U is not needed after Q is computed, unless attention coefficients depend on it.
  if (options.shares_outputs && !p.aggregates_first && has_middle_in_place(grid.shape(), p))
    middle_ = middle_gradient_ = {grid, p.middle, lent(grid, p.middle, places.output_gradient)};
  else if (p.kind == LayerKind::convolution && !p.relations)
    middle_ = {grid, p.middle, lent(grid, p.middle, p.keeps_middle() ? memory.middle : scratch.middle)};
  if (options.shares_outputs && p.aggregates_first)
    middle_gradient_ = middle_;
  else if (has_middle(grid.shape(), p, options))
    middle_gradient_ = {grid, p.middle, lent(grid, p.middle, places.middle_gradient)};
  if (!p.aggregates()) return;
  if constexpr (std::is_same_v<T, Sum>) {
    auto const has_means = p.relations && !p.relations->attention;
    if (p.relations && !has_means) {
      if (!memory.relation_attention)
        memory.relation_attention = std::make_unique<RelationAttentionMemory<T>>();
      relations_ = make_relation_attention<T>(grid, p, options.formats.wire, std::move(graph.relations),
                                              graph.self_path.kept, parameters_, options.needs_input_gradient,
                                              scratch.workspace, scratch.relation_attention,
                                              *memory.relation_attention);
    }
    if (has_means && !memory.relations) memory.relations = std::make_unique<RelationLayerMemory<T>>();
    if (has_means)
      relations_ = std::make_unique<RelationAggregation<T>>(
          grid, p, options.formats.wire, std::move(graph.relations), parameters_,
          options.needs_input_gradient, scratch.workspace, scratch.relations, *memory.relations);
    if (p.teleport_site)
      aggregation_ = make_teleport_aggregation<T>(std::move(aggregation_), graph.teleport, *p.teleport_site);
    if (p.num_powers > 0)
      aggregation_ =
          make_power_aggregation<T>(grid, p, std::move(aggregation_), lent(grid, p.output, scratch.powers));
    if (p.own) aggregation_ = make_own_aggregation<T>(grid, p, std::move(aggregation_), memory.own);
    if (p.takes_maximum)
      aggregation_ =
          make_maximum_aggregation<T>(grid, p, options.formats.wire, graph.adjacency, graph.column_ids,
                                      scratch.workspace, scratch.maximum, memory.maximum);
    if (p.attention && !memory.attention) memory.attention = std::make_unique<EdgeAttentionMemory<T>>();
    if (p.attention)
      aggregation_ = make_attention_aggregation<T>(
          grid, p, options.formats.wire, std::get<OwnedAdjacency<T>>(graph.adjacency), scratch.workspace,
          {*parameters_.attention, middle_, graph.self_path.kept}, scratch.attention, *memory.attention);
    if (p.has_self_scale) {
      SelfAggregationParts<T> parts{graph.self_path, parameters_.epsilon, parameters_.epsilon_gradient,
                                    scratch.self.sum.reserve(1)};
      if (keeps_brought(p)) parts.brought = lent(grid, p.aggregate(), memory.self);
      if (!keeps_rows(p)) parts.moved = lent(grid, p.aggregated(), scratch.self.moved);
      aggregation_ = make_self_aggregation<T>(grid, p, std::move(aggregation_), std::move(parts));
    }
    if (p.has_self_weight)
      self_ = std::make_unique<SelfTerm<T>>(grid, p, options.formats, parameters_,
                                            options.needs_input_gradient, std::move(graph.self_path),
                                            scratch.workspace, scratch.self, memory.self);
  }
}

template<class T>
NetworkLayer<T>::NetworkLayer(pmm::ProcessGrid const& grid, NetworkLayerPlan const& p,
                              NetworkLayerProducts const& products, NetworkLayerParameters<Sum> parameters,
                              NetworkLayerOptions const& options, NetworkScratch<T>& scratch,
                              NetworkLayerMemory<T>& memory, NetworkLayerPlaces<T> const& places)
    : plan_(p),
      options_(options),
      has_own_logits_(has_own_logits<T>(p)),
      parameters_(std::move(parameters)),
      weight_(p.transforms() && !p.relations ? parameters_.weight : pmm::DistMatrix<Sum>(), memory.weight,
              p.map_share),
      workspace_(scratch.workspace),
      output_gradient_(grid, p.output, lent(grid, p.output, places.output_gradient)),
      input_gradient_(options.needs_input_gradient
                          ? pmm::DistMatrix<T>(grid, p.input, lent(grid, p.input, places.input_gradient))
                          : pmm::DistMatrix<T>()) {
  if (has_own_logits_)
    logits_ = std::make_unique<pmm::DistMatrix<Sum>>(grid, p.output, lent(grid, p.output, memory.logits));
  else
    output_ = {grid, p.output, lent(grid, p.output, places.output)};
  if (p.transforms() && !p.relations) {
    if (products.transform.options.result_format == runtime::format_of<T>)
      transform_.emplace(grid, products.transform, scratch.workspace);
    else
      to_logits_ = std::make_unique<pmm::Product<T, Sum>>(grid, products.transform, scratch.workspace);
    weight_back_.emplace(grid, products.weight_back, scratch.workspace);
    transform_back_.emplace(grid, products.transform_back, scratch.overlapped);
  }
  auto const& block = output_gradient_.block();
  pmm::reserve_column_sums(*workspace_, block.stored_rows.size(), block.columns.size());
}

template<class T>
void NetworkLayer<T>::add_bias(runtime::DefaultExec const& exec) const {
  if (!options_.has_bias || options_.is_activated) return;
  auto const add_to = [&](auto const& result) { pmm::add_bias(exec, result, parameters_.bias); };
  plan_.makes_logits ? add_to(logits()) : add_to(output_);
}

template<class T>
template<class Features>
void NetworkLayer<T>::forward(runtime::DefaultExec const& exec, Features const& features) {
  if constexpr (std::is_same_v<T, Sum>)
    if (self_) self_->start(exec, features);
  if constexpr (std::is_same_v<Features, pmm::DistMatrix<Sum>> && std::is_same_v<T, Sum>)
    if (relations_) {
      relations_->forward(exec, features, output_);
      return finish_forward(exec);
    }
  if (plan_.kind == LayerKind::dense) {
    // Q[a,c] := sum_b F[a,b] W[b,c]
    weight_.update(exec);
    transform_->run(exec, features, weight_.matrix(), output_);
    return finish_forward(exec);
  }
  if (plan_.aggregates_first) {
    // H[c,b] := sum_a A^[c,a] F[a,b]. The H of a propagation is its Q.
    if constexpr (std::is_same_v<Features, pmm::DistMatrix<T>>) {
      auto const room = room_in(features, plan_, options_);
      aggregation_->forward(exec, features, plan_.keeps_aggregate() ? middle_ : output_);
    }
    return plan_.keeps_aggregate() ? forward_from_middle(exec) : finish_forward(exec);
  }
  // U[a,c] := sum_b F[a,b] W[b,c];  Q[b,c] := sum_a A^[b,a] U[a,c]
  weight_.update(exec);
  transform_->run(exec, features, weight_.matrix(), middle_);
  if (has_own_logits_)
    aggregation_->forward_to_logits(exec, middle_, logits());
  else
    aggregation_->forward(exec, middle_, output_);
  finish_forward(exec);
}

template<class T>
void NetworkLayer<T>::finish_forward(runtime::DefaultExec const& exec) {
  if constexpr (std::is_same_v<T, Sum>)
    if (self_) self_->finish(exec, output_);
  add_bias(exec);
}

template<class T>
void NetworkLayer<T>::forward_from_middle(runtime::DefaultExec const& exec) {
  ORTHANT_REQUIRE(plan_.keeps_aggregate(), "layer ", plan_.index, " keeps no aggregate");
  // Q[c,a] := sum_b H[c,b] W[b,a]
  weight_.update(exec);
  if (to_logits_)
    to_logits_->run(exec, middle_, weight_.matrix(), logits());
  else
    transform_->run(exec, middle_, weight_.matrix(), output_);
  finish_forward(exec);
}

template<class T>
template<class Features>
pmm::DistMatrix<T> const& NetworkLayer<T>::backward(runtime::DefaultExec const& exec,
                                                    Features const& features) {
  if (options_.has_bias && !options_.is_activated)
    pmm::sum_columns(exec, output_gradient_, parameters_.bias_gradient, *workspace_);
  if (options_.has_bias) parameters_.reduce(exec, output_gradient_, parameters_.bias_gradient);
  if constexpr (std::is_same_v<T, Sum>)
    if (self_) self_->backward(exec, features, output_gradient_);
  backward_products(exec, features);
  if (plan_.transforms() && !plan_.relations) weight_.finish_gradient(exec, parameters_.weight_gradient);
  if constexpr (std::is_same_v<T, Sum>)
    if (self_) self_->finish_backward(exec, input_gradient_);
  return input_gradient_;
}

template<class T>
template<class Features>
void NetworkLayer<T>::backward_dense(runtime::DefaultExec const& exec, Features const& features) {
  // dF[a,b] := sum_c dQ[a,c] W[b,c]^T. Its reduction overlaps dW[b,c] := sum_a F[a,b]^T dQ[a,c].
  if (!options_.needs_input_gradient)
    return weight_back_->run(exec, features, output_gradient_, parameters_.weight_gradient);
  copy_numbers(exec, output_gradient_, middle_gradient_);
  transform_back_->start(exec, middle_gradient_, weight_.matrix(), input_gradient_);
  if (!options_.overlaps) transform_back_->finish();
  weight_back_->run(exec, features, middle_gradient_, parameters_.weight_gradient);
  if (options_.overlaps) transform_back_->finish();
}

template<class T>
template<class Features>
void NetworkLayer<T>::backward_in_place(runtime::DefaultExec const& exec, Features const& features) {
  if (plan_.aggregates_first) {
    // dW := H^T dQ;  dH := dQ W^T overwrites H;  dF := A^^T dH
    weight_back_->run(exec, middle_, output_gradient_, parameters_.weight_gradient);
    if (!options_.needs_input_gradient) return;
    transform_back_->run(exec, output_gradient_, weight_.matrix(), middle_gradient_);
    auto const room = room_in(middle_gradient_, plan_, options_);
    return aggregation_->backward(exec, middle_gradient_, input_gradient_);
  }
  // dU := A^^T dQ, overwrites dQ if possible;  dW := F^T dU;  dF := dU W^T overwrites F
  aggregation_->backward(exec, output_gradient_, middle_gradient_);
  weight_back_->run(exec, features, middle_gradient_, parameters_.weight_gradient);
  if constexpr (std::is_same_v<Features, pmm::DistMatrix<T>>)
    if (options_.needs_input_gradient)
      transform_back_->run(exec, middle_gradient_, weight_.matrix(), input_gradient_);
}

template<class T>
template<class Features>
void NetworkLayer<T>::backward_products(runtime::DefaultExec const& exec, Features const& features) {
  if constexpr (std::is_same_v<T, Sum>)
    if (relations_) return relations_->backward(exec, output_gradient_, input_gradient_);
  if (options_.shares_outputs) return backward_in_place(exec, features);
  if (plan_.kind == LayerKind::dense) return backward_dense(exec, features);
  if (plan_.kind == LayerKind::propagation) {
    // dF[a,b] := sum_c A^[c,a]^T dQ[c,b]
    copy_numbers(exec, output_gradient_, middle_gradient_);
    return aggregation_->backward(exec, middle_gradient_, input_gradient_);
  }
  if (plan_.aggregates_first) {
    // dH[c,b] := sum_a dQ[c,a] W[b,a]^T. Its reduction overlaps dW[b,a] := sum_c H[c,b]^T dQ[c,a].
    if (options_.needs_input_gradient) {
      transform_back_->start(exec, output_gradient_, weight_.matrix(), middle_gradient_);
      if (!options_.overlaps) transform_back_->finish();
    }
    auto const prefetches = plan_.owners && options_.needs_input_gradient && options_.overlaps;
    if (prefetches) {
      // dH is complete: its columns are sent while dW is computed.
      transform_back_->finish();
      aggregation_->prefetch_backward(exec, middle_gradient_);
    }
    weight_back_->run(exec, middle_, output_gradient_, parameters_.weight_gradient);
    if (!options_.needs_input_gradient) return;
    if (options_.overlaps && !prefetches) transform_back_->finish();
    // dF[a,b] := sum_c A^[c,a]^T dH[c,b]
    aggregation_->backward(exec, middle_gradient_, input_gradient_);
    return;
  }
  // dU[a,c] := sum_b A^[b,a]^T dQ[b,c]
  aggregation_->backward(exec, output_gradient_, middle_gradient_);
  // dF[a,b] := sum_c dU[a,c] W[b,c]^T. Its reduction overlaps dW[b,c] := sum_a F[a,b]^T dU[a,c].
  if constexpr (std::is_same_v<Features, pmm::DistMatrix<T>>) {
    if (options_.needs_input_gradient) {
      transform_back_->start(exec, middle_gradient_, weight_.matrix(), input_gradient_);
      if (!options_.overlaps) transform_back_->finish();
    }
  }
  weight_back_->run(exec, features, middle_gradient_, parameters_.weight_gradient);
  if (options_.needs_input_gradient && options_.overlaps) transform_back_->finish();
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template struct NetworkScratch<T>;                                                                         \
  template class NetworkLayer<T>;                                                                            \
  ORTHANT_INSTANTIATE_FOR(T, pmm::DistMatrix<T>)                                                             \
  ORTHANT_INSTANTIATE_FOR(T, pmm::DistSparse<runtime::SumOf<T>>)
#define ORTHANT_INSTANTIATE_FOR(T, Features)                                                                 \
  template void NetworkLayer<T>::forward(runtime::DefaultExec const&, Features const&);                      \
  template pmm::DistMatrix<T> const& NetworkLayer<T>::backward(runtime::DefaultExec const&, Features const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE_FOR
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
