// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/network/network_operands.hpp"

#include "graph/store/listed_block.hpp"
#include "models/gnn/layers/jump.hpp"
#include "models/gnn/layers/teleport.hpp"
#include "models/gnn/network/network_arrays.hpp"
#include "models/gnn/operands/owned_adjacency.hpp"
#include "models/gnn/plan/relation_step.hpp"
#include "pmm/kernels/rounding.hpp"
#include "pmm/matrix/relayout.hpp"
#include "runtime/comm/together.hpp"

#include <numeric>
#include <type_traits>
#include <utility>

namespace orthant::models {
namespace {

/// Returns a block with the same pattern and a new value array, which is not filled yet.
template<class T>
pmm::LocalSpmm<T> with_own_values(pmm::SparseBlock<T> block, GrowingVector<T>& memory) {
  auto const count = block.csr.columns.extent(0);
  block.csr.values =
      Kokkos::subview(memory.reserve(static_cast<std::int64_t>(count)), std::pair(std::size_t{0}, count));
  return pmm::LocalSpmm<T>(std::move(block));
}

/// Lists the arrays for features that the store has in another order: they are read in that order, then redistributed.
void plan_reordered_features(pmm::StepPlan& step, pmm::Placement const& placement, pmm::Lifetime lifetime) {
  auto stored = placement;
  stored.layout.row_order = order_p2;
  plan_dense_features(step, stored, pmm::Lifetime::operation);
  pmm::StepPlan relayout(step.shape(), step.coordinates(), step.scalar_bytes(1));
  plan_relayout_arrays(relayout, pmm::expected_sizes(step.shape(), step.coordinates(), stored, placement,
                                                     pmm::RowOrders::independent));
  step.add_array("features in the order of the store", step.scalar_bytes(step.block(stored).size()),
                 pmm::Lifetime::operation);
  step.add_array("features on their way", pmm::bytes_held(relayout), pmm::Lifetime::operation);
  plan_matrix(step, placement, "orthant::models::features", lifetime);
  step.end_operation();
}

} // namespace

template<class T>
InputFeatures<T> read_input_features(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                     pmm::Placement const& placement, NetworkSettings const& settings) {
  InputFeatures<T> features;
  features.is_sparse = store.facts().feature_kind == graph::FeatureKind::sparse;
  features.keys = read_block_keys(grid, store, placement);
  if (features.is_sparse) {
    features.sparse = read_sparse_features<T>(grid, store, placement, settings.feature_norm);
    return features;
  }
  auto whole = placement;
  whole.layout.storage = pmm::Storage::replicated;
  features.dense = read_dense_features<T>(grid, store, whole, settings.feature_norm);
  if (placement.layout.storage != pmm::Storage::flat_sharded) return features;
  features.ids = std::make_shared<std::vector<std::int64_t> const>(runtime::together(grid.group(), [&] {
    return store.read_original_ids(order_of(whole.layout.row_order), features.dense.block().rows);
  }));
  features.trains_row = draw_table(store.facts(), *features.ids, features.dense, settings.seed);
  if (!settings.num_fixed_rows) features.trains_row = {};
  pmm::DistMatrix<T> shard(grid, placement, "orthant::models::trained_features");
  auto const& [first, count] = std::pair(shard.block().first, shard.block().num_stored);
  Kokkos::deep_copy(runtime::part_of(shard.storage(), 0, count),
                    runtime::part_of(features.dense.storage(), first, count));
  features.dense = shard;
  return features;
}

void plan_input_features(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                         FeatureNorm norm, std::optional<std::int64_t> num_nonzeros, pmm::Lifetime lifetime) {
  plan_block_keys(step, plan.features());
  if (plan.trained_features && plan.trained_features->picks_rows) return;
  auto const& placement = plan.stored_features();
  if (num_nonzeros)
    return plan_sparse_features(step, placement, *num_nonzeros, facts.features_have_values, norm);
  auto whole = placement;
  whole.layout.storage = pmm::Storage::replicated;
  auto const is_reordered = placement.layout.row_order == order_p1 && facts.has_two_orders();
  auto const plan_features = is_reordered ? plan_reordered_features : plan_dense_features;
  if (placement.layout.storage != pmm::Storage::flat_sharded) return plan_features(step, whole, lifetime);
  plan_matrix(step, placement, "orthant::models::trained_features");
  auto const num_rows = step.block(whole).rows.size();
  step.add_array("ids of trained features", num_rows * std::int64_t{sizeof(std::int64_t)});
  if (plan.trained_features->has_fixed_rows) step.add_array("orthant::models::trains_row", num_rows);
  plan_features(step, whole, pmm::Lifetime::operation);
}

void plan_dropped_features(pmm::StepPlan& step, pmm::Placement const& placement,
                           std::optional<std::int64_t> num_nonzeros, runtime::Wire format) {
  if (!num_nonzeros)
    return plan_matrix(step, placement, "orthant::models::dropped_features", pmm::Lifetime::training, format);
  for (int way = 0; way < 2; ++way) // the block and its transpose
    step.add_array("orthant::models::dropped_values", step.scalar_bytes(*num_nonzeros));
}

void plan_rounded_features(pmm::StepPlan& step, pmm::Placement const& placement, runtime::Wire format,
                           bool keeps_first_aggregate) {
  plan_matrix(step, placement, "orthant::models::rounded_features",
              keeps_first_aggregate ? pmm::Lifetime::first_step : pmm::Lifetime::training, format);
}

template<class T>
void NetworkInput<T>::bind_dense(pmm::Placement const& read, runtime::Vector<T> const& room) {
  auto& features = features_.dense;
  auto const& grid = features.grid();
  auto const has_room = room.extent(0) > 0;
  auto const num_padded = pmm::block_of(grid, read).num_padded;
  auto const gathers =
      features_.are_trained() && (features_.rows || (read.layout.storage != pmm::Storage::flat_sharded &&
                                                     grid.size(read.layout.third()) > 1));
  gathered_rows_.reset();
  if (gathers)
    gathered_rows_ = features_.rows ? *features_.rows : all_feature_rows(grid, features.placement());
  read_ = {grid, read, gathers ? gathered_numbers_.reserve(num_padded) : features.storage()};
  if constexpr (std::is_same_v<T, Sum>) {
    dense_ = read_;
    if (!has_room || !features_.may_move) return;
    dense_ = {grid, read, room};
    Kokkos::deep_copy(room, features.storage());
  } else {
    dense_ = {grid, read, has_room ? room : rounded_numbers_.reserve(num_padded)};
    if (features_.are_trained()) return;
    pmm::round_numbers(runtime::DefaultExec(), features.storage(), dense_.storage());
  }
  features = read_ = {};
}

template<class T>
void NetworkInput<T>::release() {
  features_.dense = read_ = {};
  dense_ = {};
  rounded_numbers_ = GrowingVector<T>(rounded_label);
}

template<class T>
void NetworkInput<T>::bind(InputFeatures<Sum> features, pmm::Placement const& read,
                           double dropout_probability, runtime::Vector<T> const& room) {
  features_ = std::move(features);
  uses_dropped_ = false;
  read_ = {};
  dense_ = dropped_dense_ = {};
  dropped_sparse_ = {};
  if (!features_.is_sparse) bind_dense(read, room);
  if (dropout_probability == 0) return;
  if (features_.is_sparse) {
    auto const& sparse = features_.sparse;
    dropped_sparse_ = pmm::DistSparse<Sum>(
        sparse.grid(), sparse.placement(), with_own_values(sparse.forward().block(), dropped_values_),
        with_own_values(sparse.adjoint().block(), dropped_transposed_values_));
    return;
  }
  dropped_dense_ = pmm::DistMatrix<T>(dense_.grid(), dense_.placement(),
                                      dropped_numbers_.reserve(dense_.block().num_padded));
}

template<class T>
void NetworkInput<T>::prepare(runtime::DefaultExec const& exec, Dropout const& dropout) {
  uses_dropped_ = dropout.probability > 0;
  if (gathered_rows_) gather_features(exec, features_.dense, *gathered_rows_, read_);
  if constexpr (!std::is_same_v<T, Sum>)
    if (read_.storage().extent(0) > 0) pmm::round_numbers(exec, read_.storage(), dense_.storage());
  if (!uses_dropped_) return;
  if (features_.is_sparse) {
    auto& passes = features_.sparse.grid().passes();
    apply_dropout_to_entries(exec, passes, features_.sparse.forward().block().csr, CsrRows::vertices, dropout,
                             features_.keys, dropped_sparse_.forward().block().csr.values);
    apply_dropout_to_entries(exec, passes, features_.sparse.adjoint().block().csr, CsrRows::features, dropout,
                             features_.keys, dropped_sparse_.adjoint().block().csr.values);
    return;
  }
  drop(exec, dropout, dense_, dropped_dense_);
}

template<class T>
void NetworkInput<T>::drop(runtime::DefaultExec const& exec, Dropout const& dropout,
                           pmm::DistMatrix<T> const& from, pmm::DistMatrix<T> const& to) const {
  auto& passes = from.grid().passes();
  if (from.layout().storage == pmm::Storage::replicated)
    return apply_dropout(exec, passes, from.local(), dropout, features_.keys, to.local());
  auto const& block = from.block();
  auto const stored = std::pair(std::size_t{0}, static_cast<std::size_t>(block.num_stored));
  apply_dropout_to_piece<T>(exec, passes, Kokkos::subview(from.storage(), stored), dropout, features_.keys,
                            block.first, block.columns.size(), Kokkos::subview(to.storage(), stored));
}

template<class T>
void NetworkInput<T>::backward(runtime::DefaultExec const& exec, Dropout const& dropout,
                               pmm::DistMatrix<T> const& gradient) const {
  if (dropout.probability > 0) drop(exec, dropout, gradient, gradient);
}

template<class T>
void NetworkInput<T>::write_gradient(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient,
                                     pmm::DistMatrix<Sum> const& of_parameter) const {
  if (gathered_rows_)
    spread_gradient(exec, gradient, *gathered_rows_, of_parameter);
  else if constexpr (!std::is_same_v<T, Sum>)
    pmm::widen_numbers(exec, gradient.storage(), of_parameter.storage());
  else if (gradient.storage().data() != of_parameter.storage().data())
    copy_numbers(exec, gradient, of_parameter);
  if (features_.trains_row.extent(0) > 0) clear_fixed_rows(exec, of_parameter, features_.trains_row);
}

template class NetworkInput<float>;
template class NetworkInput<double>;
template class NetworkInput<runtime::Bf16Number>;
template class NetworkInput<runtime::Fp16Number>;
template InputFeatures<float> read_input_features(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                  pmm::Placement const&, NetworkSettings const&);
template InputFeatures<double> read_input_features(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                   pmm::Placement const&, NetworkSettings const&);

namespace {

/// The store's permutations map rows of one order to the other.
template<class T>
ResidualPath<T> read_residual_path(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                   pmm::Placement const& input, pmm::Placement const& output) {
  auto const is_one_order = input.layout.row_order == output.layout.row_order;
  auto const other_rows = [&](pmm::Placement const& placement) {
    auto const rows = pmm::block_of(grid, placement).rows;
    return runtime::together(grid.group(), [&] {
      if (!is_one_order) return store.read_other_positions(order_of(placement.layout.row_order), rows);
      std::vector<std::int64_t> same(static_cast<std::size_t>(rows.size()));
      std::iota(same.begin(), same.end(), rows.begin);
      return same;
    });
  };
  if (input == output) return ResidualPath<T>::local();
  return make_residual_path<T>(grid, input, output, other_rows(output), other_rows(input));
}

} // namespace

bool has_output_keys(NetworkPlan const& plan, NetworkSettings const& settings, std::size_t l) {
  return settings.dropout > 0 && is_activated(plan, l) &&
         (plan.layers[l].drops_output || plan.layers[l].second || drops_start(plan, l + 1));
}

void plan_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                    NetworkEpochTraits const& traits) {
  auto const& first = plan.layers.front();
  if (first.relations) return plan_relation_operands(step, plan, traits);
  if (first.owners) // one block for all layers
    return plan_owned_adjacency(step, first.reads_edges() ? without_transpose(facts) : facts,
                                cells_of(step, first), traits.num_nonzeros(first.adjacency),
                                plan.drops_edges && !first.reads_edges());
  AdjacencyBlocksPlan blocks(facts, traits.num_nonzeros, plan.drops_edges);
  for (auto const& layer : plan.layers)
    if (layer.aggregates()) blocks.get(step, layer.adjacency, layer.is_even);
}

