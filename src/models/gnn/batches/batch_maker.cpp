// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/batches/batch_maker.hpp"

#include "models/gnn/batches/batch_operands.hpp"
#include "runtime/arrays/growing_list.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <span>

namespace orthant::models {
namespace {

using runtime::GrowingVector;
using runtime::Vector;
using Each = Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>;

/// to[i,:] := from[positions[i],:]
template<class T>
struct GatherRows {
  std::int32_t const* positions;
  T const* from;
  std::int64_t width;
  T* to;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    to[i] = from[positions[i / width] * width + i % width];
  }
};

/// weights[i] := of_group[groups[i]]
struct GatherWeights {
  std::int8_t const* groups; // or null: all 0
  double const* of_group;
  double* weights;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    weights[i] = of_group[groups == nullptr ? 0 : groups[i]];
  }
};

/// The rows of a row-major matrix at these positions. `from` may be empty.
template<class T>
Vector<T> gather(runtime::DefaultExec const& exec, T const* from, std::int64_t width,
                 Vector<std::int32_t> const& positions, GrowingVector<T>& memory) {
  auto const count = width * static_cast<std::int64_t>(positions.extent(0));
  Vector<T> const rows(memory.reserve(count).data(), static_cast<std::size_t>(count));
  if (count > 0)
    Kokkos::parallel_for("orthant::models::gather_rows", Each(exec, 0, count),
                         GatherRows<T>{positions.data(), from, width, rows.data()});
  return rows;
}

} // namespace

template<class T>
void DeviceBatches<T>::gather_targets(DeviceBatch<T> const& batch, Rows& memory, pmm::RowTargets& targets) {
  auto const& vertices = batch.vertices[rows_.target_range];
  auto const& from = rows_.targets;
  auto const num_rows = vertices.positions.extent(0);
  auto const width_of = [](auto const& matrix) { return static_cast<std::int64_t>(matrix.extent(1)); };
  targets.groups = gather(exec_, from.groups.data(), 1, vertices.positions, memory.groups);
  targets.classes = gather(exec_, from.classes.data(), from.classes.extent(0) > 0 ? 1 : 0, vertices.positions,
                           memory.classes);
  targets.indicator = runtime::Matrix<std::int8_t>(
      gather(exec_, from.indicator.data(), width_of(from.indicator), vertices.positions, memory.indicator)
          .data(),
      num_rows, from.indicator.extent(1));
  targets.numbers = runtime::Matrix<double>(
      gather(exec_, from.numbers.data(), width_of(from.numbers), vertices.positions, memory.numbers).data(),
      num_rows, from.numbers.extent(1));
  targets.weights = {};
  if (batch.loss_weights == nullptr) return;
  targets.weights =
      Vector<double>(memory.weights.reserve(static_cast<std::int64_t>(num_rows)).data(), num_rows);
  Kokkos::parallel_for("orthant::models::gather_weights", Each(exec_, 0, static_cast<std::int64_t>(num_rows)),
                       GatherWeights{vertices.groups.extent(0) == 0 ? nullptr : vertices.groups.data(),
                                     batch.loss_weights, targets.weights.data()});
}

template<class T>
DeviceBatch<T> const& DeviceBatches<T>::finish(BatchViews<T>& views) {
  auto const& batch = sampler_.finish();
  current_ = 1 - current_;
  auto& memory = memories_[current_];
  views.ids.clear();
  for (auto const& vertices : batch.vertices)
    views.ids.push_back(vertices.original_ids);
  views.blocks = batch.blocks;
  views.dense_features =
      gather(exec_, rows_.features.data(), rows_.features.extent(0) > 0 ? rows_.num_columns : 0,
             batch.vertices[rows_.feature_range].positions, memory.features);
  gather_targets(batch, memory, views.targets);
  runtime::compat::fence(exec_, "orthant::models::DeviceBatches/rows of a batch");
  return batch;
}

