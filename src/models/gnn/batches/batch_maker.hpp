#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Turns a sampled batch into operands of a graph network: this rank's blocks of A~, its parts of features and targets, and the original ids
// that dropout is keyed by. There are two steps, so that a second thread can run the first:
//
//   maker.fill(epoch, index, batch);         // any thread: host memory only, zero bytes sent
//   network.unbind();
//   network.rebind(maker.operands(batch));    // main thread: Views on this memory (on a device: copies), and the rows to exchange
//   maker.set_targets(batch, loss);
//
// Or kernels make the batch: start(epoch, index), and finish(batch) in place of fill().

#include "models/gnn/batches/batch_edges.hpp"
#include "models/gnn/batches/device_sampler.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/network/network_operands.hpp"
#include "models/parameters/device_copy.hpp"
#include "pmm/rows/row_loss.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/device/device_queue.hpp"
#include "runtime/device/kokkos_compat.hpp"
#include "runtime/error.hpp"
#include "sampling/batch_builder.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace orthant::models {

// Batches made by kernels where the step uses them: the sample (device_sampler.hpp), and the features and targets of its rows.

/// What kernels read of a batch: views of host memory, of copies of it, or of arrays that kernels have filled.
template<class T>
struct BatchViews {
  std::vector<runtime::Vector<std::int64_t>> ids; // original ids of the vertices, by range of the builder
  std::vector<BatchBlocks<T>> blocks;             // A~ and A~^T, by BlockHandle::index
  runtime::Vector<T> dense_features;              // [rows x columns of the block], row-major
  pmm::RowTargets targets;
};

/// Features and targets of the whole graph, of which a batch takes rows.
template<class T>
struct RowsOfGraph {
  std::size_t feature_range = 0, target_range = 0; // ranges of the builder: rows of features and of logits
  runtime::Vector<T> features;                     // [positions x num_columns], row-major; or empty
  std::int64_t num_columns = 0;
  pmm::RowTargets targets;
};

template<class T>
class DeviceBatches {
 public:
  /// As DeviceSampler's constructor, on a queue of its own.
  DeviceBatches(sampling::BatchBuilder<T> const& builder, RowsOfGraph<T> const& rows)
      : exec_(runtime::compat::instance_on<runtime::DefaultExec>(queue_.native())),
        rows_(rows),
        sampler_(exec_, builder) {}

  /// As DeviceSampler::start().
  void start(std::int64_t epoch, std::int64_t index) { sampler_.start(epoch, index); }
  /// Writes views of the batch of the last start(), which are valid until the start() after the next. Waits for its kernels.
  [[nodiscard]] DeviceBatch<T> const& finish(BatchViews<T>& views);

 private:
  /// Memory of the rows of a batch.
  struct Rows {
    runtime::GrowingVector<T> features{"orthant::models::batch/features"};
    runtime::GrowingVector<std::int8_t> groups{"orthant::models::batch/splits"};
    runtime::GrowingVector<std::int32_t> classes{"orthant::models::batch/classes"};
    runtime::GrowingVector<std::int8_t> indicator{"orthant::models::batch/indicator"};
    runtime::GrowingVector<double> weights{"orthant::models::batch/loss_weights"};
    runtime::GrowingVector<double> numbers{"orthant::models::batch/numbers"};
  };
  void gather_targets(DeviceBatch<T> const& batch, Rows& rows, pmm::RowTargets& targets);

  runtime::DeviceQueue queue_;
  runtime::DefaultExec exec_;
  RowsOfGraph<T> rows_;
  DeviceSampler<T> sampler_;
  std::array<Rows, 2> memories_;
  std::size_t current_ = 0;
};

extern template class DeviceBatches<float>;
extern template class DeviceBatches<double>;

/// How edges of batches are weighted in a network: as asked for, or by relations if it knows them.
[[nodiscard]] inline sampling::BatchEdges batch_edges_for(NetworkPlan const& plan,
                                                          sampling::BatchEdges asked) {
  return plan.layers.front().relations ? sampling::BatchEdges::relations : asked;
}

/// Where batches are made: by kernels where the step uses them, or on the host. automatic: by kernels if they run on a device and can make
/// the batches of the model.
enum class BatchPlace : std::uint8_t { automatic, device, host };
/// Accepts "auto", "device" or "host". Throws UserError for other words.
[[nodiscard]] BatchPlace parse_batch_place(std::string_view word);

