#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A transformer over sequences of tokens: its blocks, passes and planned operations (AxoNN, arXiv 2502.08145). A rank has whole
// sequences, or with a context axis a part of each:
//
//   sequences                         split over data and expert, each part over z; their tokens over context
//   residual stream    x[z,y]         a row per token; replicated over x
//   logits             z[z,x]         the vocabulary over x; replicated over y
//
// The rows of a matrix are the tokens of the ranks along x, y and z, because products do not cross the other axes.

#include "models/lm/experts/expert_layer.hpp"
#include "models/lm/plan/transformer_plan.hpp"
#include "models/lm/transformer/attention_half.hpp"
#include "models/lm/transformer/feed_forward_half.hpp"
#include "models/parameters/network.hpp"
#include "pmm/experts/dispatch_lists.hpp"
#include "pmm/product/product.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/comm/call_tape.hpp"
#include "runtime/range.hpp"

#include <memory>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

namespace orthant::models {

// One block of a transformer, and the stream after each of its halves. If collectives are kept and the block is computed again,
// its tape records the results of the first forward pass. The tape has only calls that the second computation repeats, so not the
// last product of a segment.

template<class T>
class TransformerBlock {
 public:
  /// `memory` and `of_output` may be shared with other blocks, which use them at other times. `grid` and `scratch` must outlive
  /// this object.
  TransformerBlock(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                   BlockParameters<T> const& parameters, std::int64_t layer, BlockMemory<T> const& memory,
                   pmm::DistMatrix<T> of_output, TransformerScratch<T>& scratch,
                   std::shared_ptr<pmm::RotaryTable<T> const> rotary, std::shared_ptr<KeyValueCache<T>> cache)
      : attention(grid, plan, parameters, layer, memory.attention, scratch, std::move(rotary),
                  std::move(cache)),
        feed_forward(grid, plan, parameters, layer, memory.feed_forward, scratch),
        middle(memory.middle),
        output(std::move(of_output)),
        combines_again_(!ends_segment(plan, layer)) {
    if (plan.settings.keeps_collectives && is_computed_again(plan, layer))
      tape_ = std::make_unique<runtime::CallTape>(runtime::make_bytes);
  }

  /// Appends the uses of the weights in a forward pass, in their order. `is_again`: the block is computed again, without the
  /// last product of a segment.
  void add_forward_uses(std::vector<WeightUse<T>>& uses, bool is_again) {
    uses.push_back({&attention.qkv(), Direction::forward, tape()});
    uses.push_back({&attention.projection(), Direction::forward, tape()});
    if (!feed_forward.has_linears()) return;
    auto const linears = feed_forward.linears();
    uses.push_back({linears.front(), Direction::forward, tape()});
    if (!is_again || combines_again_) uses.push_back({linears.back(), Direction::forward, tape_of_combine()});
  }
  /// Appends the uses of the weights in a backward pass, in their order.
  void add_backward_uses(std::vector<WeightUse<T>>& uses) {
    auto const linears = feed_forward.linears();
    for (auto const& linear : linears | std::views::reverse)
      uses.push_back({linear, Direction::backward});
    uses.push_back({&attention.projection(), Direction::backward});
    uses.push_back({&attention.qkv(), Direction::backward});
  }

  /// Tape of the block's collectives; null if their results are not kept.
  [[nodiscard]] runtime::CallTape* tape() const { return tape_.get(); }
  /// Tape of FeedForwardHalf::combine(); null if the results are not kept.
  [[nodiscard]] runtime::CallTape* tape_of_combine() const { return combines_again_ ? tape_.get() : nullptr; }
  void begin_tape(runtime::CallTape::State state) {
    if (tape_) tape_->begin(state);
  }

  AttentionHalf<T> attention;
  FeedForwardHalf<T> feed_forward;
  pmm::DistMatrix<T> middle, output;

 private:
  bool combines_again_;
  std::unique_ptr<runtime::CallTape> tape_;
};

template<class T>
struct TransformerParts; // transformer_parts.hpp

template<class T>
class Transformer final : public Network<T> {
 public:
  /// Prepares passes over `num_sequences` sequences of `sequence` tokens, over all data groups, and draws the weights with
  /// `seed`. Throws UserError as plan_transformer() does: if the settings are not valid, or if heads, sequences or experts
  /// cannot be split over the grid. `num_cached`: positions of each sequence whose keys and values are kept, for a network that continues
  /// the sequences (next_token_of()); 0: none. `num_passes`: passes of a step; a stage of a pipeline keeps the activations of at most so
  /// many. `grid` must outlive this object. Collective over the axis pipe.
  Transformer(pmm::ProcessGrid const& grid, TransformerSettings const& settings, std::int64_t num_sequences,
              std::int64_t sequence, std::uint64_t seed, std::int64_t num_cached = 0,
              std::int64_t num_passes = 1);
  /// A network with the weights, sequences and cache of `other`, for evaluation passes over the next token of each sequence: its logits
  /// are those of the whole sequence up to this token. `other` must have a cache. Not collective.
  [[nodiscard]] static Transformer next_token_of(Transformer const& other);
  ~Transformer() override;
  Transformer(Transformer const&) = delete;
  Transformer& operator=(Transformer const&) = delete;

