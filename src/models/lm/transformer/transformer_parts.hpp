#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Members of a Transformer. What passes use one after the other exists once: parameters, tables, scratch memory, the head. What a forward
// pass keeps for its backward pass exists once per pass that can be between the two, which is one without a pipeline.

#include "models/lm/pipeline/stage_messages.hpp"
#include "models/lm/transformer/token_embedding.hpp"
#include "models/lm/transformer/transformer.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace orthant::models {

/// Activations of a pass between its forward and its backward pass, and the blocks that work on them.
template<class T>
struct PassInFlight {
  PassInFlight(pmm::ProcessGrid const& grid, TransformerPlan const& plan, TokenNumbers positions)
      : embedding(grid, plan),
        document_positions(std::move(positions)) {}

  TokenEmbedding<T> embedding;
  TokenNumbers document_positions;                          // as in the scratch memory
  std::vector<std::unique_ptr<TransformerBlock<T>>> blocks; // of this rank's layers
  std::vector<WeightUse<T>> forward_uses, backward_uses;
  DropoutKey dropout;
  RouterPass router;
  runtime::Vector<T> small_gradients; // between the two parts of a backward pass, if it is split
  bool has_begun_backward = false;    // its first part is done
  std::int64_t number = 0;            // of the pass
  pmm::DistMatrix<T> input;           // of the first block in this pass
};

/// What follows the last block.
template<class T>
struct TransformerHead {
  TransformerHead(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                  TransformerParameters<T> const& parameters, TransformerScratch<T>& scratch);

  ParallelNorm<T> final_norm;
  pmm::DistMatrix<T> normed, logits;
  pmm::Product<T> product, input_back, weight_back;
  std::optional<VocabularyTable<T>> own_table; // unless the head is tied
  /// Of the gradients of the table in the passes of a step so far, if backward passes are split.
  runtime::Vector<T> table_sum;
};

template<class T>
struct TransformerParts {
  TransformerParts(pmm::ProcessGrid const& on, TransformerPlan const& of, std::uint64_t with_seed,
                   TransformerParameters<T> with_parameters, std::shared_ptr<KeyValueCache<T>> with_cache);

  /// This rank's piece of the gradient of the head's table.
  [[nodiscard]] runtime::Vector<T> head_gradient() const {
    auto const& linear = plan.settings.tied_head ? parameters.embedding() : parameters.head();
    return linear.weight_gradient.storage();
  }
  VocabularyTable<T>& head_table() { return head->own_table ? *head->own_table : *table; }
  [[nodiscard]] pmm::RowDropout dropout_at(std::int64_t place) const {
    if (now->dropout.probability == 0) return {};
    return {now->dropout.probability, now->dropout.stream(place), scratch.token_ids.own,
            branch.block().columns.begin};
  }
  /// to := from + M branch.
  void add_branch(runtime::DefaultExec const& exec, std::int64_t place, pmm::DistMatrix<T> const& from,
                  pmm::DistMatrix<T> const& to) const {
    pmm::add_dropped<T>(exec, grid.passes(), from.local(), branch.local(), dropout_at(place), to.local());
  }
  /// Gradient of the branch: that of the stream times the dropout mask M.
  pmm::DistMatrix<T> const& branch_gradient(runtime::DefaultExec const& exec, std::int64_t place) const {
    if (now->dropout.probability == 0) return gradient;
    pmm::drop_rows<T>(exec, grid.passes(), gradient.local(), dropout_at(place), branch.local());
    return branch;
  }
  void make_blocks(PassInFlight<T>& pass, std::shared_ptr<pmm::RotaryTable<T> const> const& rotary);
  void select_batch(std::int64_t k);
  void begin_tapes(runtime::CallTape::State state) {
    for (auto const& block : now->blocks)
      block->begin_tape(state);
  }
  [[nodiscard]] TransformerBlock<T>& block(std::int64_t layer) const {
    return *now->blocks[static_cast<std::size_t>(layer - plan.stage.layers.begin)];
  }
  [[nodiscard]] pmm::DistMatrix<T> const& input_of(std::int64_t layer) const {
    return layer == plan.stage.layers.begin ? now->input : block(layer - 1).output;
  }
  [[nodiscard]] pmm::DistMatrix<T> const& output() const { return now->blocks.back()->output; }
  void attend(runtime::DefaultExec const& exec, std::int64_t layer);
  void compute_feed_forward(runtime::DefaultExec const& exec, std::int64_t layer);
  void combine_feed_forward(runtime::DefaultExec const& exec, std::int64_t layer);
  void recompute(runtime::DefaultExec const& exec, runtime::Range layers);
  void backward(runtime::DefaultExec const& exec, std::int64_t layer, runtime::PhaseTimes& phases,
                GradientObserver const& on_complete);
  /// The gradients that backward() left, if backward passes are split.
  void weight_backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases,
                       GradientObserver const& on_complete);
  /// What the first part of a backward pass computed, and other passes overwrite before the second part: kept, and put back.
  void keep_early_gradients(runtime::DefaultExec const& exec);
  void restore_early_gradients(runtime::DefaultExec const& exec);
  void embed(runtime::DefaultExec const& exec);
  void embed_backward(runtime::DefaultExec const& exec);
  void compute_logits(runtime::DefaultExec const& exec);
  void head_backward(runtime::DefaultExec const& exec);
  /// Number of complete gradients of weights: of the layers of later stages, of a head that is not tied, and of the blocks.
  [[nodiscard]] std::size_t num_complete_gradients() const {
    return num_of_later_stages + (head && head->own_table ? 1 : 0) + scratch.work.num_finished();
  }

  pmm::ProcessGrid const& grid;
  TransformerPlan plan;
  std::uint64_t seed;
  std::shared_ptr<KeyValueCache<T>> cache; // or null
  TransformerParameters<T> parameters;
  TransformerScratch<T> scratch;
  std::optional<VocabularyTable<T>> table; // if this rank has it
  std::optional<TransformerHead<T>> head;  // the same
  StageMessages<T> messages;
  pmm::DistMatrix<T> branch, normed_gradient; // in scratch
  pmm::DistMatrix<T> gradient;                // of the stream, in the last backward pass
  std::vector<std::unique_ptr<PassInFlight<T>>> in_flight;
  PassInFlight<T>* now = nullptr;          // the pass that is taken up
  PassInFlight<T>* last_trained = nullptr; // the pass of the last backward pass
  std::int64_t num_passes = 1;             // of the step
  std::size_t num_of_later_stages = 0;
};

extern template struct TransformerParts<float>;
extern template struct TransformerParts<double>;

} // namespace orthant::models
