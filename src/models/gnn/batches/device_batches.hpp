#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Batches made by kernels where the step uses them: the sample (device_sampler.hpp), and the features and targets of its rows.

#include "models/gnn/batches/batch_edges.hpp"
#include "models/gnn/batches/device_sampler.hpp"
#include "pmm/rows/row_loss.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/device/device_queue.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace orthant::models {

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

} // namespace orthant::models
