#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// From a sampled batch to what a GCN runs on: this rank's blocks of A~, its slice of the features and of the
// targets, and the original ids that dropout is keyed by. In two steps, so that a second thread can do the
// first:
//
//   maker.fill(epoch, index, batch);         // any thread: host memory only, zero bytes sent
//   network.unbind();
//   network.rebind(maker.operands(batch));    // the main thread: Views on that memory, or copies on a device,
//                                             // and which rows move between owners
//   loss.set_batch_targets(maker.targets(batch), {batch.splits, batch.classes});

#include "models/gnn/batches/batch_edges.hpp"
#include "models/gnn/network/network_operands.hpp"
#include "models/parameters/device_copy.hpp"
#include "pmm/rows/row_loss.hpp"
#include "sampling/batch_builder.hpp"

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace orthant::models {

/// Rows of a sparse feature matrix, and their transpose.
template<class T>
struct HostSparseRows {
  std::vector<runtime::Offset> row_offsets;    // [rows + 1]
  std::vector<runtime::LocalColumn> columns;   // [nnz]
  std::vector<T> values;                       // [nnz]; empty: a pattern
  std::vector<T> row_scale;                    // [rows]; empty: all 1
  std::vector<runtime::Offset> column_offsets; // [columns + 1] of the transpose
  std::vector<runtime::LocalColumn> rows;      // [nnz]
  std::vector<T> transposed_values;            // [nnz]; empty: a pattern
};

/// A batch in host memory. Arrays are used again.
template<class T>
struct HostBatch {
  sampling::Batch<T> sample;
  HostEdges edges; // of its block, if layers read edges
  std::vector<std::int64_t> row_ids,
      column_ids;                // of its block between owners, if needed rows move and edges are dropped
  std::vector<T> dense_features; // [rows x columns of the block], row-major
  HostSparseRows<T> sparse_features;
  std::vector<std::int8_t> splits;    // [rows of the logits], the groups of RowTargets
  std::vector<std::int32_t> classes;  // [rows] or empty
  std::vector<std::int8_t> indicator; // [rows x classes of the block] or empty
  std::vector<double> loss_weights;   // [rows] or empty
  double seconds = 0;                 // that fill() took
};

template<class T>
class BatchMaker {
 public:
  /// For a model that runs by `plan` on the whole graph; `features` and `targets` are those of the whole
  /// graph, of which batches are slices. `gather`: which rows move between owners. `edges`: how those of a batch
  /// are weighed. Reads this rank's blocks of the store. Grid, store and sampler must outlive it. Collective over
  /// the grid's group.
  BatchMaker(pmm::ProcessGrid const& grid, graph::GraphStore const& store, sampling::Sampler const& sampler,
             NetworkPlan const& plan, InputFeatures<T> const& features, pmm::RowTargets const& targets,
             pmm::Gather gather = pmm::Gather::all,
             sampling::BatchEdges edges = sampling::BatchEdges::rescale);

  /// Fills `batch`. Local; no Kokkos and no MPI, so any thread, one call at a time.
  void fill(std::int64_t epoch, std::int64_t index, HostBatch<T>& batch);

  /// What the batch gives a network and a loss. Lent: `batch` must stay as it is while they are used. Local;
  /// operands() is for once per fill(), and collective over the grid's group if owners may move needed rows
  /// only: it then takes all else out of the batch's block.
  [[nodiscard]] NetworkOperands<T> operands(HostBatch<T>& batch) const;
  [[nodiscard]] pmm::RowTargets targets(HostBatch<T>& batch) const;

  /// Neighbours in the batch of a vertex of the batch, self loops not counted, on average over that batch.
  /// Collective over the grid's group, whose ranks ask for the same batch.
  [[nodiscard]] double num_kept_neighbours(std::int64_t epoch, std::int64_t index);

  /// Bytes held by tables and blocks, without features and batches.
  [[nodiscard]] std::int64_t num_bytes() const { return builder_.num_bytes(); }

 private:
  using RangeKey = std::pair<pmm::AxisSet, pmm::IndexOrder>;

  void add_range(pmm::AxisSet axes, pmm::IndexOrder order);
  [[nodiscard]] std::size_t range_of(pmm::AxisSet axes, pmm::IndexOrder order) const;
  /// The batch's vertices that are this rank's rows of such a placement.
  [[nodiscard]] sampling::SampledVertices const& rows_of(pmm::Layout const& layout,
                                                         sampling::Batch<T> const& sample) const;
  [[nodiscard]] NetworkPlan plan_of(sampling::Batch<T> const& sample) const;
  [[nodiscard]] BlockKeys keys_of(pmm::Placement const& placement, HostBatch<T>& batch) const;
  /// Where this rank's rows of such a placement lie in the whole graph's numbering of that order.
  [[nodiscard]] std::vector<std::int64_t> positions_of(pmm::Layout const& layout, pmm::IndexOrder order,
                                                       sampling::Batch<T> const& sample) const;
  /// Sizes of the cells of a batch.
  [[nodiscard]] pmm::CellSizes cells_of(NetworkLayerPlan const& layer,
                                        sampling::Batch<T> const& sample) const;
  /// `dropped`: gets the blocks whose values a pass fills.
  [[nodiscard]] Adjacency<T> adjacency_of(NetworkLayerPlan const& layer, sampling::BlockHandle block,
                                          HostBatch<T>& batch,
                                          std::vector<pmm::DroppedBlock<T>>& dropped) const;
  /// Of what the layer's block has after needed rows were picked.
  [[nodiscard]] BlockIds ids_of(NetworkLayerPlan const& layer, pmm::NeededRows const* needed,
                                HostBatch<T>& batch) const;
  [[nodiscard]] ResidualPath<T> path_of(pmm::Placement const& input, pmm::Placement const& output,
                                        sampling::Batch<T> const& sample) const;
  [[nodiscard]] InputFeatures<T> features_of(pmm::Placement const& placement, HostBatch<T>& batch) const;
  void fill_sparse_features(std::vector<std::int32_t> const& rows, HostSparseRows<T>& sparse) const;

  pmm::ProcessGrid const& grid_;
  std::int64_t num_vertices_;
  NetworkPlan plan_;
  pmm::Gather gather_;
  std::unique_ptr<DroppedBatch<T>> dropped_; // null: no edges are dropped
  sampling::BatchBuilder<T> builder_;
  std::map<RangeKey, std::size_t> ranges_;         // of the builder
  std::vector<sampling::BlockHandle> blocks_;      // [layers]
  std::size_t owned_rows_ = 0, owned_columns_ = 0; // ranges of the builder, of a block between owners

  bool has_sparse_features_;
  std::int64_t num_feature_columns_; // of this rank's block
  std::int64_t num_label_columns_;   // of the indicator; 0 with one class a vertex
  HostNumbers<T> feature_values_;    // of the dense block, or of its non-zeros
  HostNumbers<T> feature_scale_;     // sparse: of the rows
  HostNumbers<runtime::Offset> feature_offsets_;
  HostNumbers<runtime::LocalColumn> feature_columns_;
  pmm::RowTargets targets_; // of the whole graph: the memory of the three below, on the host
  HostNumbers<std::int8_t> splits_;
  HostNumbers<std::int32_t> classes_;
  HostNumbers<std::int8_t> indicator_;
};

extern template class BatchMaker<float>;
extern template class BatchMaker<double>;

} // namespace orthant::models
