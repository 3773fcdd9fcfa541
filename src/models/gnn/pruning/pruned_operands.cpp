// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/pruning/pruned_network.hpp"

#include "models/gnn/operands/relation_operands.hpp"
#include "models/parameters/device_copy.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

using Places = std::vector<runtime::LocalColumn>;

/// Selects elements of `numbers`, `width` at a time.
template<class Number>
runtime::Vector<Number> picked(char const* label, runtime::Vector<Number> const& numbers,
                               Places const& places, std::size_t width = 1) {
  HostNumbers<Number> const all(numbers);
  std::vector<Number> kept;
  kept.reserve(places.size() * width);
  for (auto const place : places) {
    auto const row = all.values().subspan(static_cast<std::size_t>(place) * width, width);
    kept.insert(kept.end(), row.begin(), row.end());
  }
  return to_vector<Number>(label, kept);
}

/// Selects rows of sparse features and makes their transpose.
template<class T>
pmm::DistSparse<T> picked_rows(pmm::ProcessGrid const& grid, pmm::DistSparse<T> const& features,
                               pmm::Placement const& placement, Places const& rows) {
  auto const& whole = features.forward().block();
  HostNumbers<runtime::Offset> const offsets(whole.csr.row_offsets);
  HostNumbers<runtime::LocalColumn> const columns(whole.csr.columns);
  HostNumbers<T> const values(whole.csr.values);
  std::vector<runtime::Offset> kept_offsets{0};
  Places kept_columns;
  std::vector<T> kept_values;
  for (auto const row : rows) {
    auto const begin = static_cast<std::size_t>(offsets.values()[static_cast<std::size_t>(row)]);
    auto const end = static_cast<std::size_t>(offsets.values()[static_cast<std::size_t>(row) + 1]);
    auto const append = [&](auto const& from, auto& to) {
      auto const part = from.values().subspan(begin, end - begin);
      to.insert(to.end(), part.begin(), part.end());
    };
    append(columns, kept_columns);
    if (!values.values().empty()) append(values, kept_values);
    kept_offsets.push_back(std::ssize(kept_columns));
  }
  pmm::SparseBlock<T> block;
  block.csr = {std::ssize(rows), whole.csr.num_columns,
               to_vector<runtime::Offset>("orthant::models::csr/row_offsets", kept_offsets),
               to_vector<runtime::LocalColumn>("orthant::models::csr/columns", kept_columns),
               to_vector<T>("orthant::models::csr/values", kept_values)};
  if (whole.row_scale.extent(0) > 0)
    block.row_scale = picked("orthant::models::feature_scale", whole.row_scale, rows);
  return pmm::DistSparse<T>(grid, placement, block, pmm::Adjoint::kept);
}

template<class T>
InputFeatures<T> picked_features(pmm::ProcessGrid const& grid, InputFeatures<T> const& features,
                                 pmm::Placement const& placement, Places const& rows) {
  InputFeatures<T> kept;
  kept.is_sparse = features.is_sparse;
  kept.keys = {picked("orthant::models::original_ids", features.keys.original_ids, rows),
               features.keys.first_column};
  if (features.is_sparse) {
    kept.sparse = picked_rows(grid, features.sparse, placement, rows);
    return kept;
  }
  kept.dense = pmm::DistMatrix<T>(grid, placement, "orthant::models::features");
  auto const list = to_vector<runtime::LocalColumn>("orthant::models::kept_rows", rows);
  runtime::DefaultExec const exec;
  pmm::pick_rows(exec, grid.passes(), features.dense.storage(), list, placement.extents.columns,
                 kept.dense.storage());
  runtime::compat::fence(exec, "orthant::models::picked_features/the list is let go");
  return kept;
}

/// Ids of the block of the whole graph, if its layers need them.
IdsOfBlock ids_for(pmm::ProcessGrid const& grid, graph::GraphStore const& store, NetworkPlan const& plan,
                   NetworkSettings const& settings) {
  auto const& first = plan.layers.front();
  auto const attends_by_relation = first.relations && first.relations->attention;
  if (!plan.drops_edges && !attends_by_relation && !(first.reads_edges() && needs_edge_ids(settings)))
    return {};
  auto const& roles = first.owners.value().roles;
  return runtime::together(grid.group(), [&] {
    return attends_by_relation ? read_attention_ids(grid, store, roles, first.relations->drops_coefficients)
                               : read_ids_of_block(grid, store, roles);
  });
}