/// A batch. Arrays are reused.
template<class T>
struct PreparedBatch {
  BatchViews<T> views;
  DeviceBatch<T> const* on_device = nullptr; // null: made on the host
  sampling::Batch<T> sample;    // of kernels: its number, and the vertices that the host asked for
  HostEdges edges;              // of the batch's block, if layers read edges
  std::vector<T> edge_features; // [edges x features], if layers read them
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
             sampling::BatchEdges edges = sampling::BatchEdges::rescale, BatchPlace place = BatchPlace::host);

  /// Whether kernels make the batches.
  [[nodiscard]] bool uses_kernels() const { return kernels_ != nullptr; }
  /// Enqueues the kernels that make a batch. The batch before the last one must no longer be in use. Sends nothing.
  void start(std::int64_t epoch, std::int64_t index) { kernels_->start(epoch, index); }
  /// batch := the batch of the last start(). Waits for its kernels.
  void finish(PreparedBatch<T>& batch);

  /// Fills `batch`. Local. Does not use Kokkos or MPI, so any thread may call it, but only one at a time.
  void fill(std::int64_t epoch, std::int64_t index, PreparedBatch<T>& batch);

  /// The batch's operands for a network. They refer to `batch`, which must not change while they are used. Must be called once per fill()
  /// or finish(). Collective over the grid's group if ranks may exchange only needed rows, and then removes all other rows from the batch's
  /// block.
  [[nodiscard]] NetworkOperands<T> operands(PreparedBatch<T>& batch) const;
  /// Sets the batch's targets, to which the loss then refers. Call it after operands(). Local.
  void set_targets(PreparedBatch<T>& batch, pmm::RowLoss<T>& loss) const;

  /// Mean number of neighbors in the batch of a batch's vertex, without self loops. Collective over the grid's group; all ranks
  /// must name the same batch.
  [[nodiscard]] double num_kept_neighbours(std::int64_t epoch, std::int64_t index);

 private:
  using RangeKey = std::pair<pmm::AxisSet, pmm::IndexOrder>;

  void add_range(pmm::AxisSet axes, pmm::IndexOrder order);
  [[nodiscard]] std::size_t range_of(pmm::AxisSet axes, pmm::IndexOrder order) const;
  [[nodiscard]] std::size_t range_of(pmm::Layout const& layout) const {
    return range_of(layout.rows, layout.row_order);
  }
  /// Writes the views of a batch that the host made.
  void lend_views(PreparedBatch<T>& batch) const;
  /// Vertices of the batch in a range of the builder, on the host; copied if kernels made them.
  [[nodiscard]] sampling::SampledVertices& vertices_of(std::size_t range, PreparedBatch<T>& batch) const;
  [[nodiscard]] NetworkPlan plan_of(PreparedBatch<T> const& batch) const;
  [[nodiscard]] BlockKeys keys_of(pmm::Placement const& placement, PreparedBatch<T> const& batch) const;
  /// Positions of this rank's rows of this layout in an order of the whole graph.
  [[nodiscard]] std::vector<std::int64_t> positions_of(pmm::Layout const& layout, pmm::IndexOrder order,
                                                       PreparedBatch<T>& batch) const;
  /// Cell sizes of a batch.
  [[nodiscard]] pmm::CellSizes cells_of(NetworkLayerPlan const& layer, PreparedBatch<T>& batch) const;
  /// Appends blocks whose values each pass fills to `dropped`.
  [[nodiscard]] Adjacency<T> adjacency_of(NetworkLayerPlan const& layer, sampling::BlockHandle block,
                                          PreparedBatch<T>& batch,
                                          std::vector<pmm::DroppedBlock<T>>& dropped) const;
  /// Makes the adjacency, with its edges, for layers that read single edges in the schedule `rows`.
  [[nodiscard]] OwnedAdjacency<T> edges_of(NetworkLayerPlan const& layer, pmm::CellSizes const& sizes,
                                           PreparedBatch<T>& batch,
                                           std::vector<pmm::DroppedBlock<T>>& dropped) const;
  /// Ids of the rows and columns that the layer's block has after needed rows were selected.
  [[nodiscard]] BlockIds ids_of(NetworkLayerPlan const& layer, pmm::NeededRows const* needed,
                                PreparedBatch<T>& batch) const;
  [[nodiscard]] ResidualPath<T> path_of(pmm::Placement const& input, pmm::Placement const& output,
                                        PreparedBatch<T>& batch) const;
  [[nodiscard]] InputFeatures<T> features_of(pmm::Placement const& placement, PreparedBatch<T>& batch) const;
  /// Lists the blocks of layers with relations, unless they attend.
  void fill_relation_blocks(PreparedBatch<T>& batch) const;
  [[nodiscard]] RelationOperand<T> relations_of(NetworkLayerPlan const& layer, sampling::BlockHandle block,
                                                PreparedBatch<T>& batch) const;

  pmm::ProcessGrid const& grid_;
  graph::GraphStore const& store_;
  std::int64_t num_vertices_;
  NetworkPlan plan_;
  pmm::Gather gather_;
  std::unique_ptr<DroppedBatch<T>> dropped_; // null if no edges are dropped
  sampling::BatchBuilder<T> builder_;
  std::unique_ptr<DeviceBatches<T>> kernels_;      // null if the host makes the batches
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
  pmm::RowTargets targets_; // of the whole graph, on the host; owns the memory of the four members below
  HostNumbers<std::int8_t> splits_;
  HostNumbers<std::int32_t> classes_;
  HostNumbers<std::int8_t> indicator_;
  HostNumbers<double> numbers_;
};

extern template class BatchMaker<float>;
extern template class BatchMaker<double>;

} // namespace orthant::models
