#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// States of the optimizer that are sharded over the batch axes too (ZeRO stages 1 and 2). Weights are replicated along these axes. With D
// ranks along them, rank d owns the d-th of D equal parts of its piece of every flat-sharded matrix. It keeps the summed gradients and
// the moments of its part only, and updates only its part:
//
//   reduce_scatter     dw[part d] := sum_g sum_k dw(batch k of group g)[part d]
//   update             w[part d]  := w[part d] updated by the optimizer with dw[part d]
//   all_gather         w          := all parts
//
// Stage 1 sums the batches of a step on each rank and scatters once; stage 2 scatters the gradients of each batch, and keeps no other sum.
// An all_reduce sends the same words as one reduce_scatter and one all_gather. Vectors and other matrices that are replicated over the
// group are small: they are summed by all_reduces (gradient_sum.hpp) and have whole moments.
//
// A rank's parts of all matrices lie one after the other. Buckets are ranges of this array: a bucket holds the same range of each owner,
// one owner after the other, so its reduce_scatter gives each owner a contiguous range.
//
//   matrices        a0 a1 a2 a3 | b0 b1 | c0 c1 c2      parts of D = 2 owners: a0 a1 b0 c0 c1, and a2 a3 b1 c2 -
//   buckets of 3    a0 a1 b0  a2 a3 b1 | c0 c1  c2 -
//
// Sources: ZeRO (arXiv 1910.02054), sections 5 and 7.

#include "models/parameters/network.hpp"
#include "models/training/shard_parts.hpp"
#include "runtime/comm/collectives.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace orthant::models {

namespace detail {
/// Matrices that are summed over the same axes.
template<class T>
class ShardedMatrices {
 public:
  ShardedMatrices(pmm::ProcessGrid const& grid, pmm::AxisSet axes, std::vector<Parameter<T>> matrices,
                  ShardSettings const& settings);

  [[nodiscard]] ShardParts const& parts() const { return parts_; }
  /// Part of matrix p that this rank owns: its values, and its summed gradient.
  [[nodiscard]] Parameter<T> own_part(std::size_t p) const;
  void take(runtime::DefaultExec const& exec, std::int64_t k, std::size_t num_complete, bool starts_sums);
  void end_batch(runtime::DefaultExec const& exec, std::int64_t k);
  void finish(runtime::DefaultExec const& exec);
  void gather(runtime::DefaultExec const& exec);

 private:
  [[nodiscard]] runtime::Vector<T> slot(std::int64_t j) const;
  [[nodiscard]] runtime::Vector<T> owned(std::int64_t j) const;
  [[nodiscard]] runtime::Vector<T> received(std::int64_t j) const;
  void scatter(runtime::DefaultExec const& exec, std::int64_t k, std::int64_t j, bool is_asynchronous);
  void complete(runtime::DefaultExec const& exec, std::int64_t k, std::int64_t end);
  void end_sums(runtime::DefaultExec const& exec, std::int64_t k);
  template<class Work>
  void for_each_bucket(std::size_t p, runtime::Vector<T> const& numbers, Work const& work) const;

  pmm::ProcessGrid const* grid_;
  pmm::AxisSet axes_;
  std::vector<Parameter<T>> matrices_;
  ShardParts parts_;
  runtime::Vector<T>
      owned_; // [owned_length] sums of the gradients that this rank owns; in gather(), its values
  runtime::Vector<T> buckets_;            // [slots x owners x range]
  runtime::Vector<T> received_;           // [slots x range] gradients of one of several batches, stage 2
  std::vector<runtime::Request> started_; // of the buckets of this batch
  std::size_t num_taken_ = 0;             // matrices of this batch
  std::int64_t num_completed_ = 0;        // sums of this batch that were waited for
};
} // namespace detail

template<class T>
class GradientShards {
 public:
  /// Shards the flat-sharded matrices among `parameters` that are trained, over the axes along which their gradients are summed: weights
  /// over {expert, context, data}, weights of experts over {context, data}. `order`: as for GradientSum. The memory of values and gradients
  /// must not move. `grid` must outlive this object. Not collective.
  GradientShards(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
                 std::vector<std::size_t> const& order, ShardSettings const& settings);

  /// Stage 1 or 2.
  [[nodiscard]] int stage() const { return stage_; }
  [[nodiscard]] std::size_t num_parameters() const { return parameters_.size(); }
  /// Whether parameter p is sharded.
  [[nodiscard]] bool has(std::size_t p) const { return places_[p].section >= 0; }
  /// Parameter p as the optimizer of this rank sees it: the part that this rank owns, whose gradient is the sum after finish(). If it is
  /// not sharded, the parameter itself.
  [[nodiscard]] Parameter<T> own_part(std::size_t p) const;

  /// The first `num_complete` gradients in the order of completion are those of batch k. `starts_sums`: sums of complete buckets start,
  /// and overlap what follows. Collective over the batch axes if sums start, or at stage 2. Enqueues on exec.
  void take(runtime::DefaultExec const& exec, std::int64_t k, std::size_t num_complete, bool starts_sums);
  /// After all gradients of batch k were taken. Collective over the batch axes at stage 2. Enqueues on exec.
  void end_batch(runtime::DefaultExec const& exec, std::int64_t k);
  /// Gradients of own parts := the sums, after the last batch. Collective over the batch axes. Enqueues on exec.
  void finish(runtime::DefaultExec const& exec);
  /// Values of sharded parameters := the values of the owners of their parts. Collective over the batch axes. Enqueues on exec.
  void gather(runtime::DefaultExec const& exec);

 private:
  struct Place {
    int section = -1; // -1: not sharded
    std::size_t matrix = 0;
  };
  int stage_;
  std::vector<Parameter<T>> parameters_;
  std::vector<Place> places_;                            // by parameter
  std::vector<std::array<std::size_t, 2>> num_complete_; // of the first gradients, those of each section
  std::vector<detail::ShardedMatrices<T>> sections_;     // weights; weights of experts
};

/// Shards for a training of the network. Null if the stage is 0, or if batches are not distributed.
template<class T>
[[nodiscard]] std::shared_ptr<GradientShards<T>>
make_shards(pmm::ProcessGrid const& grid, Network<T>& network, ShardSettings const& settings) {
  if (settings.stage == 0 || grid.size(pmm::batch_axes(grid.shape())) == 1) return nullptr;
  return std::make_shared<GradientShards<T>>(grid, network.parameters(), network.gradient_order(), settings);
}

extern template class GradientShards<float>;
extern template class GradientShards<double>;

} // namespace orthant::models
