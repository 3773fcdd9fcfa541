#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A transformer with its training on a token file: network, loss, sequences and updates, in the one training loop
// (training/trainer.hpp). Its epochs are steps of B sequences each; the scores of its evaluations are those of the
// validation part.

#include "models/lm/plan/transformer_plan.hpp"
#include "models/lm/training/sequence_rows.hpp"
#include "models/training/trainer.hpp"
#include "models/training/vertex_loss.hpp"

#include <memory>

namespace orthant::models {

// The loss over the whole validation part: windows that do not overlap, so each token but the first is predicted
// once, from those before it in its window.

/// Mean loss in nats per token, and how many tokens were predicted and how many right. `num_sequences`: of a pass, over
/// all data groups. Collective over the grid's group and data axis. Throws UserError if a rank cannot read.
template<class T>
[[nodiscard]] SplitScore evaluate_sequences(pmm::ProcessGrid const& grid, Transformer<T>& network,
                                            pmm::RowLoss<T>& loss, SequenceRows<T>& rows,
                                            tokens::TokenFile const& file, std::int64_t num_sequences);

template<class T>
class LanguageModel {
 public:
  /// Draws the weights. `training.num_epochs` and `training.eval_every` are in steps. Grid and file must outlive it.
  /// Collective over the grid's world. Throws UserError if model, sequences, file and grid do not fit.
  LanguageModel(pmm::ProcessGrid const& grid, TransformerSettings const& model,
                SequenceSettings const& sequences, TrainSettings const& training, tokens::TokenFile& file);

  /// As Trainer::run(): the records are those of steps.
  TrainResult run(std::function<void(runtime::EpochRecord const&)> const& on_step,
                  TrainProgress const& start = {}, StopRequest const& should_stop = {});
  /// Of the validation part, where scores have that of graph::Split::valid. Collective over the grid's world.
  [[nodiscard]] Scores evaluate();

  [[nodiscard]] std::vector<Parameter<T>>& parameters() { return network_.parameters(); }
  [[nodiscard]] ParameterUpdate<T>& update() { return *update_; }
  [[nodiscard]] std::int64_t num_parameters();
  /// Of the last pass of the last step, layer by layer of those with experts.
  [[nodiscard]] std::vector<ExpertLoad> expert_loads() const { return network_.expert_loads(); }
  /// What this rank moved at most in a pass so far, layer by layer of those with experts.
  [[nodiscard]] std::vector<pmm::DispatchSizes> largest_dispatch_sizes() const {
    return network_.largest_dispatch_sizes();
  }

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

/// The plan of a pass. Throws UserError if the passes do not divide the sequences, if a rank that has sequences of its own
/// would have none in a pass, if a sequence is longer than the positions, if heads do not divide over x, or if there are
/// more numbers than bytes can be counted of.
[[nodiscard]] TransformerPlan plan_sequences(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                             TransformerSettings const& model,
                                             SequenceSettings const& sequences);

extern template class LanguageModel<float>;
extern template class LanguageModel<double>;

} // namespace orthant::models
