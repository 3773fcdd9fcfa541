#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sum of the gradients of a step with several batches: K batches of this group, one after the other, and the batches of the other
// groups along the data axis:
//
//   dw := sum_g sum_k dw(batch k of group g)
//
// All gradients are stored in one array, in the order in which a backward pass completes them. The array is partitioned into buckets of
// equal size, and each bucket is summed over the groups by one all_reduce. It starts as soon as the backward pass of the last batch has
// completed the gradients of the bucket, and overlaps the rest of the pass.
//
// Gradients are summed over the axes {expert, context, data}, along which tokens differ. Gradients of experts come last in the order. Only
// ranks along context and data have the same experts, so their buckets are summed over these alone, after the pass. If there is one data group
// and one batch per step, these gradients are already sums: they are not copied to the array. Gradients whose states are sharded over
// the batch axes (gradient_shards.hpp) are not in the array either; they are summed by reduce_scatters, in the same order.
//
// The messages may be encoded (runtime/numbers/formats.hpp), with error feedback: each rank keeps what the encoding of its numbers has lost,
// and adds it to the gradients of the next step. Checkpoints do not have these residuals: they belong to the ranks of one grid, and a run may
// go on with another one. A resumed run therefore loses the rounding of one step, once.
//
// Ranks along x, y and z that have copies of a parameter must round its sum equally, or the copies would drift apart. What is lost depends
// on which numbers share a scale, and on which rank of the group adds up a block, because that rank keeps what the sum loses. So the array
// reserves for each parameter the same number of whole blocks on all ranks, that of the largest piece, with zeros at the end: a parameter has
// blocks of its own, and begins at the same place of the same bucket on all ranks. Pieces without copies may have any length.
//
// Gradients of pruned weights (pruning/pruned_weights.hpp) are in the array with their kept entries, also if a step has one batch: they are
// taken as they are completed, because the next layer may overwrite them, and the optimizer reads their sums in the array.
//
// Statistics (of batch norms, of routers) are values towards which a parameter moves, and a rounded variance might be negative: they are never
// encoded, and have the last section of the array.
//
// Sources: PyTorch Distributed (arXiv 2006.15704), section 3.2; 1-bit SGD (Seide et al., Interspeech 2014, section 2) for error feedback.

#include "models/parameters/parameter.hpp"
#include "models/training/gradient_shards.hpp"
#include "models/training/objective.hpp"
#include "models/training/pruning/pruned_weights.hpp"
#include "pmm/cost/step_plan.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/numbers/formats.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace orthant::models {

// Gradients of a mean over n vertices are about 1 / n. From n = 10^7 on this is below 2^-24, the smallest positive number of fp16,
// so 16-bit messages and operands would be zero. The gradient of the loss is therefore multiplied by a power of two near n / 256,
// which leaves a factor of 2^24 above it and of 2^16 below. All gradients that follow from it are scaled by the same factor, and
// the optimizer divides by it. Multiplying by a power of two is exact. bf16 has the exponents of fp32 and needs no scaling.

/// Factor of the gradient of a loss over `num_counted` vertices: 1 unless gradients pass through fp16
/// (Network::narrowest_format). The same on all ranks.
template<class T>
[[nodiscard]] double gradient_scale(runtime::Wire format, Objective<T> const& loss,
                                    std::int64_t num_counted) {
  constexpr double headroom = 256; // gradients of hubs and of small activations exceed that of the loss
  return format == runtime::Wire::fp16 ? std::max(loss.scale_to_one(num_counted) / headroom, 1.0) : 1.0;
}

/// Bucket size: large enough that an all_reduce is limited by bandwidth rather than latency, and small enough that the first one
/// starts early. Default of PyTorch's DistributedDataParallel.
inline constexpr std::int64_t default_bucket_bytes = std::int64_t{25} << 20;

struct GradientSumSettings {
  std::int64_t bucket_bytes = default_bucket_bytes;
  /// Whether sums start during the backward pass. nullopt: if they can overlap it, which host processors of one node cannot.
  std::optional<bool> starts_early;
  /// Format of the messages. Encoded formats need fp32 gradients; fp16 is refused, because gradients may leave its range.
  runtime::Wire wire = runtime::Wire::native;
};

/// Elements of this rank in the array of a GradientSum.
struct SummedElements {
  runtime::Wire wire =
      runtime::Wire::native;   // format of the messages; an encoded one adds an array of residuals
  std::int64_t num_of_all = 0; // of parameters that are of no expert
  std::int64_t num_of_experts = 0;
  std::int64_t num_of_statistics = 0; // which are not encoded; 0 if nothing is, and they are among num_of_all
  std::int64_t num_pruned = 0;        // kept entries of pruned weights, among the others

  /// Adds a parameter. `length`: its elements on this rank; `reserved`: its reserved_length().
  void add(ParameterRole role, bool is_of_expert, std::int64_t length, std::int64_t reserved);
};

/// List the array of a GradientSum, the pass of add(), and the calls and the pass of finish().
void plan_gradient_sum_array(pmm::StepPlan& step, SummedElements const& elements,
                             std::int64_t num_accumulated);
void plan_add_gradients(pmm::StepPlan& step, SummedElements const& elements, std::int64_t k,
                        std::int64_t num_accumulated);
