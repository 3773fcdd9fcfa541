#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Operands of a batch: definitions of BatchMaker's members for batch_maker.cpp, which alone includes this file.

#include "models/gnn/batches/batch_maker.hpp"
#include "models/gnn/batches/batch_plan.hpp"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace orthant::models {

template<class T>
NetworkPlan BatchMaker<T>::plan_of(PreparedBatch<T> const& batch) const {
  auto const& keys = batch.on_device != nullptr ? batch.on_device->keys : batch.sample.keys;
  return plan_of_batch(plan_, keys.size(), grid_.shape(), grid_.coordinates(),
                       [&](pmm::AxisSet axes, pmm::IndexOrder order) {
                         return static_cast<std::int64_t>(batch.views.ids[range_of(axes, order)].extent(0));
                       });
}

template<class T>
BlockKeys BatchMaker<T>::keys_of(pmm::Placement const& placement, PreparedBatch<T> const& batch) const {
  return {batch.views.ids[range_of(placement.layout)], pmm::block_of(grid_, placement).columns.begin};
}

template<class T>
std::vector<std::int64_t> BatchMaker<T>::positions_of(pmm::Layout const& layout, pmm::IndexOrder order,
                                                      PreparedBatch<T>& batch) const {
  auto const& vertices = vertices_of(range_of(layout), batch);
  if (layout.row_order != order) return vertices.other_positions;
  auto const range = pmm::part_of(grid_.shape(), grid_.coordinates(), layout.rows, num_vertices_);
  std::vector<std::int64_t> positions;
  positions.reserve(vertices.size());
  for (auto const position : vertices.positions)
    positions.push_back(range.begin + position);
  return positions;
}

template<class T>
pmm::CellSizes BatchMaker<T>::cells_of(NetworkLayerPlan const& layer, PreparedBatch<T>& batch) const {
  auto const& roles = layer.owners->roles;
  if (grid_.group().size() == 1) {
    auto const size_of = [&](std::size_t range) {
      return std::vector{static_cast<std::int64_t>(batch.views.ids[range].extent(0))};
    };
    return {size_of(owned_columns_), size_of(owned_columns_), size_of(owned_rows_)};
  }
  auto const whole = pmm::contiguous_cells(grid_.shape(), grid_.coordinates(), roles, num_vertices_);
  auto const& rows = vertices_of(owned_rows_, batch).positions;
  auto const& columns = vertices_of(owned_columns_, batch).positions;
  auto const own_slab = pmm::range_of(whole.over_c, grid_.coordinate(roles.c)).begin;
  return {pmm::counts_by_slab(columns, whole.over_b, own_slab), pmm::counts_by_slab(columns, whole.over_c),
          pmm::counts_by_slab(rows, whole.over_a)};
}

template<class T>
BlockIds BatchMaker<T>::ids_of(NetworkLayerPlan const& layer, pmm::NeededRows const* needed,
                               PreparedBatch<T>& batch) const {
  auto const& ids = batch.views.ids;
  if (!layer.owners) {
    auto const& layout = layer.adjacency.layout;
    return {ids[range_of(layout)], ids[range_of(layout.columns, layout.column_order)]};
  }
  if (needed == nullptr) return {ids[owned_rows_], ids[owned_columns_]};
  auto const touched = [](std::vector<std::int64_t> of_axis, std::optional<pmm::NeededSlabs> const& axis) {
    return axis ? pmm::at_places(std::move(of_axis), axis->touched) : of_axis;
  };
  auto const& vertices = batch.sample.vertices;
  batch.row_ids = touched(vertices[owned_rows_].original_ids, needed->over_a);
  batch.column_ids = touched(vertices[owned_columns_].original_ids, needed->over_c);
  return {lent("orthant::models::batch/row_ids", batch.row_ids),
          lent("orthant::models::batch/column_ids", batch.column_ids)};
}

