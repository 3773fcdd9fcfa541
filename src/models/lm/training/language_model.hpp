#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Training of a transformer on a token file, in the common training loop (models/training/trainer.hpp), and its evaluation. An
// epoch of the trainer is a step of B sequences. Evaluations score the validation part.

#include "models/lm/plan/transformer_plan.hpp"
#include "models/lm/training/sequence_rows.hpp"
#include "models/training/trainer.hpp"
#include "models/training/vertex_loss.hpp"

#include <memory>

namespace orthant::models {

/// Score on the whole validation part: mean loss in nats per token, number of predicted tokens, and number of correct
/// predictions. The part is read in windows that do not overlap, so each token except the first is predicted once, from the
/// tokens before it in its window. `num_sequences`: sequences per pass, over all data groups. Collective over the grid's world.
/// Throws UserError if a rank cannot read the file.
template<class T>
[[nodiscard]] SplitScore evaluate_sequences(pmm::ProcessGrid const& grid, Transformer<T>& network,
                                            pmm::RowLoss<T>& loss, SequenceRows<T>& rows,
                                            tokens::TokenFile const& file, std::int64_t num_sequences);

template<class T>
class LanguageModel {
 public:
  /// Draws the initial weights. `training.num_epochs` and `training.eval_every` count steps. `grid` and `file` must outlive
  /// this object. Collective over the grid's world. Throws UserError if model, sequences, file and grid do not fit.
  LanguageModel(pmm::ProcessGrid const& grid, TransformerSettings const& model,
                SequenceSettings const& sequences, TrainSettings const& training, tokens::TokenFile& file);

  /// Trains all steps from `start` on, or until `should_stop` returns true, and evaluates as the settings say. `on_step` is
  /// called after each step on every rank, with the same record. Collective over the grid's world. Throws Error if a loss is
  /// not finite.
  TrainResult run(std::function<void(runtime::EpochRecord const&)> const& on_step,
                  TrainProgress const& start = {}, StopRequest const& should_stop = {});
  /// Score on the validation part, in the entry of graph::Split::valid. Collective over the grid's world.
  [[nodiscard]] Scores evaluate();

  [[nodiscard]] std::vector<Parameter<T>>& parameters() { return network_.parameters(); }
  [[nodiscard]] ParameterUpdate<T>& update() { return *update_; }
  [[nodiscard]] std::int64_t num_parameters();
  [[nodiscard]] std::int64_t num_trained_parameters();
  /// Loads of the experts in the last training pass, one entry per layer with experts. Collective over the axis pipe.
  [[nodiscard]] std::vector<ExpertLoad> expert_loads() const;
  /// Largest numbers of rows that this rank has moved in a pass so far, one entry per layer with experts; 0 for layers of other stages.
  [[nodiscard]] std::vector<pmm::DispatchSizes> largest_dispatch_sizes() const;

 private:
  pmm::ProcessGrid const& grid_;
  SequenceSettings sequences_;
  TrainSettings settings_;
  tokens::TokenFile& file_;
  Transformer<T> network_;
  pmm::RowLoss<T> loss_;
  SequenceRows<T> rows_;
  SequenceSource<T> source_;
  std::shared_ptr<ParameterUpdate<T>> update_;
  Trainer<T> trainer_;
};

/// Plan of a pass. Throws UserError if num_accumulated does not divide global_batch, if there are fewer sequences per pass than
/// ranks along data, expert and z, if a sequence is longer than max_sequence, if can_cut_heads() is false, or if numbers of bytes
/// would overflow.
[[nodiscard]] TransformerPlan plan_sequences(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                             TransformerSettings const& model,
                                             SequenceSettings const& sequences);

extern template class LanguageModel<float>;
extern template class LanguageModel<double>;

} // namespace orthant::models
