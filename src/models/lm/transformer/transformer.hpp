#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A transformer over sequences of tokens (AxoNN, arXiv 2502.08145). A rank has whole sequences:
//
//   sequences                         cut over data, each part over z
//   residual stream    x[z,y]         a row per token; replicated over x
//   logits             z[z,x]         the vocabulary over x; replicated over y
//
// The rows of a matrix are those of one data group, as a product never crosses the data axis.

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

// One block of a transformer, and the stream behind each of its halves. If the block is computed again, and collectives are kept, the
// results of the first forward pass are on its tape: of all calls that are made again, so not of the last product of a segment.

template<class T>
class TransformerBlock {
 public:
  /// `memory` and `of_output` are shared with blocks that use them in turn. `grid` and `scratch` must outlive it.
  TransformerBlock(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                   BlockParameters<T> const& parameters, std::int64_t layer, BlockMemory<T> const& memory,
                   pmm::DistMatrix<T> of_output, TransformerScratch<T>& scratch,
                   std::shared_ptr<pmm::RotaryTable<T> const> rotary)
      : attention(grid, plan, parameters, layer, memory.attention, scratch, std::move(rotary)),
        feed_forward(grid, plan, parameters, layer, memory.feed_forward, scratch),
        middle(memory.middle),
        output(std::move(of_output)),
        combines_again_(!ends_segment(plan.settings, layer)) {
    if (plan.settings.keeps_collectives && is_computed_again(plan.settings, layer))
      tape_ = std::make_unique<runtime::CallTape>(runtime::make_bytes);
  }

  /// In the order of a forward pass; of a pass that computes it again, without the last product of a segment.
  void add_forward_uses(std::vector<WeightUse<T>>& uses, bool is_again) {
    uses.push_back({&attention.qkv(), Direction::forward, tape()});
    uses.push_back({&attention.projection(), Direction::forward, tape()});
    if (!feed_forward.has_linears()) return;
    auto const linears = feed_forward.linears();
    uses.push_back({linears.front(), Direction::forward, tape()});
    if (!is_again || combines_again_) uses.push_back({linears.back(), Direction::forward, tape_of_combine()});
  }
  void add_backward_uses(std::vector<WeightUse<T>>& uses) {
    auto const linears = feed_forward.linears();
    for (auto const& linear : linears | std::views::reverse)
      uses.push_back({linear, Direction::backward});
    uses.push_back({&attention.projection(), Direction::backward});
    uses.push_back({&attention.qkv(), Direction::backward});
  }

  /// Null: its calls are not kept.
  [[nodiscard]] runtime::CallTape* tape() const { return tape_.get(); }
  /// Of FeedForwardHalf::combine().
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
class Transformer final : public Network<T> {
 public:
  /// For passes over `num_sequences` sequences of `sequence` tokens each, over all data groups. Draws the weights
  /// by `seed`. Throws UserError if heads, key-value heads or sequences cannot be cut as the grid asks. `grid`
  /// must outlive it. Not collective.
  Transformer(pmm::ProcessGrid const& grid, TransformerSettings const& settings, std::int64_t num_sequences,
              std::int64_t sequence, std::uint64_t seed);
  ~Transformer() override;
  Transformer(Transformer const&) = delete;
  Transformer& operator=(Transformer const&) = delete;

  /// The sequences of a pass, counted over all data groups, that this rank has. The targets of the loss are for
  /// their tokens, one after another: a class is the next token, -1 is ignored.
  [[nodiscard]] runtime::Range sequences() const;
  [[nodiscard]] std::int64_t sequence_length() const;

  /// The tokens of sequences(), one sequence after another. Copied. Throws Error if their number is another one, or if
  /// one is not in the vocabulary.
  void set_tokens(std::span<std::int32_t const> ids);

  /// Whether weights are gathered while the product before theirs runs, and tokens travel to their experts while shared ones are computed; by
  /// default if that can be hidden. The results are the same to the bit.
  void set_gathers_ahead(bool gathers_ahead);

  [[nodiscard]] TransformerSettings const& settings() const;
  /// Layer by layer of those with experts: how often each expert was chosen in the last training pass; and what this rank moved in
  /// the last pass, of layers that have memory of their own.
  [[nodiscard]] std::vector<ExpertLoad> expert_loads() const;
  [[nodiscard]] std::vector<pmm::DispatchSizes> dispatch_sizes() const;
  /// The largest of all passes so far, layer by layer of those with experts.
  [[nodiscard]] std::vector<pmm::DispatchSizes> largest_dispatch_sizes() const;
  /// Placement of the logits, for the loss: rows of this data group's tokens.
  [[nodiscard]] pmm::Placement const& logits_placement() const;

  /// The logits are overwritten by their gradient. `step` keys dropout, together with the number of each token, so it must be
  /// the same on all data groups.
  pmm::DistMatrix<T> const& forward(runtime::DefaultExec const& exec, Pass pass, std::uint64_t step,
                                    runtime::PhaseTimes& phases) override;
  [[nodiscard]] pmm::DistMatrix<T> const& logits_gradient() const override;
  void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases) override;
  /// Tells of the weights of a head that is not tied, and of those of the blocks, half a block behind the pass.
  void backward_telling(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases,
                        GradientObserver const& on_complete) override;
  [[nodiscard]] std::vector<Parameter<T>>& parameters() override;
  [[nodiscard]] std::vector<std::size_t> gradient_order() override;
  /// Blocks are counted from 0, the head last; if none of them is to blame, it is the head. Collective over the grid's world, which
  /// all says the same.
  [[nodiscard]] std::int64_t first_layer_not_finite(runtime::DefaultExec const& exec) const override;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// The products of the head with its table E[x,y]. Forward it is the adjoint of a product:
///
///   logits[z,x] := sum_y X[z,y] E[x,y]^T      dX[z,y] := sum_x dlogits[z,x] E[x,y]      dE[x,y] := dlogits[z,x]^T X[z,y]
struct HeadProducts {
  pmm::ProductPlan product, input_back, weight_back;
};
[[nodiscard]] HeadProducts head_products(TransformerPlan const& plan);

/// Lists a forward pass; a backward pass; and the arrays of a Transformer.
void plan_transformer_forward(pmm::StepPlan& step, TransformerPlan const& plan, bool is_training = true);
void plan_transformer_backward(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_transformer_arrays(pmm::StepPlan& step, TransformerPlan const& plan);

extern template class Transformer<float>;
extern template class Transformer<double>;

} // namespace orthant::models
