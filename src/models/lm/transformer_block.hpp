#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One block of a transformer, and the stream behind each of its halves. If the block is computed again, and collectives are kept, the
// results of the first forward pass are on its tape: of all calls that are made again, so not of the last product of a segment.

#include "models/lm/attention_half.hpp"
#include "models/lm/feed_forward_half.hpp"
#include "runtime/arrays/bytes.hpp"
#include "runtime/comm/call_tape.hpp"

#include <memory>
#include <ranges>
#include <utility>
#include <vector>

namespace orthant::models {

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

} // namespace orthant::models