template class DeviceBatches<float>;
template class DeviceBatches<double>;

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
                          pmm::Gather gather, sampling::BatchEdges edges, BatchPlace place)
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
  auto const is_on_device = !pmm::runs_on_host;
  if (place == BatchPlace::device || (place == BatchPlace::automatic && is_on_device)) {
    if (fits_kernels(store.facts(), plan_, gather, grid.group().size())) {
      gather_ = pmm::Gather::all; // kernels list no rows to exchange
      kernels_ = std::make_unique<DeviceBatches<T>>(
          builder_, RowsOfGraph<T>{range_of(plan_.features().layout), range_of(plan_.logits().layout),
                                   plan_.trained_features ? runtime::Vector<T>() : features.dense.storage(),
                                   num_feature_columns_, targets});
    } else if (place == BatchPlace::device) {
      runtime::throw_user("--batch-source device: kernels make batches of dense features, for layers that "
                          "multiply by A~, without --gather needed; take --batch-source host");
    }
  }
  if (plan_.trained_features) {
    trained_features_ = features.dense;
    trains_row_ = features.trains_row;
  }
  if (kernels_) { // which read the arrays themselves
    splits_ = {};
    classes_ = {};
    indicator_ = {};
    numbers_ = {};
  }
  if (kernels_ || plan_.trained_features) return;
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
sampling::SampledVertices& BatchMaker<T>::vertices_of(std::size_t range, PreparedBatch<T>& batch) const {
  auto& vertices = batch.sample.vertices[range];
  if (batch.on_device == nullptr || !vertices.positions.empty()) return vertices;
  auto const copy = [](auto const& view, auto& numbers) {
    numbers.resize(view.extent(0));
    using Number = typename std::remove_cvref_t<decltype(numbers)>::value_type;
    Kokkos::deep_copy(Kokkos::View<Number*, Kokkos::HostSpace>(numbers.data(), numbers.size()), view);
  };
  auto const& from = batch.on_device->vertices[range];
  copy(from.positions, vertices.positions);
  copy(from.other_positions, vertices.other_positions);
  return vertices;
}

template<class T>
void BatchMaker<T>::finish(PreparedBatch<T>& batch) {
  batch.on_device = &kernels_->finish(batch.views);
  batch.sample.index = batch.on_device->index;
  batch.sample.vertices.resize(batch.on_device->vertices.size());
  for (auto& vertices : batch.sample.vertices)
    vertices.positions.clear();
}

template<class T>
void BatchMaker<T>::fill(std::int64_t epoch, std::int64_t index, PreparedBatch<T>& batch) {
  auto const& clock = grid_.world().instruments().clock;
  auto const begin = clock.work_seconds();
  builder_.build(epoch, index, batch.sample);
  if (auto const& first = plan_.layers.front(); first.owners && first.reads_edges()) {
    fill_edges(batch.sample.forward(blocks_.front()), batch.edges);
    fill_edge_features(builder_.edge_features(blocks_.front()), first.num_edge_features(), batch.edges,
                       batch.edge_features);
  }
  fill_relation_blocks(batch);

  auto const& feature_rows = vertices_of(range_of(plan_.features().layout), batch).positions;
  if (has_sparse_features_)
    fill_sparse_rows<T>(feature_rows, num_feature_columns_,
                        {feature_offsets_.values(), feature_columns_.values(), feature_values_.values(),
                         feature_scale_.values()},
                        batch.sparse_features);
  else if (!plan_.trained_features)
    gather_rows(feature_values_.values(), feature_rows, num_feature_columns_, batch.dense_features);

  auto const& logit_vertices = vertices_of(range_of(plan_.logits().layout), batch);
  auto const& logit_rows = logit_vertices.positions;
  gather_rows(splits_.values(), logit_rows, 1, batch.splits);
  if (!classes_.values().empty()) gather_rows(classes_.values(), logit_rows, 1, batch.classes);
  gather_rows(indicator_.values(), logit_rows, num_label_columns_, batch.indicator);
  gather_rows(numbers_.values(), logit_rows, num_number_columns_, batch.numbers);
  auto const& weight_of = batch.sample.keys.loss_weights;
  batch.loss_weights.clear();
  if (!weight_of.empty()) {
    batch.loss_weights.assign(logit_rows.size(), weight_of.front());
    auto const& groups = logit_vertices.strata;
    for (std::size_t i = 0; i < groups.size(); ++i)
      batch.loss_weights[i] = weight_of[static_cast<std::size_t>(groups[i])];
  }
  batch.seconds = clock.work_seconds() - begin;
}

template<class T>
void BatchMaker<T>::fill_relation_blocks(PreparedBatch<T>& batch) const {
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
                                               PreparedBatch<T>& batch) const {
  auto const& sample = batch.sample;
  auto sizes = layer.owners ? cells_of(layer, batch) : pmm::CellSizes();
  if (!layer.relations->attention) return lend_relations(batch.relations[block.index], std::move(sizes));
  auto const ids_of = [&, drops = layer.relations->drops_coefficients](std::size_t range) {
    return drops ? sample.vertices[range].original_ids : std::vector<std::int64_t>();
  };
  return make_attention_operand<T>(grid_, store_.facts(), layer.owners->roles, std::move(sizes),
                                   entries_of(sample.forward(block), store_.facts(), {}),
                                   {ids_of(owned_rows_), ids_of(owned_columns_),
                                    sample.vertices[range_of(layer.result().layout)].original_ids});
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

template class BatchMaker<float>;
template class BatchMaker<double>;

} // namespace orthant::models
