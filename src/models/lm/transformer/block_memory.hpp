#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Memory of blocks: results of the forward pass that the backward pass reads, and scratch memory that all blocks share. With
// activation checkpointing every N layers, layers form segments of N, and block l uses the memory number l mod N. Only the stream
// after each segment is kept. Before the backward pass of a segment except the last, its layers are computed again.

#include "models/lm/experts/expert_layer.hpp"
#include "models/lm/transformer/parallel_layers.hpp"
#include "models/lm/transformer/shared_key_values.hpp"
#include "pmm/attention/sequence_parts.hpp"
#include "runtime/numbers/random.hpp"

#include <memory>
#include <vector>

namespace orthant::models {

template<class T>
struct TransformerScratch;

/// Numbers of rows and columns of the queries and keys of a rank; the keys may have none, if ranks share a head.
struct JointNormLengths {
  JointNormLengths(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                   TransformerPlan const& plan);
  std::int64_t rows = 0, query_columns = 0, key_columns = 0;
};

/// What JointNorms keep for the backward pass; empty without them.
template<class T>
struct JointNormMemory {
  runtime::Matrix<T> queries, keys; // before the norm
  pmm::RowNormState<T> of_queries, of_keys;
};

template<class T>
struct AttentionMemory {
  AttentionMemory(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                  TransformerScratch<T> const& scratch);
  pmm::RowNormState<T> norm;
  pmm::DistMatrix<T> normed, qkv, out; // if heads are exchanged, qkv has whole sequences after the exchange
  runtime::Vector<T> attended_out;     // what `out` was before heads were exchanged back; else empty
  runtime::Vector<T> log_sum_exp;      // [key-value heads x tokens x query heads per key-value head]
  pmm::DistMatrix<T> before_norm;      // queries and keys, if each head has a norm
  JointNormMemory<T> joint_norms;
  pmm::DistMatrix<T> qkv_gradient, branch_gradient; // only if backward passes are split
  runtime::Vector<T> key_values; // [tokens x 2 head_dim] of a head that ranks share; else empty
};

template<class T>
struct FeedForwardMemory {
  FeedForwardMemory(pmm::ProcessGrid const& grid, TransformerPlan const& plan, std::int64_t place,
                    TransformerScratch<T> const& scratch);
  pmm::RowNormState<T> norm;
  pmm::DistMatrix<T> normed;
  pmm::DistMatrix<T> expanded, activated;                // if a layer without experts uses this memory
  pmm::DistMatrix<T> shared_expanded, shared_activated;  // of shared experts, if a layer with experts uses it
  pmm::DistMatrix<T> expanded_gradient, branch_gradient; // only if backward passes are split
  std::shared_ptr<ExpertMemory<T>> experts;
};

/// Results of the forward pass of a block that its backward pass reads. Those that it computes again (Recomputation) are scratch memory of
/// all blocks. A copy shares the arrays.
template<class T>
struct BlockMemory {
  /// `place`: number of the block within its segment.
  BlockMemory(pmm::ProcessGrid const& grid, TransformerPlan const& plan, std::int64_t place,
              TransformerScratch<T> const& scratch);
  AttentionMemory<T> attention;
  FeedForwardMemory<T> feed_forward;
  pmm::DistMatrix<T> middle; // the stream between the halves
};

/// Key-value heads, whole or shared, whose columns are in the block `qkv` of the queries, keys and values.
[[nodiscard]] runtime::Range groups_of(pmm::Block const& qkv, TransformerPlan const& plan);
/// Those whose attention this rank computes: a part of them if heads are exchanged.
[[nodiscard]] runtime::Range attended_groups(pmm::Block const& qkv, TransformerPlan const& plan);

/// kept := gradient, between the parts of a backward pass. Adds a pass to `passes`. Enqueues on exec.
template<class T>
void keep_gradient(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                   runtime::Vector<T> const& gradient, runtime::Vector<T> const& kept);
void plan_kept_gradient(pmm::StepPlan& step, std::int64_t count);

/// Adds the arrays of a BlockMemory to `step`.
void plan_block_memory(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t place);

// Segments begin with the first layer of this rank.

/// Number N of layers per segment; all layers of this rank if there is no activation checkpointing.
[[nodiscard]] std::int64_t layers_per_segment(TransformerPlan const& plan);
/// Number of this layer within its segment, from 0.
[[nodiscard]] std::int64_t place_in_segment(TransformerPlan const& plan, std::int64_t layer);
/// Ranges of layers of the segments, in the order of a backward pass. The first is the last segment, which is not computed again.
[[nodiscard]] std::vector<runtime::Range> segments(TransformerPlan const& plan);
/// Whether the backward pass computes this layer again: true for all segments but the last.
[[nodiscard]] bool is_computed_again(TransformerPlan const& plan, std::int64_t layer);
/// Whether this layer is the last one of its segment. Its last product is not computed again.
[[nodiscard]] bool ends_segment(TransformerPlan const& plan, std::int64_t layer);
/// Whether the stream after this layer has memory of its own.
[[nodiscard]] bool keeps_output(TransformerPlan const& plan, std::int64_t layer);

extern template struct BlockMemory<float>;
extern template struct BlockMemory<double>;

/// Dropout of one batch, the same in its forward and backward pass.
struct DropoutKey {
  double probability = 0; // 0: no dropout
  std::uint64_t seed = 0;
  std::uint64_t step = 0;