void plan_adjacency_products(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                             NetworkEpochTraits const& traits) {
  AdjacencyBlocksPlan blocks(facts, traits.num_nonzeros);
  for (auto const& layer : plan.layers) {
    if (!layer.multiplies_adjacency()) continue;
    if (!layer.keeps_weights(aggregated_columns(step.shape(), step.coordinates(), layer))) continue;
    if (!layer.owners) {
      for (auto const products : {AdjacencyProducts::direct, AdjacencyProducts::adjoint})
        blocks.keep_weights(step, layer.adjacency, layer.is_even, products);
      continue;
    }
    // In the schedule `rows` all layers have the same block, which serves both directions if A^ is symmetric.
    auto const& adjacency = plan.layers.front().adjacency;
    blocks.keep_weights(step, adjacency, true, AdjacencyProducts::direct);
    if (!is_operator_symmetric(facts)) blocks.keep_weights(step, adjacency, true, AdjacencyProducts::adjoint);
  }
}

void plan_whole_blocks(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                       NetworkSettings const& settings, NetworkEpochTraits const& traits) {
  plan_adjacency(step, facts, plan, traits);
  plan_adjacency_products(step, facts, plan, traits);
  if (auto const& relations = plan.layers.front().relations;
      relations && relations->attention && relations->drops_coefficients)
    pmm::plan_relation_ids(step, traits.num_relation_edges(plan.layers.front().adjacency));
  if (auto const& first = plan.layers.front(); first.owners && first.reads_edges())
    plan_edges(step, edge_counts_of(first, cells_of(step, first), traits.num_nonzeros(first.adjacency)),
               needs_edge_ids(settings), plan.drops_edges);
}