IdsOfBlock kept_ids(IdsOfBlock const& ids, PrunedRows const& rows, std::size_t l) {
  auto const kept = [](std::vector<std::int64_t> const& all, Places const& places) {
    return all.empty() ? all : pmm::at_places(all, places);
  };
  return {kept(ids.rows, rows.kept[l + 1].in_rows), kept(ids.columns, rows.kept[l].in_columns),
          kept(ids.own_rows, rows.kept[l + 1].own)};
}

/// Makes the operand of layers like `layer` from a block.
template<class T>
BlockOfLayers<T> make_block(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                            NetworkLayerPlan const& layer, OwnedBlock block, IdsOfBlock const& ids,
                            bool drops_edges, NetworkSettings const& settings) {
  auto const& owners = layer.owners.value();
  BlockOfLayers<T> made;
  if (layer.relations && layer.relations->attention) {
    made.adjacency.sizes = block.sizes;
    made.adjacency.relations = make_attention_operand<T>(grid, facts, owners.roles, block.sizes,
                                                         entries_of(std::move(block.csr), facts, {}), ids);
    return made;
  }
  if (layer.relations) {
    made.adjacency =
        make_relations<T>(grid, facts, owners.roles, layer.relations->root_types, std::move(block));
    return made;
  }
  if (layer.reads_edges()) {
    made.adjacency = make_edges<T>(grid, owners.roles, std::move(block), ids, settings.gather,
                                   drops_edges ? &made.dropped : nullptr);
    return made;
  }
  made.adjacency =
      make_owned_adjacency<T>(grid, owners.roles, std::move(block), settings.gather, owners.backward);
  if (drops_edges)
    runtime::together(grid.group(), [&] { drop_values(made.adjacency, ids, owners.backward, made.dropped); });
  return made;
}

/// Path from the rows of F_k to those of F_l, which are a part of them.
template<class T>
ResidualPath<T> path_between(PrunedRows const& rows, std::size_t k, std::size_t l) {
  if (rows.kept[k].num_global == rows.kept[l].num_global) return ResidualPath<T>::local();
  // Positions of the rows of F_l among those of F_k; both ascend.
  auto const& inputs = rows.kept[k].own;
  Places places;
  for (auto const row : rows.kept[l].own)
    places.push_back(
        static_cast<runtime::LocalColumn>(std::ranges::lower_bound(inputs, row) - inputs.begin()));
  return ResidualPath<T>::of_kept_rows(
      std::make_shared<pmm::RowSelection>(pmm::make_row_selection(places, std::ssize(inputs))));
}

} // namespace

template<class T>
BlockOfLayers<T> make_whole_block(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                  NetworkPlan const& plan, NetworkSettings const& settings,
                                  OwnedBlock const& block) {
  auto const& first = plan.layers.front();
  return make_block<T>(grid, store.facts(), first, block, ids_for(grid, store, plan, settings),
                       plan.drops_edges, settings);
}