  /// Random stream `place` of the step (dropout_stream()); 0 is for the embedding.
  [[nodiscard]] runtime::RandomStream stream(std::int64_t place) const {
    return {seed, runtime::Purpose::dropout, step, static_cast<std::uint32_t>(place)};
  }
};
/// Places of dropout in a layer. Each layer has three random streams per step.
enum class DropoutPlace : std::uint8_t { probabilities = 1, attention = 2, feed_forward = 3 };
[[nodiscard]] constexpr std::int64_t dropout_stream(std::int64_t layer, DropoutPlace place) {
  return 3 * layer + static_cast<std::int64_t>(place);
}

/// Lengths of the scratch arrays on this rank.
struct ScratchLengths {
  ScratchLengths(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                 TransformerPlan const& plan);
  std::int64_t branch = 0; // [z,y]
  std::int64_t wide = 0;   // the longest of the outputs of qkv, up and shared_up
  std::int64_t narrow = 0; // the longest of the inputs of projection, down and shared_down
  std::int64_t attention_out = 0, attended_out = 0;
  std::int64_t activated = 0; // the longest of the inputs of down and shared_down
  std::int64_t row_sums = 0;  // two elements per row for LayerNorm, one for RMSNorm
  std::int64_t row_terms = 0; // one element per row and query head
};

/// A number for each of this rank's tokens, and for each query of its attention: the same array unless heads are exchanged.
struct TokenNumbers {
  runtime::Vector<std::int64_t> own, attended;
};

/// Scratch memory of all blocks. Nothing in it is kept from the forward to the backward pass, except token_ids and document_positions.
template<class T>
struct TransformerScratch {
  TransformerScratch(pmm::ProcessGrid const& grid, TransformerPlan const& plan);

  runtime::Vector<T> normed, activated, attention_out,
      attended_out;                   // results that backward passes compute again; else empty
  runtime::Vector<T> branch;          // branch of a half; in the backward pass its gradient with dropout
  runtime::Vector<T> normed_gradient; // gradient by the output of a norm
  runtime::Vector<T> wide_gradient;
  runtime::Vector<T> narrow_gradient;
  runtime::Vector<T> row_sums;
  runtime::Vector<T> row_terms;
  runtime::Vector<T> key_value_gradients; // of a head that ranks share
  runtime::Vector<T> query_key_sums;      // of HeadNorms or JointNorms
  TokenNumbers token_ids;                 // global numbers of the tokens; empty without dropout
  /// Of the tokens in their documents or sequences; empty unless the plan lists positions. Those of whole sequences are listed only for
  /// documents.
  TokenNumbers document_positions;
  GatheredKeyValues<T> gathered; // at most one of the two is on, if ranks share sequences
  pmm::HeadExchange<T> heads;
  LinearWork<T> work;
  ExpertScratch<T> experts;
};

/// Adds the arrays of a TransformerScratch to `step`, except its workspaces and experts.
void plan_scratch_arrays(pmm::StepPlan& step, TransformerPlan const& plan);
/// Allocates document_positions, or adds its arrays to `step`.
[[nodiscard]] TokenNumbers make_document_positions(TransformerPlan const& plan);
void plan_document_positions(pmm::StepPlan& step, TransformerPlan const& plan);

extern template struct TransformerScratch<float>;
extern template struct TransformerScratch<double>;

} // namespace orthant::models