void plan_operands(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                   NetworkSettings const& settings, NetworkEpochTraits const& traits,
                   pmm::Lifetime features) {
  plan_whole_blocks(step, facts, plan, settings, traits);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    if (has_output_keys(plan, settings, l)) plan_block_keys(step, layer.result());
    if (needs_column_ids(layer))
      step.add_array("orthant::models::original_ids",
                     step.block(layer.adjacency).columns.size() * std::int64_t{sizeof(std::int64_t)});
    plan_residual_arrays(step, layer, traits);
    plan_self_path_arrays(step, layer, traits);
  }
  plan_teleport_path_arrays(step, plan, traits);
  plan_jump_path_arrays(step, plan, traits);
  plan_input_features(step, facts, plan, settings.feature_norm, traits.num_feature_nonzeros(plan), features);
}

template<class T>
NetworkOperands<T> make_full_graph_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                            NetworkPlan const& plan, NetworkSettings const& settings) {
  // Features are read last, because features that are rounded exist only until they are bound.
  auto operands = make_full_graph_operands<T>(grid, store, plan, settings, InputFeatures<T>{}, std::nullopt);
  operands.features = read_input_features<T>(grid, store, plan.stored_features(), settings);
  operands.features.may_move = true;
  return operands;
}

template<class T>
NetworkOperands<T> make_full_graph_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                            NetworkPlan const& plan, NetworkSettings const& settings,
                                            InputFeatures<T> features, std::optional<OwnedAdjacency<T>> owned,
                                            std::vector<pmm::DroppedBlock<T>> of_owned) {
  NetworkOperands<T> operands;
  operands.plan = plan;
  operands.features = std::move(features);
  operands.dropped = std::move(of_owned);
  auto* const dropped = plan.drops_edges ? &operands.dropped : nullptr;
  AdjacencyBlocks<T> blocks(grid, store, dropped);
  auto const has_relations = static_cast<bool>(plan.layers.front().relations);
  if (auto const& owners = plan.layers.front().owners; owners && !owned && !has_relations)
    owned =
        plan.layers.front().reads_edges()
            ? read_edges<T>(grid, store, owners->roles, settings.gather, needs_edge_ids(settings), dropped)
            : read_owned_adjacency<T>(grid, store, owners->roles, settings.gather, dropped);
  RelationOperands<T> relations(grid, store);
  if (has_relations)
    for (auto const& layer : plan.layers)
      operands.relations.push_back(
          owned ? owned->relations
          : layer.relations->attention
              ? relations.get_edges(layer.owners->roles, layer.relations->drops_coefficients)
          : layer.owners ? relations.get(layer.owners->roles, layer.relations->root_types)
                         : relations.get(layer.adjacency, layer.relations->root_types, layer.is_even));
  for (auto const& layer : plan.layers)
    operands.adjacency.push_back(owned ? Adjacency<T>(*owned)
                                 : layer.aggregates() && !layer.relations
                                     ? Adjacency<T>(blocks.get(layer.adjacency, layer.is_even))
                                     : Adjacency<T>());
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    operands.output_keys.push_back(
        has_output_keys(plan, settings, l) ? read_block_keys(grid, store, layer.result()) : BlockKeys{});
    if (needs_column_ids(layer)) {
      auto const columns = pmm::block_of(grid, layer.adjacency).columns;
      operands.column_ids.push_back(runtime::together(grid.group(), [&] {
        return read_ids(store, order_of(layer.adjacency.layout.column_order), columns);
      }));
    }
    operands.residuals.push_back(
        layer.is_residual ? read_residual_path<T>(grid, store, layer.residual_source(), layer.result())
                          : ResidualPath<T>{});
    operands.self_paths.push_back(
        layer.reads_itself() ? read_residual_path<T>(grid, store, layer.aggregated(), layer.aggregate())
                             : ResidualPath<T>{});
  }
  if (plan.teleport)
    for (auto const& site : plan.teleport->sites)
      operands.teleport_paths.push_back(read_residual_path<T>(grid, store, teleport_start(plan), site));
  if (plan.jump)
    for (std::size_t k = 0; k < plan.jump->layers.size(); ++k)
      operands.jump_paths.push_back(
          read_residual_path<T>(grid, store, plan.jump_source(k), plan.jump_target()));
  return operands;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template NetworkOperands<T> make_full_graph_operands(pmm::ProcessGrid const&, graph::GraphStore const&,    \
                                                       NetworkPlan const&, NetworkSettings const&);          \
  template NetworkOperands<T> make_full_graph_operands(                                                      \
      pmm::ProcessGrid const&, graph::GraphStore const&, NetworkPlan const&, NetworkSettings const&,         \
      InputFeatures<T>, std::optional<OwnedAdjacency<T>>, std::vector<pmm::DroppedBlock<T>>);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
