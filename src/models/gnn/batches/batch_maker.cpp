// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/batches/batch_maker.hpp"

#include "models/gnn/batches/batch_plan.hpp"
#include "runtime/arrays/growing_list.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <span>

namespace orthant::models {
namespace {

using pmm::AxisSet;
using pmm::IndexOrder;

/// to[i,:] := from[rows[i],:]
template<class T>
void gather_rows(std::span<T const> from, std::vector<std::int32_t> const& rows,
                 std::integral auto num_columns, std::vector<T>& to) {
  auto const width = static_cast<std::size_t>(num_columns);
  runtime::resize_for_writing(to, rows.size() * width);
  for (auto* target = to.data(); auto const row : rows)
    target = std::copy_n(from.data() + static_cast<std::size_t>(row) * width, width, target);
}

} // namespace

template<class T>
BatchMaker<T>::BatchMaker(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                          sampling::Sampler const& sampler, NetworkPlan const& plan,
                          InputFeatures<T> const& features, pmm::RowTargets const& targets,
                          pmm::Gather gather, sampling::BatchEdges edges)
    : grid_(grid),
      store_(store),
      num_vertices_(store.facts().num_vertices),
      plan_(plan),
      gather_(gather),
      dropped_(plan.drops_edges ? std::make_unique<DroppedBatch<T>>() : nullptr),
      builder_(grid.group(), store, sampler, batch_edges_for(plan, edges)),
      has_sparse_features_(features.is_sparse),
      num_feature_columns_(pmm::block_of(grid, plan.features()).columns.size()),
      num_label_columns_(targets.indicator.extent(1)),
      num_number_columns_(targets.numbers.extent(1)),
      targets_(targets),
      splits_(targets.groups),
      classes_(targets.classes),
      indicator_(runtime::Vector<std::int8_t>(targets.indicator.data(), targets.indicator.size())),
      numbers_(runtime::Vector<double>(targets.numbers.data(), targets.numbers.size())) {
  for_each_vertex_matrix(plan_, [&](pmm::Placement const& placement) {
    add_range(placement.layout.rows, placement.layout.row_order);
  });
  for (auto const& layer : plan_.layers) {
    if (layer.owners) {
      auto const& roles = layer.owners->roles;
      auto const rows = pmm::block_rows(grid.shape(), grid.coordinates(), roles, num_vertices_);
      auto const columns = pmm::block_columns(grid.shape(), grid.coordinates(), roles, num_vertices_);
      owned_rows_ = builder_.add_ranges(graph::Order::p1, rows);
      owned_columns_ = builder_.add_ranges(graph::Order::p1, columns);
      blocks_.push_back(builder_.add_block(rows, columns));
      continue;
    }
    if (layer.is_residual || layer.reads_itself() || layer.teleport_site ||
        plan_.jump) { // without braces nvcc 13 fails
      for (auto const& layout : {layer.input.layout, layer.output.layout})
        builder_.add_other_positions(range_of(layout.rows, layout.row_order));
    }
    if (!layer.aggregates()) {
      blocks_.emplace_back(); // unused
      continue;
    }
    add_range(layer.adjacency.layout.columns, layer.adjacency.layout.column_order);
    auto const block = pmm::block_of(grid, layer.adjacency);
    blocks_.push_back(builder_.add_block(layer.is_even ? graph::Parity::even : graph::Parity::odd, block.rows,
                                         block.columns));
  }
  if (plan_.trained_features) {
    trained_features_ = features.dense;
    trains_row_ = features.trains_row;
    return;
  }
  if (!has_sparse_features_) {
    feature_values_ = HostNumbers<T>(features.dense.storage());
    return;
  }
  auto const& block = features.sparse.forward().block();
  feature_values_ = HostNumbers<T>(block.csr.values);
  feature_scale_ = HostNumbers<T>(block.row_scale);
  feature_offsets_ = HostNumbers<runtime::Offset>(block.csr.row_offsets);
  feature_columns_ = HostNumbers<runtime::LocalColumn>(block.csr.columns);
}

template<class T>
void BatchMaker<T>::add_range(AxisSet axes, IndexOrder order) {
  auto const [entry, is_new] = ranges_.try_emplace({axes, order}, 0);
  if (is_new)
    entry->second = builder_.add_range(order_of(order),
                                       pmm::part_of(grid_.shape(), grid_.coordinates(), axes, num_vertices_));
}

template<class T>
std::size_t BatchMaker<T>::range_of(AxisSet axes, IndexOrder order) const {
  auto const known = ranges_.find({axes, order});
  ORTHANT_REQUIRE(known != ranges_.end(), "no matrix has its vertices along ", pmm::name_of(axes));
  return known->second;
}

template<class T>
sampling::SampledVertices const& BatchMaker<T>::rows_of(pmm::Layout const& layout,
                                                        sampling::Batch<T> const& sample) const {
  return sample.vertices[range_of(layout.rows, layout.row_order)];
}

template<class T>
void BatchMaker<T>::fill(std::int64_t epoch, std::int64_t index, HostBatch<T>& batch) {
  auto const& clock = grid_.world().instruments().clock;
  auto const begin = clock.work_seconds();
  builder_.build(epoch, index, batch.sample);
  if (auto const& first = plan_.layers.front(); first.owners && first.reads_edges()) {
    fill_edges(batch.sample.forward(blocks_.front()), batch.edges);
    fill_edge_features(builder_.edge_features(blocks_.front()), first.num_edge_features(), batch.edges,
                       batch.edge_features);
  }
  fill_relation_blocks(batch);

  auto const& feature_rows = rows_of(plan_.features().layout, batch.sample).positions;
  if (has_sparse_features_)
    fill_sparse_rows<T>(feature_rows, num_feature_columns_,
                        {feature_offsets_.values(), feature_columns_.values(), feature_values_.values(),
                         feature_scale_.values()},
                        batch.sparse_features);
  else if (!plan_.trained_features)
    gather_rows(feature_values_.values(), feature_rows, num_feature_columns_, batch.dense_features);

  auto const& logit_rows = rows_of(plan_.logits().layout, batch.sample).positions;
  gather_rows(splits_.values(), logit_rows, 1, batch.splits);
  if (!classes_.values().empty()) gather_rows(classes_.values(), logit_rows, 1, batch.classes);
  gather_rows(indicator_.values(), logit_rows, num_label_columns_, batch.indicator);
  gather_rows(numbers_.values(), logit_rows, num_number_columns_, batch.numbers);
  auto const& weight_of = batch.sample.keys.loss_weights;
  batch.loss_weights.clear();
  if (!weight_of.empty()) {
    batch.loss_weights.assign(logit_rows.size(), weight_of.front());
    auto const& groups = rows_of(plan_.logits().layout, batch.sample).strata;
    for (std::size_t i = 0; i < groups.size(); ++i)
      batch.loss_weights[i] = weight_of[static_cast<std::size_t>(groups[i])];
  }
  batch.seconds = clock.work_seconds() - begin;
}

template<class T>
void BatchMaker<T>::fill_relation_blocks(HostBatch<T>& batch) const {
  if (auto const& of = plan_.layers.front().relations; !of || of->attention) return;
  batch.relations.resize(batch.sample.blocks.size());
  for (std::size_t l = 0; l < blocks_.size(); ++l) {
    auto const first = std::ranges::find(blocks_, blocks_[l]) - blocks_.begin();
    if (first < static_cast<std::ptrdiff_t>(l)) continue; // layers share a block
    auto const& layer = plan_.layers[l];
    auto const& layout = layer.adjacency.layout;
    auto const rows = layer.owners ? owned_rows_ : range_of(layout.rows, layout.row_order);
    fill_relations(store_.facts(), layer.relations->root_types, batch.sample.forward(blocks_[l]),
                   batch.sample.vertices[rows].original_ids, batch.relations[blocks_[l].index]);
  }
}

template<class T>
RelationOperand<T> BatchMaker<T>::relations_of(NetworkLayerPlan const& layer, sampling::BlockHandle block,
                                               HostBatch<T>& batch) const {
  auto const& sample = batch.sample;
  auto sizes = layer.owners ? cells_of(layer, sample) : pmm::CellSizes();
  if (!layer.relations->attention) return lend_relations(batch.relations[block.index], std::move(sizes));
  auto const ids_of = [&, drops = layer.relations->drops_coefficients](std::size_t range) {
    return drops ? sample.vertices[range].original_ids : std::vector<std::int64_t>();
  };
  return make_attention_operand<T>(
      grid_, store_.facts(), layer.owners->roles, std::move(sizes),
      entries_of(sample.forward(block), store_.facts(), {}),
      {ids_of(owned_rows_), ids_of(owned_columns_), rows_of(layer.result().layout, sample).original_ids});
}

template<class T>
double BatchMaker<T>::num_kept_neighbours(std::int64_t epoch, std::int64_t index) {
  sampling::Batch<T> sample;
  builder_.build(epoch, index, sample);
  auto const& block =
      sample.forward(blocks_.front()); // other ranks may have it, too: the quotient does not change
  std::array sums{static_cast<double>(block.num_nonzeros()),
                  static_cast<double>(block.num_rows) * static_cast<double>(block.num_columns)};
  runtime::all_reduce(runtime::host, grid_.group(), std::span(sums));
  return sums[1] == 0 ? 0.0 : sums[0] / sums[1] * static_cast<double>(sample.keys.size());
}

template<class T>
NetworkPlan BatchMaker<T>::plan_of(sampling::Batch<T> const& sample) const {
  return plan_of_batch(plan_, sample.keys.size(), grid_.shape(), grid_.coordinates(),
                       [&](AxisSet axes, IndexOrder order) {
                         return static_cast<std::int64_t>(sample.vertices[range_of(axes, order)].size());
                       });
}

template<class T>
BlockKeys BatchMaker<T>::keys_of(pmm::Placement const& placement, HostBatch<T>& batch) const {
  auto& vertices = batch.sample.vertices[range_of(placement.layout.rows, placement.layout.row_order)];
  return {lent("orthant::models::batch/original_ids", vertices.original_ids),
          pmm::block_of(grid_, placement).columns.begin};
}

template<class T>
std::vector<std::int64_t> BatchMaker<T>::positions_of(pmm::Layout const& layout, IndexOrder order,
                                                      sampling::Batch<T> const& sample) const {
  auto const& vertices = rows_of(layout, sample);
  if (layout.row_order != order) return vertices.other_positions;
  auto const range = pmm::part_of(grid_.shape(), grid_.coordinates(), layout.rows, num_vertices_);
  std::vector<std::int64_t> positions;
  positions.reserve(vertices.size());
  for (auto const position : vertices.positions)
    positions.push_back(range.begin + position);
  return positions;
}

template<class T>
pmm::CellSizes BatchMaker<T>::cells_of(NetworkLayerPlan const& layer,
                                       sampling::Batch<T> const& sample) const {
  auto const& roles = layer.owners->roles;
  auto const whole = pmm::contiguous_cells(grid_.shape(), grid_.coordinates(), roles, num_vertices_);
  auto const& rows = sample.vertices[owned_rows_].positions;
  auto const& columns = sample.vertices[owned_columns_].positions;
  auto const own_slab = pmm::range_of(whole.over_c, grid_.coordinate(roles.c)).begin;
  return {pmm::counts_by_slab(columns, whole.over_b, own_slab), pmm::counts_by_slab(columns, whole.over_c),
          pmm::counts_by_slab(rows, whole.over_a)};
}

template<class T>
BlockIds BatchMaker<T>::ids_of(NetworkLayerPlan const& layer, pmm::NeededRows const* needed,
                               HostBatch<T>& batch) const {
  auto& vertices = batch.sample.vertices;
  auto const lend = [](std::vector<std::int64_t>& rows, std::vector<std::int64_t>& columns) -> BlockIds {
    return {lent("orthant::models::batch/row_ids", rows), lent("orthant::models::batch/column_ids", columns)};
  };
  if (!layer.owners) {
    auto const& layout = layer.adjacency.layout;
    return lend(vertices[range_of(layout.rows, layout.row_order)].original_ids,
                vertices[range_of(layout.columns, layout.column_order)].original_ids);
  }
  auto& rows = vertices[owned_rows_].original_ids;
  auto& columns = vertices[owned_columns_].original_ids;
  if (needed == nullptr) return lend(rows, columns);
  auto const touched = [](std::vector<std::int64_t> ids, std::optional<pmm::NeededSlabs> const& axis) {
    return axis ? pmm::at_places(std::move(ids), axis->touched) : ids;
  };
  batch.row_ids = touched(rows, needed->over_a);
  batch.column_ids = touched(columns, needed->over_c);
  return lend(batch.row_ids, batch.column_ids);
}

template<class T>
OwnedAdjacency<T> BatchMaker<T>::edges_of(NetworkLayerPlan const& layer, pmm::CellSizes const& sizes,
                                          HostBatch<T>& batch,
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
                                         HostBatch<T>& batch,
                                         std::vector<pmm::DroppedBlock<T>>& dropped) const {
  auto& sample = batch.sample;
  auto const sizes = layer.owners ? cells_of(layer, sample) : pmm::CellSizes{};
  if (layer.owners && layer.reads_edges()) return edges_of(layer, sizes, batch, dropped);
  std::shared_ptr<pmm::NeededRows const> needed;
  if (layer.owners && gather_ != pmm::Gather::all)
    needed = keep_needed_rows(grid_, layer.owners->roles, sizes, sample.blocks[block.index], gather_);
  BatchBlocks<T> blocks{to_sparse_block(sample.forward(block)), to_sparse_block(sample.adjoint(block))};
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
                                       sampling::Batch<T> const& sample) const {
  if (input == output) return ResidualPath<T>::local();
  auto const in = input.layout, out = output.layout;
  auto const in_by_out = positions_of(in, out.row_order, sample);
  auto const in_by_in = positions_of(in, in.row_order, sample);
  auto const out_by_out = positions_of(out, out.row_order, sample);
  auto const out_by_in = positions_of(out, in.row_order, sample);
  return {std::make_shared<pmm::Relayout<T> const>(
              grid_, input, output, pmm::SampledRows{num_vertices_, in_by_out, out_by_out, out_by_in}),
          std::make_shared<pmm::Relayout<T> const>(
              grid_, output, input, pmm::SampledRows{num_vertices_, out_by_in, in_by_in, in_by_out})};
}

template<class T>
InputFeatures<T> BatchMaker<T>::features_of(pmm::Placement const& placement, HostBatch<T>& batch) const {
  InputFeatures<T> features;
  features.is_sparse = has_sparse_features_;
  features.keys = keys_of(placement, batch);
  if (plan_.trained_features) {
    auto const range = range_of(placement.layout.rows, placement.layout.row_order);
    features.dense = trained_features_;
    features.trains_row = trains_row_;
    features.rows =
        feature_rows(grid_, trained_features_.placement(), batch.sample.vertices[range].positions);
    return features;
  }
  if (!has_sparse_features_) {
    features.dense =
        pmm::DistMatrix<T>(grid_, placement, lent("orthant::models::batch/features", batch.dense_features));
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
NetworkOperands<T> BatchMaker<T>::operands(HostBatch<T>& batch) const {
  NetworkOperands<T> operands;
  operands.plan = plan_of(batch.sample);
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
    operands.residuals.push_back(layer.is_residual
                                     ? path_of(layer.residual_source(), layer.result(), batch.sample)
                                     : ResidualPath<T>{});
    operands.self_paths.push_back(layer.reads_itself()
                                      ? path_of(layer.aggregated(), layer.aggregate(), batch.sample)
                                      : ResidualPath<T>{});
  }
  if (auto const& teleport = operands.plan.teleport)
    for (auto const& site : teleport->sites)
      operands.teleport_paths.push_back(path_of(teleport_start(operands.plan), site, batch.sample));
  if (auto const& jump = operands.plan.jump)
    for (std::size_t k = 0; k < jump->layers.size(); ++k)
      operands.jump_paths.push_back(
          path_of(operands.plan.jump_source(k), operands.plan.jump_target(), batch.sample));
  return operands;
}

template<class T>
pmm::RowTargets BatchMaker<T>::targets(HostBatch<T>& batch) const {
  auto const num_rows = batch.splits.size();
  return {lent("orthant::models::batch/splits", batch.splits),
          lent("orthant::models::batch/classes", batch.classes),
          lent_matrix("orthant::models::batch/indicator", batch.indicator, num_rows, num_label_columns_),
          lent("orthant::models::batch/loss_weights", batch.loss_weights),
          lent_matrix("orthant::models::batch/numbers", batch.numbers, num_rows, num_number_columns_)};
}

template class BatchMaker<float>;
template class BatchMaker<double>;

} // namespace orthant::models