template<class T>
OwnedAdjacency<T> BatchMaker<T>::edges_of(NetworkLayerPlan const& layer, pmm::CellSizes const& sizes,
                                          PreparedBatch<T>& batch,
                                          std::vector<pmm::DroppedBlock<T>>& dropped) const {
  auto const needed = std::make_shared<pmm::NeededRows const>(plan_needed_rows(
      grid_, layer.owners->roles, sizes, {batch.edges.row_offsets, batch.edges.columns}, gather_));
  auto& vertices = batch.sample.vertices;
  auto edges =
      lend_edges(batch.edges, vertices[owned_rows_].original_ids, vertices[owned_columns_].original_ids);
  edges.moved_columns = pmm::make_moved_rows(needed->over_c);
  edges.moved_rows = pmm::make_moved_rows(needed->over_a);
  auto adjacency = adjacency_of_edges<T>(sizes, edges);
  adjacency.needed = needed;
  adjacency.edge_features = lent("orthant::models::batch/edge_features", batch.edge_features);
  if (dropped_)
    adjacency.forward = pmm::LocalSpmm<T>(
        dropped_->with_values(adjacency.forward.block(), {edges.row_ids, edges.column_ids}, dropped));
  return adjacency;
}

template<class T>
Adjacency<T> BatchMaker<T>::adjacency_of(NetworkLayerPlan const& layer, sampling::BlockHandle block,
                                         PreparedBatch<T>& batch,
                                         std::vector<pmm::DroppedBlock<T>>& dropped) const {
  auto const sizes = layer.owners ? cells_of(layer, batch) : pmm::CellSizes{};
  if (layer.owners && layer.reads_edges()) return edges_of(layer, sizes, batch, dropped);
  std::shared_ptr<pmm::NeededRows const> needed;
  auto& pair = batch.views.blocks[block.index];
  if (layer.owners && gather_ != pmm::Gather::all) {
    auto& sampled = batch.sample.blocks[block.index];
    needed = keep_needed_rows(grid_, layer.owners->roles, sizes, sampled, gather_);
    pair = {to_sparse_block(sampled.block), to_sparse_block(sampled.transposed)};
  }
  auto blocks = block.is_transposed ? BatchBlocks<T>{pair.adjoint, pair.forward} : pair;
  if (dropped_)
    blocks = dropped_->with_values(block.index, block.is_transposed, std::move(blocks),
                                   ids_of(layer, needed.get(), batch), dropped);
  pmm::LocalSpmm<T> forward(blocks.forward), adjoint(blocks.adjoint);
  if (layer.owners)
    return OwnedAdjacency<T>{sizes, std::move(forward), std::move(adjoint), std::move(needed)};
  return pmm::DistSparse<T>{grid_, layer.adjacency, std::move(forward), std::move(adjoint)};
}

template<class T>
ResidualPath<T> BatchMaker<T>::path_of(pmm::Placement const& input, pmm::Placement const& output,
                                       PreparedBatch<T>& batch) const {
  if (input == output) return ResidualPath<T>::local();
  auto const in = input.layout, out = output.layout;
  auto const in_by_out = positions_of(in, out.row_order, batch);
  auto const in_by_in = positions_of(in, in.row_order, batch);
  auto const out_by_out = positions_of(out, out.row_order, batch);
  auto const out_by_in = positions_of(out, in.row_order, batch);
  return {std::make_shared<pmm::Relayout<T> const>(
              grid_, input, output, pmm::SampledRows{num_vertices_, in_by_out, out_by_out, out_by_in}),
          std::make_shared<pmm::Relayout<T> const>(
              grid_, output, input, pmm::SampledRows{num_vertices_, out_by_in, in_by_in, in_by_out})};
}

template<class T>
InputFeatures<T> BatchMaker<T>::features_of(pmm::Placement const& placement, PreparedBatch<T>& batch) const {
  InputFeatures<T> features;
  features.is_sparse = has_sparse_features_;
  features.keys = keys_of(placement, batch);
  if (plan_.trained_features) {
    auto const range = range_of(placement.layout.rows, placement.layout.row_order);
    features.dense = trained_features_;
    features.trains_row = trains_row_;
    features.rows = feature_rows(grid_, trained_features_.placement(), vertices_of(range, batch).positions);
    return features;
  }
  if (!has_sparse_features_) {
    features.dense = pmm::DistMatrix<T>(grid_, placement, batch.views.dense_features);
    return features;
  }
  auto& sparse = batch.sparse_features;
  auto const num_rows = pmm::block_of(grid_, placement).rows.size();
  pmm::SparseBlock<T> forward;
  forward.csr = {num_rows, num_feature_columns_,
                 lent("orthant::models::batch/row_offsets", sparse.row_offsets),
                 lent("orthant::models::batch/columns", sparse.columns),
                 lent("orthant::models::batch/values", sparse.values)};
  forward.row_scale = lent("orthant::models::batch/row_scale", sparse.row_scale);
  pmm::SparseBlock<T> adjoint;
  adjoint.csr = {num_feature_columns_, num_rows,
                 lent("orthant::models::batch/row_offsets", sparse.column_offsets),
                 lent("orthant::models::batch/columns", sparse.rows),
                 lent("orthant::models::batch/values", sparse.transposed_values)};
  adjoint.column_scale = forward.row_scale;
  features.sparse =
      pmm::DistSparse<T>(grid_, placement, pmm::LocalSpmm<T>(forward), pmm::LocalSpmm<T>(adjoint));
  return features;
}