template<class T>
NetworkOperands<T> make_pruned_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                        NetworkPlan const& plan, NetworkSettings const& settings,
                                        PrunedRows const& rows, InputFeatures<T> const& features,
                                        std::optional<BlockOfLayers<T>> const& whole) {
  NetworkOperands<T> operands;
  operands.plan = pruned_plan(grid, plan, rows);
  auto const ids = read_block_keys(grid, store, plan.logits()).original_ids;
  auto const ids_of_block = ids_for(grid, store, plan, settings);
  auto const add_dropped = [&](BlockOfLayers<T> const& block) {
    operands.dropped.insert(operands.dropped.end(), block.dropped.begin(), block.dropped.end());
  };
  if (rows.needs_whole_block()) {
    ORTHANT_REQUIRE(whole, "layers that keep all rows need the block of the whole graph");
    add_dropped(*whole);
  }
  operands.features = rows.is_whole(0)
                          ? features
                          : picked_features(grid, features, operands.plan.features(), rows.kept[0].own);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto& layer = operands.plan.layers[l];
    auto const& outputs = rows.kept[l + 1].own;
    if (!layer.aggregates()) {
      operands.adjacency.emplace_back();
    } else if (rows.has_whole_block(l)) {
      operands.adjacency.push_back(whole->adjacency);
    } else if (rows.shares_block(l)) {
      operands.adjacency.push_back(operands.adjacency.back());
      auto const& before = *operands.plan.layers[l - 1].owners->kept;
      layer.owners->kept->needed = before.needed;
      layer.owners->kept->relation_edges = before.relation_edges;
    } else {
      auto const made =
          make_block<T>(grid, store.facts(), layer, kept_block(grid, layer.owners->roles, rows, l),
                        kept_ids(ids_of_block, rows, l), plan.drops_edges, settings);
      layer.owners->kept->needed = needed_counts_of(made.adjacency);
      if (auto const& edges = made.adjacency.relations.edges)
        layer.owners->kept->relation_edges = edges->counts();
      add_dropped(made);
      operands.adjacency.push_back(made.adjacency);
    }
    if (layer.relations)
      operands.relations.push_back(std::get<OwnedAdjacency<T>>(operands.adjacency.back()).relations);
    operands.output_keys.push_back(has_output_keys(plan, settings, l)
                                       ? BlockKeys{picked("orthant::models::original_ids", ids, outputs), 0}
                                       : BlockKeys{});
    operands.residuals.push_back(layer.is_residual ? path_between<T>(rows, l, l + 1) : ResidualPath<T>());
    operands.self_paths.push_back(layer.brings_itself() ? path_between<T>(rows, l, l + 1)
                                                        : ResidualPath<T>());
    if (layer.teleport_site && *layer.teleport_site == operands.teleport_paths.size())
      operands.teleport_paths.push_back(path_between<T>(rows, operands.plan.teleport->first_layer, l + 1));
  }
  for (std::size_t k = 0; plan.jump && k < plan.jump->layers.size(); ++k)
    operands.jump_paths.push_back(
        path_between<T>(rows, plan.jump->layers[k] + 1, operands.plan.layers.size()));
  return operands;
}

pmm::RowTargets pruned_targets(pmm::RowTargets const& targets, PrunedRows const& rows) {
  auto const& places = rows.kept.back().own;
  pmm::RowTargets kept;
  kept.groups = picked("orthant::models::splits", targets.groups, places);
  if (targets.classes.extent(0) > 0)
    kept.classes = picked("orthant::models::classes", targets.classes, places);
  auto const keep = [&]<class Number>(char const* label, runtime::Matrix<Number> const& from,
                                      runtime::Matrix<Number>& to) {
    auto const num_columns = from.extent(1);
    if (num_columns == 0) return;
    using Flat = runtime::Vector<Number>;
    to = runtime::Matrix<Number>(std::string(label), places.size(), num_columns);
    Kokkos::deep_copy(Flat(to.data(), to.size()),
                      picked(label, Flat(from.data(), from.size()), places, num_columns));
  };
  keep("orthant::models::label_indicator", targets.indicator, kept.indicator);
  keep("orthant::models::numbers", targets.numbers, kept.numbers);
  return kept;
}

template NetworkOperands<float> make_pruned_operands(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                     NetworkPlan const&, NetworkSettings const&,
                                                     PrunedRows const&, InputFeatures<float> const&,
                                                     std::optional<BlockOfLayers<float>> const&);
template NetworkOperands<double> make_pruned_operands(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                      NetworkPlan const&, NetworkSettings const&,
                                                      PrunedRows const&, InputFeatures<double> const&,
                                                      std::optional<BlockOfLayers<double>> const&);
template BlockOfLayers<float> make_whole_block(pmm::ProcessGrid const&, graph::GraphStore const&,
                                               NetworkPlan const&, NetworkSettings const&, OwnedBlock const&);
template BlockOfLayers<double> make_whole_block(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                NetworkPlan const&, NetworkSettings const&,
                                                OwnedBlock const&);

} // namespace orthant::models
