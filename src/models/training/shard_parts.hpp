#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The part of its matrices that a rank owns if the optimizer's states are sharded over the batch axes (gradient_shards.hpp), and the
// planned operations of such a step.

#include "models/parameters/parameter.hpp"
#include "pmm/cost/step_plan.hpp"

#include <cstdint>
#include <vector>

namespace orthant::models {

/// Axes over which the gradient of a parameter is summed.
[[nodiscard]] inline pmm::AxisSet summed_axes(pmm::GridShape const& shape, bool is_of_expert) {
  auto const axes = pmm::batch_axes(shape);
  return is_of_expert ? axes.without(pmm::Axis::expert) : axes;
}
/// Whether the states of a parameter are sharded over these axes: those of a trained, flat-sharded matrix are.
[[nodiscard]] inline bool is_sharded(pmm::GridShape const& shape, ParameterRole role,
                                     pmm::Placement const& placement, bool is_frozen, bool is_of_expert) {
  return !is_vector(role) && !is_frozen && placement.layout.storage == pmm::Storage::flat_sharded &&
         shape.size(summed_axes(shape, is_of_expert)) > 1;
}

/// Maximum number of sums of gradients in progress. An asynchronous sum on the host copies its message, so their number is bounded. Two
/// keep a network busy; more of them let a fast backward pass continue.
inline constexpr std::int64_t max_open_sums = 4;

struct ShardSettings {
  int stage = 1;                    // 1 or 2
  std::int64_t num_accumulated = 1; // batches of a step
  std::int64_t bucket_bytes = 0;
};

/// Partition of matrices, of which all ranks along some axes have copies, into equal parts, one per rank. A rank's parts of all matrices lie
/// one after the other in an array. A bucket is a range of this array, for all owners.
class ShardParts {
 public:
  ShardParts() = default;
  /// `lengths`: elements of each matrix on this rank, without padding.
  ShardParts(std::vector<std::int64_t> lengths, int num_owners, std::int64_t scalar_bytes,
             ShardSettings const& settings);

  [[nodiscard]] ShardSettings const& settings() const { return settings_; }
  [[nodiscard]] int num_owners() const { return num_owners_; }
  [[nodiscard]] std::int64_t length(std::size_t p) const { return lengths_[p]; }
  /// Start of an owner's part of matrix p in its array, and the length of a part, with padding at the end of the last ones.
  [[nodiscard]] std::int64_t place(std::size_t p) const { return places_[p]; }
  [[nodiscard]] std::int64_t part_length(std::size_t p) const { return places_[p + 1] - places_[p]; }
  /// Elements of matrix p that this owner has.
  [[nodiscard]] runtime::Range part(std::size_t p, int owner) const;
  /// Length of an owner's array.
  [[nodiscard]] std::int64_t owned_length() const { return places_.back(); }

  [[nodiscard]] std::int64_t num_buckets() const;
  [[nodiscard]] runtime::Range bucket(std::int64_t j) const;
  /// Buckets that have memory at the same time: all at stage 1; two at stage 2, of which one is filled while the other is summed.
  [[nodiscard]] std::int64_t num_slots() const;
  /// Range of an owner in all slots together.
  [[nodiscard]] std::int64_t slots_length() const;
  /// Range of an owner in the buckets whose sums may be in progress at once. At stage 2 each needs a slot.
  [[nodiscard]] std::int64_t open_length() const;
  /// Whether the sums of one batch are received in memory of their own.
  [[nodiscard]] bool keeps_received() const { return settings_.stage > 1 && settings_.num_accumulated > 1; }
  /// Whether the gradients of batch k are added to those in the buckets.
  [[nodiscard]] bool adds_in_buckets(std::int64_t k) const { return settings_.stage == 1 && k > 0; }

  // Passes over arrays: gradients of batch k to buckets, received sums to sums, own values to the array, and buckets to values.
  [[nodiscard]] runtime::LocalPass pass_of_adding(std::int64_t k) const;
  [[nodiscard]] runtime::LocalPass pass_of_summing() const;
  [[nodiscard]] runtime::LocalPass pass_of_own_values() const;
  [[nodiscard]] runtime::LocalPass pass_of_values() const;

 private:
  std::vector<std::int64_t> lengths_;
  std::vector<std::int64_t> places_{0};
  int num_owners_ = 1;
  std::int64_t scalar_bytes_ = 0;
  ShardSettings settings_;
  std::int64_t bucket_range_ = 1; // elements of an owner in a bucket
};

/// List the arrays of GradientShards for matrices that are summed over `axes`, and its work: end_batch() of batch k, finish() and gather().
void plan_shard_arrays(pmm::StepPlan& step, ShardParts const& parts);
void plan_add_to_shards(pmm::StepPlan& step, pmm::AxisSet axes, ShardParts const& parts, std::int64_t k);
void plan_finish_shards(pmm::StepPlan& step, pmm::AxisSet axes, ShardParts const& parts);
void plan_gather_shards(pmm::StepPlan& step, pmm::AxisSet axes, ShardParts const& parts);

} // namespace orthant::models