template<class T>
NetworkOperands<T> BatchMaker<T>::operands(PreparedBatch<T>& batch) const {
  if (batch.on_device == nullptr) lend_views(batch);
  NetworkOperands<T> operands;
  operands.plan = plan_of(batch);
  operands.features = features_of(operands.plan.features(), batch);
  if (dropped_) dropped_->begin();
  for (std::size_t l = 0; l < blocks_.size(); ++l) {
    auto const& layer = operands.plan.layers[l];
    // In the schedule `rows` all layers have the same block.
    auto const has_block = layer.owners || layer.aggregates();
    if (layer.relations)
      operands.relations.push_back(l > 0 && layer.owners ? operands.relations.front()
                                                         : relations_of(layer, blocks_[l], batch));
    operands.adjacency.push_back(layer.relations         ? Adjacency<T>()
                                 : l > 0 && layer.owners ? operands.adjacency.front()
                                 : has_block ? adjacency_of(layer, blocks_[l], batch, operands.dropped)
                                             : Adjacency<T>());
    if (needs_column_ids(layer)) operands.column_ids.push_back(ids_of(layer, nullptr, batch).columns);
    operands.output_keys.push_back(keys_of(layer.result(), batch));
    operands.residuals.push_back(layer.is_residual ? path_of(layer.residual_source(), layer.result(), batch)
                                                   : ResidualPath<T>{});
    operands.self_paths.push_back(layer.reads_itself() ? path_of(layer.aggregated(), layer.aggregate(), batch)
                                                       : ResidualPath<T>{});
  }
  if (auto const& teleport = operands.plan.teleport)
    for (auto const& site : teleport->sites)
      operands.teleport_paths.push_back(path_of(teleport_start(operands.plan), site, batch));
  if (auto const& jump = operands.plan.jump)
    for (std::size_t k = 0; k < jump->layers.size(); ++k)
      operands.jump_paths.push_back(
          path_of(operands.plan.jump_source(k), operands.plan.jump_target(), batch));
  return operands;
}

template<class T>
void BatchMaker<T>::lend_views(PreparedBatch<T>& batch) const {
  auto& views = batch.views;
  views.ids.clear();
  for (auto& vertices : batch.sample.vertices)
    views.ids.push_back(lent("orthant::models::batch/original_ids", vertices.original_ids));
  views.blocks.resize(batch.sample.blocks.size());
  auto const& first = plan_.layers.front();
  auto const are_lent_later = first.owners && (first.reads_edges() || gather_ != pmm::Gather::all);
  if (!first.relations && !are_lent_later)
    for (std::size_t b = 0; b < views.blocks.size(); ++b)
      views.blocks[b] = {to_sparse_block(batch.sample.blocks[b].block),
                         to_sparse_block(batch.sample.blocks[b].transposed)};
  views.dense_features = lent("orthant::models::batch/features", batch.dense_features);
  auto const num_rows = batch.splits.size();
  views.targets = {
      lent("orthant::models::batch/splits", batch.splits),
      lent("orthant::models::batch/classes", batch.classes),
      lent_matrix("orthant::models::batch/indicator", batch.indicator, num_rows, num_label_columns_),
      lent("orthant::models::batch/loss_weights", batch.loss_weights),
      lent_matrix("orthant::models::batch/numbers", batch.numbers, num_rows, num_number_columns_)};
}

template<class T>
void BatchMaker<T>::set_targets(PreparedBatch<T>& batch, pmm::RowLoss<T>& loss) const {
  if (batch.on_device != nullptr)
    loss.set_batch_targets(batch.views.targets);
  else
    loss.set_batch_targets(batch.views.targets,
                           {batch.splits, batch.classes, batch.loss_weights, batch.numbers});
}

} // namespace orthant::models
