#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A rank's share of a batch, sampled by kernels where the step uses it: the same vertices and blocks, to the bit, as
// sampling::BatchBuilder finds on the host. It copies the tables of such a builder, and also keeps the transpose of each block, so that A~
// and A~^T are cut out in the same way:
//
//   members      a bit per key, set by the members of the batch
//   vertices     the positions of a range whose key is a member
//   entries      those of the sampled rows, laid end to end, whose column is one of the vertices
//   degrees      if edges are renormalized: number of the neighbors of a sampled vertex whose key is a member
//
// The last three are selections (device_selection.hpp). Work is shared out by 64 entries, so that many threads share a long row.
//
// The host reads the sizes of a batch once, in finish(). Arrays have the capacity of a batch that is larger than nearly all: the mean of a
// uniform draw, and six standard deviations. A batch that needs more is sampled again into longer arrays.

#include "models/gnn/batches/batch_edges.hpp"
#include "runtime/arrays/views.hpp"
#include "sampling/batch_builder.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace orthant::models {

/// As sampling::SampledVertices, in the memory of kernels.
struct DeviceVertices {
  runtime::Vector<std::int32_t> positions;
  runtime::Vector<std::int8_t> groups; // empty if there is one
  runtime::Vector<std::int64_t> original_ids;
  runtime::Vector<std::int64_t> other_positions; // empty unless the builder knows them
};

template<class T>
struct DeviceBatch {
  std::int64_t index = -1;
  sampling::BatchKeys keys;             // without the list of keys
  std::vector<DeviceVertices> vertices; // by range of the builder
  std::vector<BatchBlocks<T>> blocks;   // by BlockHandle::index
  double const* loss_weights = nullptr; // keys.loss_weights for kernels, until the next start(); or null
};

namespace device_sampling {
template<class T>
struct State;
} // namespace device_sampling

template<class T>
class DeviceSampler {
 public:
  /// Copies the tables of `builder`, whose sampler must outlive this object. Kernels run on `exec`. Throws Error if the builder lists
  /// relations or features of edges, or has more than 2^32 vertices.
  DeviceSampler(runtime::DefaultExec const& exec, sampling::BatchBuilder<T> const& builder);
  ~DeviceSampler();

  /// Enqueues the kernels that make a batch, in the memory of the batch before the last one, which must no longer be used. Does not fence.
  /// Sends nothing. Cost: O(positions of the ranges + entries of the sampled rows).
  void start(std::int64_t epoch, std::int64_t index);
  /// The batch of the last start(), until the start() after the next. Waits for its kernels, and copies its sizes to the host.
  [[nodiscard]] DeviceBatch<T> const& finish();

  /// Number of times that a batch was sampled again because its arrays were too short.
  [[nodiscard]] std::int64_t num_repeats() const;

 private:
  std::unique_ptr<device_sampling::State<T>> state_;
};

extern template class DeviceSampler<float>;
extern template class DeviceSampler<double>;

} // namespace orthant::models