void plan_gradient_sum(pmm::StepPlan& step, SummedElements const& elements, std::int64_t num_accumulated,
                       std::int64_t bucket_bytes = default_bucket_bytes);

/// Whether sums start during the backward pass unless the settings say otherwise: if the network can carry them meanwhile. With a single
/// group there are no sums that could start.
[[nodiscard]] bool can_start_early(pmm::ProcessGrid const& grid);

/// Memory of the sums that are in progress at once, on the host, with buckets of the default size: MPI's, and the encoded messages.
[[nodiscard]] std::int64_t bytes_of_sums(pmm::ProcessGrid const& grid, pmm::StepPlan const& step,
                                         SummedElements const& elements);

template<class T>
class GradientSum {
 public:
  /// The memory of the gradients must not move. `order`: indices of the parameters in the order in which their gradients are
  /// completed, the same on all ranks. Experts must come last; otherwise throws Error. Gradients of frozen parameters are not summed. `grid`
  /// must outlive this object. `shards`: of the same parameters and order; null if no states are sharded over the batch axes. `pruned`: of
  /// the same parameters, with the entries that are kept from here on; null if nothing is pruned.
  GradientSum(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
              std::vector<std::size_t> const& order, std::int64_t num_accumulated,
              GradientSumSettings const& settings = {}, std::shared_ptr<GradientShards<T>> shards = nullptr,
              PrunedWeights<T> const* pruned = nullptr);

  /// Whether add_early() must be called in the backward pass of batch k as gradients are completed.
  [[nodiscard]] bool starts_early(std::int64_t k) const {
    return prunes_ || (starts_early_ && (k + 1 == num_accumulated_ || (shards_ && shards_->stage() > 1)));
  }
  /// Adds the first `num_complete` gradients of batch k, in that order, and starts the sums of complete buckets. starts_early(k)
  /// must be true. Collective over the axes of batches: all their ranks call it with the same arguments. Enqueues on exec.
  void add_early(runtime::DefaultExec const& exec, std::int64_t k, std::size_t num_complete);
  /// Adds the gradients of batch k that were not added early. Called for k = 0 .. K - 1 in order. Enqueues on exec.
  void add(runtime::DefaultExec const& exec, std::int64_t k);
  /// gradients := the sum, after the last batch; of sharded ones, the part that this rank owns. Waits for the sums in progress. Collective over the axes of batches: one
  /// all_reduce per bucket whose sum has not started. No-op with one group and one batch per step.
  void finish(runtime::DefaultExec const& exec);
  /// The sum of the gradient of a pruned parameter: one number per kept entry, in the array.
  [[nodiscard]] runtime::Vector<T> pruned_gradient(std::size_t parameter) const;

 private:
  struct Summed {
    runtime::Vector<T> gradient; // empty if it is summed elsewhere
    std::size_t begin = 0;       // in the array
    std::size_t length = 0;
    bool is_pruned = false;
    std::optional<KeptPlaces> kept = std::nullopt; // entries that are summed, unless all are
    std::size_t parameter = 0;
  };
  [[nodiscard]] runtime::Vector<T> part_of(Summed const& summed) const;
  /// Whether a step has more than one batch, or gradients are taken from it in any case.
  [[nodiscard]] bool has_several() const { return sum_.extent(0) > 0 || shards_ || prunes_; }
  [[nodiscard]] bool has_groups() const { return grid_.size(pmm::batch_axes(grid_.shape())) > 1; }
  /// Number of buckets of `length` elements.
  [[nodiscard]] std::size_t num_buckets(std::int64_t length) const {
    return (static_cast<std::size_t>(length) + bucket_length_ - 1) / bucket_length_;
  }
  /// Number of elements of no expert that are complete: those before the next gradient.
  [[nodiscard]] std::size_t length_taken() const;
  /// Bucket i of the elements [begin, begin + length) of `array`.
  [[nodiscard]] runtime::Vector<T> bucket(runtime::Vector<T> const& array, std::size_t i, std::int64_t begin,
                                          std::int64_t length) const;
  /// Sums the buckets of these elements, from bucket `first` on.
  void sum_buckets(runtime::DefaultExec const& exec, pmm::AxisSet axes, std::size_t first, std::int64_t begin,
                   std::int64_t length);
  [[nodiscard]] runtime::Request start_sum_of_bucket(runtime::DefaultExec const& exec, std::size_t i);
  void take(runtime::DefaultExec const& exec, std::int64_t k, std::size_t num_complete);

  pmm::ProcessGrid const& grid_;
  std::int64_t num_accumulated_;
  std::size_t bucket_length_;
  bool starts_early_;
  bool prunes_;
  std::vector<Summed> gradients_; // in the order of completion
  SummedElements elements_;       // sections of the array, in this order
  runtime::Vector<T> sum_; // sum of these gradients; empty if a step has one batch, unless weights are pruned
  runtime::Vector<T> residuals_;          // what the wire has lost of it; empty if it loses nothing
  std::size_t num_taken_ = 0;             // number of gradients added for this batch
  std::vector<runtime::Request> started_; // sums of the first buckets
  std::shared_ptr<GradientShards<T>> shards_;
};

extern template class GradientSum<float>;
extern template class GradientSum<double>;

} // namespace orthant::models