  /// Sequences of this rank in a pass, counted over all data groups. The targets of the loss belong to its tokens of them, one
  /// sequence after the other: the class of a token is the next token, and -1 is ignored.
  [[nodiscard]] runtime::Range sequences() const;
  /// Tokens of each of these sequences that this rank has.
  [[nodiscard]] pmm::SequencePart tokens() const;

  /// Sets this rank's tokens of sequences(), one sequence after the other, and copies them. There must be one per row, each in the
  /// vocabulary; otherwise throws Error. If the settings mask documents, `positions` are those of all tokens of sequences() in their
  /// documents: 0, or one more than the position before it in the sequence. The kernels of the previous pass must be complete.
  void set_tokens(std::span<std::int32_t const> ids, std::span<std::int64_t const> positions = {});

  /// Sets the positions of the first tokens of sequences() in the next passes of all networks that share the cache; 0 at first. A pass
  /// over more than one token per sequence must begin at 0. There must be a cache.
  void set_starts(std::span<std::int64_t const> starts);

  /// Sets whether weights are gathered during the previous product, and tokens sent to their experts while shared experts are
  /// computed. By default both happen if messages can overlap other work. The results have the same bits in both cases.
  void set_gathers_ahead(bool gathers_ahead);

  [[nodiscard]] TransformerSettings const& settings() const;
  /// Blocks of this rank.
  [[nodiscard]] runtime::Range layers() const;
  /// Choices of each expert in the last training pass, one entry per layer with experts.
  [[nodiscard]] std::vector<ExpertLoad> expert_loads() const;
  /// Numbers of rows that this rank moved in the last pass, one entry per layer with experts. Layers that share memory report
  /// the same numbers.
  [[nodiscard]] std::vector<pmm::DispatchSizes> dispatch_sizes() const;
  /// Maxima of dispatch_sizes() over all passes so far, with separate numbers for all layers.
  [[nodiscard]] std::vector<pmm::DispatchSizes> largest_dispatch_sizes() const;
  /// Placement of the logits, for the loss. Rows are the tokens of this data group.
  [[nodiscard]] pmm::Placement const& logits_placement() const;

  // In a pipeline (lm/plan/pipeline_plan.hpp), each rank has the blocks of its stage, and passes send streams to the next stage and gradients
  // to the previous one. The passes of a step must be begun, and run in this order.
  [[nodiscard]] std::vector<PassAction> order_of_passes(std::int64_t num_passes) const override;
  void begin_passes(Pass pass, std::int64_t num_passes) override;
  void select_batch(std::int64_t k) override;
  [[nodiscard]] bool has_logits() const override;
  /// The backward pass without the products for gradients of weights, if the settings split it.
  void input_backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases) override;
  /// Sums the gradient of a table that embedding and head share over the first and the last stage.
  void sum_shared_gradients(runtime::DefaultExec const& exec) override;

  /// Computes the logits. Their gradient later overwrites them. `step` keys dropout together with the global number of each
  /// token, so it must be equal on all data groups. Collective over the grid's group, with experts over the ranks of the stage. Enqueues on
  /// exec.
  pmm::DistMatrix<T> const& forward(runtime::DefaultExec const& exec, Pass pass, std::uint64_t step,
                                    runtime::PhaseTimes& phases) override;
  [[nodiscard]] pmm::DistMatrix<T> const& logits_gradient() const override;
  void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases) override;
  /// Backward pass that reports completed gradients to on_complete: the weight of a head that is not tied, and the weights of
  /// the blocks, each reported half a block after its computation, when its sum is complete. All other gradients are complete on return.
  /// Collective over the grid's group, with experts over the ranks of the stage. Enqueues on exec.
  void backward_telling(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases,
                        GradientObserver const& on_complete) override;
  [[nodiscard]] std::vector<Parameter<T>>& parameters() override;
  [[nodiscard]] std::vector<std::size_t> gradient_order() override;
  /// First block, counted from 0, whose output is not finite; the number of blocks (the head) if all are finite. Collective
  /// over the grid's world; returns the same on all ranks.
  [[nodiscard]] std::int64_t first_layer_not_finite(runtime::DefaultExec const& exec) const override;

 private:
  explicit Transformer(std::unique_ptr<TransformerParts<T>> parts);
  void backward_of_streams(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases,
                           GradientObserver const& on_complete);
  std::unique_ptr<TransformerParts<T>> parts_;
  pmm::DistMatrix<T> no_logits_; // of a rank without the head
};

/// Products of the head with its table E[x,y]. The forward product is the adjoint of a product with E:
///
///   logits[z,x] := sum_y X[z,y] E[x,y]^T      dX[z,y] := sum_x dlogits[z,x] E[x,y]      dE[x,y] := dlogits[z,x]^T X[z,y]
struct HeadProducts {
  pmm::ProductPlan product, input_back, weight_back;
};
[[nodiscard]] HeadProducts head_products(TransformerPlan const& plan);

/// Add a forward pass, the backward pass of batch k, or its first and its second part if it is split, and the arrays of a Transformer to
/// `step`.
void plan_transformer_forward(pmm::StepPlan& step, TransformerPlan const& plan, bool is_training = true);
void plan_transformer_backward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t k = 0);
void plan_transformer_weight_backward(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t k,
                                      std::int64_t num_passes);
void plan_transformer_arrays(pmm::StepPlan& step, TransformerPlan const& plan);

extern template class Transformer<float>;
extern template class Transformer<double>;

} // namespace orthant::models
