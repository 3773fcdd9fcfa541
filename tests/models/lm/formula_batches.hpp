#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A training of a small transformer on batches of a formula.

#include "models/lm/lm_cases.hpp"

namespace orthant::testing {

/// Batches of the formula, numbered over steps and accumulations.
template<class T>
class FormulaBatches final : public models::BatchSource {
 public:
  FormulaBatches(LmCase const& the_case, models::Transformer<T>& network, pmm::RowLoss<T>& loss,
                 std::int64_t num_steps, std::int64_t num_accumulated)
      : case_(the_case),
        network_(network),
        loss_(loss),
        num_steps_(num_steps),
        num_accumulated_(num_accumulated) {}

  [[nodiscard]] std::int64_t num_steps() const override { return num_steps_; }
  [[nodiscard]] std::int64_t num_accumulated() const override { return num_accumulated_; }
  [[nodiscard]] std::optional<std::int64_t> nominal_count() const override {
    return case_.num_sequences * case_.sequence * num_accumulated_;
  }
  void start_at(std::int64_t /*epoch*/, std::int64_t step) override { batch_ = step * num_accumulated_; }
  std::uint64_t next(std::int64_t /*epoch*/, runtime::PhaseTimes& /*phases*/) override {
    LmBatch const batch(case_, network_.sequences(), batch_, network_.tokens());
    network_.set_tokens(batch.tokens, batch.positions);
    std::vector<std::int8_t> const groups(batch.targets.size(), 0);
    loss_.set_batch_targets({device_copy(groups), device_copy(batch.targets), {}}, {groups, batch.targets});
    return static_cast<std::uint64_t>(batch_++);
  }

 private:
  LmCase case_;
  models::Transformer<T>& network_;
  pmm::RowLoss<T>& loss_;
  std::int64_t num_steps_, num_accumulated_, batch_ = 0;
};

/// An epoch of `num_steps` steps from the formula's parameters, without evaluations.
template<class T>
class LmTrainerOf {
 public:
  LmTrainerOf(pmm::ProcessGrid const& grid, LmCase const& the_case, std::int64_t num_steps,
              std::int64_t num_accumulated, models::TrainSettings settings)
      : network_(grid, settings_of(the_case, settings), the_case.num_sequences, the_case.sequence, lm_seed, 0,
                 num_accumulated),
        loss_(grid, network_.logits_placement(), pmm::LossKind::softmax),
        batches_(the_case, network_, loss_, num_steps, num_accumulated),
        trainer_(grid, network_, loss_, batches_, of_one_epoch(std::move(settings))) {
    set_formula_parameters(network_.parameters());
    clear_other_targets(the_case.settings, network_.parameters());
  }

  [[nodiscard]] models::Trainer<T>& trainer() { return trainer_; }
  [[nodiscard]] models::Transformer<T>& network() { return network_; }

 private:
  static models::TransformerSettings settings_of(LmCase const& the_case,
                                                 models::TrainSettings const& training) {
    auto settings = the_case.settings;
    settings.shares_gradients = training.optimizer.pruning.is_on();
    return settings;
  }
  static models::TrainSettings of_one_epoch(models::TrainSettings settings) {
    settings.num_epochs = 1;
    settings.eval_every = 0;
    return settings;
  }
  models::Transformer<T> network_;
  pmm::RowLoss<T> loss_;
  FormulaBatches<T> batches_;
  models::Trainer<T> trainer_;
};

using LmTrainer = LmTrainerOf<double>;

/// Results of a training on all ranks.
struct LmTraining {
  std::vector<double> losses;     // of its steps
  std::vector<double> norms;      // of the gradients of the last epoch
  std::vector<std::string> names; // of the parameters
  std::vector<Dense> parameters;  // as whole matrices
};

/// Runs the training to its end. Collective over the ranks of the grid.
inline LmTraining run_to_the_end(LmTrainer& training) {
  LmTraining result;
  training.trainer().run([&](auto const& record) { result.norms = record.grad_norms; });
  result.losses = training.trainer().step_losses();
  for (auto const& parameter : training.network().parameters()) {
    result.names.push_back(parameter.name);
    result.parameters.push_back(whole_of(parameter, parameter.value(), false));
  }
  return result;
}

} // namespace orthant::testing
