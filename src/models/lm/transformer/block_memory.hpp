#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the backward pass of a block reads of its forward pass. With activation checkpointing every N layers, N blocks have
// memory of their own, and block l uses that of block l mod N: the stream is kept at each N-th layer only, and the
// layers in between are computed again. All blocks share scratch memory, which no backward pass reads.

#include "models/lm/experts/expert_layer.hpp"
#include "models/lm/transformer/parallel_layers.hpp"
#include "runtime/numbers/random.hpp"

#include <memory>
#include <vector>

namespace orthant::models {

template<class T>
struct AttentionMemory {
  AttentionMemory(pmm::ProcessGrid const& grid, TransformerPlan const& plan);
  pmm::RowNormState<T> norm;
  pmm::DistMatrix<T> normed, qkv, out;
  runtime::Vector<T> log_sum_exp; // [groups x tokens x heads of a group]
  runtime::Vector<T> key_values;  // [tokens x 2 head_dim] of a head that ranks share
};

template<class T>
struct FeedForwardMemory {
  FeedForwardMemory(pmm::ProcessGrid const& grid, TransformerPlan const& plan, std::int64_t place,
                    ExpertScratch<T> const& scratch);
  pmm::RowNormState<T> norm;
  pmm::DistMatrix<T> normed;
  pmm::DistMatrix<T> expanded, activated;               // if a layer without experts has this place
  pmm::DistMatrix<T> shared_expanded, shared_activated; // of shared experts, if a layer with experts has it
  std::shared_ptr<ExpertMemory<T>> experts;
};

/// A copy shares the numbers.
template<class T>
struct BlockMemory {
  /// `place`: in the segments of activation checkpointing.
  BlockMemory(pmm::ProcessGrid const& grid, TransformerPlan const& plan, std::int64_t place,
              ExpertScratch<T> const& scratch);
  AttentionMemory<T> attention;
  FeedForwardMemory<T> feed_forward;
  pmm::DistMatrix<T> middle; // the stream between the halves
};

/// Key-value heads, whole or shared, of the rank whose block of queries, keys and values that is.
[[nodiscard]] runtime::Range groups_of(pmm::Block const& qkv, TransformerPlan const& plan);

/// Lists the arrays of a BlockMemory.
void plan_block_memory(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t place);

/// Layers that are computed again together, or all of them if none is: N.
[[nodiscard]] std::int64_t layers_per_segment(TransformerSettings const& settings);
/// The segments in the order of a backward pass: the last one, whose forward pass is still there, first.
[[nodiscard]] std::vector<runtime::Range> segments(TransformerSettings const& settings);
/// Whether the backward pass computes that layer again: all but those of the last segment.
[[nodiscard]] bool is_computed_again(TransformerSettings const& settings, std::int64_t layer);
/// Whether that layer is the last of a segment. Its last product is not computed again.
[[nodiscard]] bool ends_segment(TransformerSettings const& settings, std::int64_t layer);
/// Whether the stream behind that layer has memory of its own.
[[nodiscard]] bool keeps_output(TransformerSettings const& settings, std::int64_t layer);

extern template struct BlockMemory<float>;
extern template struct BlockMemory<double>;

/// What forward and backward passes of one batch have in common.
struct DropoutKey {
  double probability = 0; // 0: none is dropped
  std::uint64_t seed = 0;
  std::uint64_t step = 0;

  /// Of the stream number `place` of a step.
  [[nodiscard]] runtime::RandomStream stream(std::int64_t place) const {
    return {seed, runtime::Purpose::dropout, step, static_cast<std::uint32_t>(place)};
  }
};
/// Places of a step's streams: the embedding is 0, and each layer has three.
enum class DropoutPlace : std::uint8_t { probabilities = 1, attention = 2, feed_forward = 3 };
[[nodiscard]] constexpr std::int64_t dropout_stream(std::int64_t layer, DropoutPlace place) {
  return 3 * layer + static_cast<std::int64_t>(place);
}

/// Lengths of the scratch arrays on this rank.
struct ScratchLengths {
  ScratchLengths(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                 TransformerPlan const& plan);
  std::int64_t branch = 0;    // [z,y]
  std::int64_t wide = 0;      // the longest of the outputs of qkv, up and shared_up
  std::int64_t narrow = 0;    // the longest of the inputs of projection, down and shared_down
  std::int64_t row_sums = 0;  // two numbers per row, or one
  std::int64_t row_terms = 0; // one number per row and head
};

template<class T>
struct TransformerScratch {
  TransformerScratch(pmm::ProcessGrid const& grid, TransformerPlan const& plan);

  runtime::Vector<T> branch; // what a half adds to the stream; backward: dropout of the stream's gradient
  runtime::Vector<T> normed_gradient; // by the output of a norm
  runtime::Vector<T> wide_gradient;
  runtime::Vector<T> narrow_gradient;
  runtime::Vector<T> row_sums;
  runtime::Vector<T> row_terms;
  runtime::Vector<T> key_value_gradients;  // of a head that ranks share
  runtime::Vector<std::int64_t> token_ids; // [rows] numbers over all data groups; empty without dropout
  LinearWork<T> work;
  ExpertScratch<T> experts;
};

/// Lists its arrays, but for the workspaces.
void plan_scratch_arrays(pmm::StepPlan& step, TransformerPlan const& plan);

extern template struct TransformerScratch<float>;
extern template struct TransformerScratch<double>;

} // namespace orthant::models
