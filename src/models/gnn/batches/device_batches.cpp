// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/batches/device_batches.hpp"

#include "runtime/device/kokkos_compat.hpp"

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

} // namespace orthant::models
