#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Turns a sampled batch into operands of a graph network: this rank's blocks of A~, its parts of features and targets, and the original ids
// that dropout is keyed by. There are two steps, so that a second thread can run the first:
//
//   maker.fill(epoch, index, batch);         // any thread: host memory only, zero bytes sent
//   network.unbind();
//   network.rebind(maker.operands(batch));    // main thread: Views on this memory (on a device: copies), and the rows to exchange
//   loss.set_batch_targets(maker.targets(batch), {batch.splits, batch.classes, batch.loss_weights, batch.numbers});

#include "models/gnn/batches/batch_edges.hpp"
#include "models/gnn/network/network_operands.hpp"
#include "models/parameters/device_copy.hpp"
#include "pmm/rows/row_loss.hpp"
#include "runtime/error.hpp"
#include "sampling/batch_builder.hpp"

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace orthant::models {

/// How edges of batches are weighted in a network: as asked for, or by relations if it knows them.
[[nodiscard]] inline sampling::BatchEdges batch_edges_for(NetworkPlan const& plan,
                                                          sampling::BatchEdges asked) {
  return plan.layers.front().relations ? sampling::BatchEdges::relations : asked;
}

/// A batch in host memory. Arrays are reused.
template<class T>
struct HostBatch {
  sampling::Batch<T> sample;
  HostEdges edges;                                  // of the batch's block, if layers read edges
  std::vector<T> edge_features;                     // [edges x features], if layers read them
  std::vector<pmm::HostRelationBlock<T>> relations; // [blocks of the sample]; empty without relations
  std::vector<std::int64_t> row_ids,
      column_ids;                // for `rows`, if needed rows are exchanged and edges are dropped
  std::vector<T> dense_features; // [rows x columns of the block], row-major
  HostSparseRows<T> sparse_features;
  std::vector<std::int8_t> splits;    // [rows of the logits] groups of RowTargets
  std::vector<std::int32_t> classes;  // [rows] or empty
  std::vector<std::int8_t> indicator; // [rows x classes of the block] or empty
  std::vector<double> loss_weights;   // [rows] or empty
  std::vector<double> numbers;        // [rows x targets of the block] or empty
  double seconds = 0;                 // duration of fill()
};

template<class T>
class BatchMaker {
 public:
  /// `plan`: plan of the network on the whole graph. `features`, `targets`: of the whole graph; batches get parts of them, and refer to
  /// trained features, which each pass reads anew.
  /// `gather`: rows that ranks exchange. `edges`: weights of a batch's edges, unless they have relations. Reads this rank's blocks of the store. Grid, store
  /// and sampler must outlive this object. Collective over the grid's group.
  BatchMaker(pmm::ProcessGrid const& grid, graph::GraphStore const& store, sampling::Sampler const& sampler,
             NetworkPlan const& plan, InputFeatures<T> const& features, pmm::RowTargets const& targets,
             pmm::Gather gather = pmm::Gather::all,
             sampling::BatchEdges edges = sampling::BatchEdges::rescale);

  /// Fills `batch`. Local. Does not use Kokkos or MPI, so any thread may call it, but only one at a time.
  void fill(std::int64_t epoch, std::int64_t index, HostBatch<T>& batch);

  /// The batch's operands for a network, and targets for a loss. They refer to `batch`, which must not change while they are used.
  /// targets() is local. operands() must be called once per fill(). It is collective over the grid's group if ranks may exchange
  /// only needed rows, and then removes all other rows from the batch's block.
  [[nodiscard]] NetworkOperands<T> operands(HostBatch<T>& batch) const;
  [[nodiscard]] pmm::RowTargets targets(HostBatch<T>& batch) const;

  /// Mean number of neighbors in the batch of a batch's vertex, without self loops. Collective over the grid's group; all ranks
  /// must name the same batch.
  [[nodiscard]] double num_kept_neighbours(std::int64_t epoch, std::int64_t index);

  /// Bytes of this object's tables and blocks, without features and batches.
  [[nodiscard]] std::int64_t num_bytes() const { return builder_.num_bytes(); }

 private:
  using RangeKey = std::pair<pmm::AxisSet, pmm::IndexOrder>;

  void add_range(pmm::AxisSet axes, pmm::IndexOrder order);
  [[nodiscard]] std::size_t range_of(pmm::AxisSet axes, pmm::IndexOrder order) const;
  /// Vertices of the batch that are rows of this rank's block in this layout.
  [[nodiscard]] sampling::SampledVertices const& rows_of(pmm::Layout const& layout,
                                                         sampling::Batch<T> const& sample) const;
  [[nodiscard]] NetworkPlan plan_of(sampling::Batch<T> const& sample) const;
  [[nodiscard]] BlockKeys keys_of(pmm::Placement const& placement, HostBatch<T>& batch) const;
  /// Positions of this rank's rows of this layout in an order of the whole graph.
  [[nodiscard]] std::vector<std::int64_t> positions_of(pmm::Layout const& layout, pmm::IndexOrder order,
                                                       sampling::Batch<T> const& sample) const;
  /// Cell sizes of a batch.
  [[nodiscard]] pmm::CellSizes cells_of(NetworkLayerPlan const& layer,
                                        sampling::Batch<T> const& sample) const;
  /// Appends blocks whose values each pass fills to `dropped`.
  [[nodiscard]] Adjacency<T> adjacency_of(NetworkLayerPlan const& layer, sampling::BlockHandle block,
                                          HostBatch<T>& batch,
                                          std::vector<pmm::DroppedBlock<T>>& dropped) const;
  /// Makes the adjacency, with its edges, for layers that read single edges in the schedule `rows`.
  [[nodiscard]] OwnedAdjacency<T> edges_of(NetworkLayerPlan const& layer, pmm::CellSizes const& sizes,
                                           HostBatch<T>& batch,
                                           std::vector<pmm::DroppedBlock<T>>& dropped) const;
  /// Ids of the rows and columns that the layer's block has after needed rows were selected.
  [[nodiscard]] BlockIds ids_of(NetworkLayerPlan const& layer, pmm::NeededRows const* needed,
                                HostBatch<T>& batch) const;
  [[nodiscard]] ResidualPath<T> path_of(pmm::Placement const& input, pmm::Placement const& output,
                                        sampling::Batch<T> const& sample) const;
  [[nodiscard]] InputFeatures<T> features_of(pmm::Placement const& placement, HostBatch<T>& batch) const;
  /// Lists the blocks of layers with relations, unless they attend.
  void fill_relation_blocks(HostBatch<T>& batch) const;
  [[nodiscard]] RelationOperand<T> relations_of(NetworkLayerPlan const& layer, sampling::BlockHandle block,
                                                HostBatch<T>& batch) const;

  pmm::ProcessGrid const& grid_;
  graph::GraphStore const& store_;
  std::int64_t num_vertices_;
  NetworkPlan plan_;
  pmm::Gather gather_;
  std::unique_ptr<DroppedBatch<T>> dropped_; // null if no edges are dropped
  sampling::BatchBuilder<T> builder_;
  std::map<RangeKey, std::size_t> ranges_;         // ranges of the builder
  std::vector<sampling::BlockHandle> blocks_;      // [layers]
  std::size_t owned_rows_ = 0, owned_columns_ = 0; // ranges of the builder, in the schedule `rows`

  bool has_sparse_features_;
  pmm::DistMatrix<T> trained_features_;     // empty unless they are trained
  runtime::Vector<std::int8_t> trains_row_; // of InputFeatures
  std::int64_t num_feature_columns_;        // of this rank's block
  std::size_t num_label_columns_;           // columns of the indicator; 0 with one class per vertex
  std::size_t num_number_columns_;          // targets of regression
  HostNumbers<T> feature_values_;           // of the dense block, or of its non-zeros
  HostNumbers<T> feature_scale_;            // sparse features: scales of the rows
  HostNumbers<runtime::Offset> feature_offsets_;
  HostNumbers<runtime::LocalColumn> feature_columns_;
  pmm::RowTargets targets_; // of the whole graph, on the host; views of the four members below
  HostNumbers<std::int8_t> splits_;
  HostNumbers<std::int32_t> classes_;
  HostNumbers<std::int8_t> indicator_;
  HostNumbers<double> numbers_;
};

extern template class BatchMaker<float>;
extern template class BatchMaker<double>;

} // namespace orthant::models
