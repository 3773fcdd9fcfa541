// SPDX-License-Identifier: Apache-2.0
#include "models/training/shard_parts.hpp"

#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <utility>

namespace orthant::models {
namespace {

using runtime::sum_of;

constexpr std::int64_t most_slots_of_stage_2 = 2;
/// So that the slots of stage 2 hold a part of the gradients only, also of a small model.
constexpr std::int64_t least_buckets_of_stage_2 = 8;

void plan_bucket_calls(pmm::StepPlan& step, runtime::Operation operation, pmm::AxisSet axes,
                       ShardParts const& parts) {
  for (std::int64_t j = 0; j < parts.num_buckets(); ++j)
    step.add_call(operation, axes, step.scalar_bytes(parts.bucket(j).size() * parts.num_owners()));
}

} // namespace

ShardParts::ShardParts(std::vector<std::int64_t> lengths, int num_owners, std::int64_t scalar_bytes,
                       ShardSettings const& settings)
    : lengths_(std::move(lengths)),
      num_owners_(num_owners),
      scalar_bytes_(scalar_bytes),
      settings_(settings),
      bucket_range_(settings.bucket_bytes / scalar_bytes / num_owners) {
  for (auto const length : lengths_)
    places_.push_back(places_.back() + (length + num_owners - 1) / num_owners);
  if (settings.stage > 1) bucket_range_ = std::min(bucket_range_, owned_length() / least_buckets_of_stage_2);
  bucket_range_ = std::max<std::int64_t>(bucket_range_, 1);
}

runtime::Range ShardParts::part(std::size_t p, int owner) const {
  auto const begin = std::min(owner * part_length(p), length(p));
  return {begin, std::min(begin + part_length(p), length(p))};
}

std::int64_t ShardParts::num_buckets() const {
  return (owned_length() + bucket_range_ - 1) / bucket_range_;
}

runtime::Range ShardParts::bucket(std::int64_t j) const {
  return {j * bucket_range_, std::min((j + 1) * bucket_range_, owned_length())};
}

std::int64_t ShardParts::num_slots() const {
  return settings_.stage == 1 ? num_buckets() : std::min(num_buckets(), most_slots_of_stage_2);
}

std::int64_t ShardParts::slots_length() const {
  return std::min(owned_length(), num_slots() * bucket_range_);
}

std::int64_t ShardParts::open_length() const {
  return std::min(owned_length(), std::min(num_slots(), max_open_sums) * bucket_range_);
}

runtime::LocalPass ShardParts::pass_of_adding(std::int64_t k) const {
  auto const in_buckets = owned_length() * num_owners_;
  auto const num_read = sum_of(lengths_) + (adds_in_buckets(k) ? in_buckets : 0);
  return {"GradientShards/add", num_read * scalar_bytes_, in_buckets * scalar_bytes_};
}

runtime::LocalPass ShardParts::pass_of_summing() const {
  auto const bytes = owned_length() * scalar_bytes_;
  return {"GradientShards/sum", 2 * bytes, bytes};
}

runtime::LocalPass ShardParts::pass_of_own_values() const {
  auto const bytes = owned_length() * scalar_bytes_;
  return {"GradientShards/own_values", bytes, bytes};
}

runtime::LocalPass ShardParts::pass_of_values() const {
  auto const bytes = sum_of(lengths_) * scalar_bytes_;
  return {"GradientShards/values", bytes, bytes};
}

void plan_shard_arrays(pmm::StepPlan& step, ShardParts const& parts) {
  if (parts.owned_length() == 0) return;
  step.add_array("orthant::models::owned_gradients", step.scalar_bytes(parts.owned_length()));
  step.add_array("orthant::models::gradient_buckets",
                 step.scalar_bytes(parts.slots_length() * parts.num_owners()));
  if (parts.keeps_received())
    step.add_array("orthant::models::received_gradients", step.scalar_bytes(parts.slots_length()));
}

void plan_add_to_shards(pmm::StepPlan& step, pmm::AxisSet axes, ShardParts const& parts, std::int64_t k) {
  if (parts.owned_length() == 0) return;
  step.add_pass(parts.pass_of_adding(k));
  if (parts.settings().stage == 1) return;
  plan_bucket_calls(step, runtime::Operation::reduce_scatter, axes, parts);
  if (k > 0) step.add_pass(parts.pass_of_summing());
}

void plan_finish_shards(pmm::StepPlan& step, pmm::AxisSet axes, ShardParts const& parts) {
  if (parts.settings().stage == 1) plan_bucket_calls(step, runtime::Operation::reduce_scatter, axes, parts);
}

void plan_gather_shards(pmm::StepPlan& step, pmm::AxisSet axes, ShardParts const& parts) {
  if (parts.owned_length() == 0) return;
  step.add_pass(parts.pass_of_own_values());
  plan_bucket_calls(step, runtime::Operation::all_gather, axes, parts);
  step.add_pass(parts.pass_of_values());
}

} // namespace orthant::models
