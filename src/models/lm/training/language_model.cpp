// SPDX-License-Identifier: Apache-2.0
#include "models/lm/training/language_model.hpp"

#include "runtime/comm/collectives.hpp"
#include "tokens/token_file.hpp"

#include <algorithm>

namespace orthant::models {

template<class T>
SplitScore evaluate_sequences(pmm::ProcessGrid const& grid, Transformer<T>& network, pmm::RowLoss<T>& loss,
                              SequenceRows<T>& rows, tokens::TokenFile const& file,
                              std::int64_t num_sequences) {
  runtime::DefaultExec const exec;
  runtime::PhaseTimes phases; // discarded, because evaluation is not part of a step
  auto const num_windows =
      tokens::num_validation_windows(file.num_tokens(tokens::Part::valid), rows.sequence());
  auto const own = rows.sequences();
  std::array sums{0.0, 0.0, 0.0}; // loss, correct predictions and predictions of this data group
  network.begin_passes(Pass::evaluation, (num_windows + num_sequences - 1) / num_sequences);
  for (std::int64_t first = 0; first < num_windows; first += num_sequences) {
    network.select_batch(first / num_sequences);
    for (std::int64_t s = 0; s < own.size(); ++s)
      if (auto const window = first + own.begin + s; window < num_windows)
        rows.read(s, tokens::Part::valid, window * rows.sequence());
      else
        rows.clear(s);
    rows.bind(0);
    auto const& logits = network.forward(exec, Pass::evaluation, 0, phases);
    if (!network.has_logits()) continue;
    auto const score = loss.evaluate(exec, logits).front();
    auto const count = static_cast<double>(score.num_counted);
    sums[0] += score.loss * count;
    sums[1] += static_cast<double>(score.num_correct);
    sums[2] += count;
  }
  for (auto const axes : {pmm::batch_axes(grid.shape()), pmm::AxisSet{pmm::Axis::pipe}})
    if (grid.size(axes) > 1) runtime::all_reduce(runtime::host, grid.over(axes), std::span(sums));
  SplitScore score;
  score.num_counted = static_cast<std::int64_t>(sums[2]);
  score.num_correct = static_cast<std::int64_t>(sums[1]);
  score.loss = sums[2] == 0 ? 0.0 : sums[0] / sums[2];
  return score;
}

template SplitScore evaluate_sequences(pmm::ProcessGrid const&, Transformer<float>&, pmm::RowLoss<float>&,
                                       SequenceRows<float>&, tokens::TokenFile const&, std::int64_t);
template SplitScore evaluate_sequences(pmm::ProcessGrid const&, Transformer<double>&, pmm::RowLoss<double>&,
                                       SequenceRows<double>&, tokens::TokenFile const&, std::int64_t);

namespace {

/// Throws UserError if sums of bytes would overflow.
void require_countable(TransformerSettings const& model, SequenceSettings const& sequences) {
  constexpr double most_numbers = 0x1p52;
  auto const width = std::max({model.hidden, model.feed_forward, model.expert_width()});
  auto const per_token = static_cast<double>(model.num_layers) * static_cast<double>(width) +
                         static_cast<double>(model.vocabulary);
  auto const num_tokens =
      static_cast<double>(sequences.global_batch) * static_cast<double>(sequences.sequence);
  if (num_tokens * per_token > most_numbers)
    runtime::throw_user(
        "--global-batch {} of --sequence {}: a step of {:.3g} tokens is more than any machine holds",
        sequences.global_batch, sequences.sequence, num_tokens);
  auto const of = [](std::int64_t number) { return static_cast<double>(number); };
  auto const& experts = model.experts;
  if (experts.is_on() &&
      (3 * of(model.num_layers) * of(experts.num_experts + experts.num_shared) * of(model.hidden) *
               of(model.expert_width()) >
           most_numbers ||
       num_tokens * (of(experts.num_experts) + of(experts.num_shared) * of(model.expert_width())) >
           most_numbers))
    runtime::throw_user("--experts {} and --shared-experts {} of --hidden {} and {} {} are more than any "
                        "machine holds",
                        experts.num_experts, experts.num_shared, model.hidden,
                        experts.width > 0 ? "--expert-width" : "--feed-forward", model.expert_width());
  if (static_cast<double>(model.max_sequence) * static_cast<double>(model.hidden) > most_numbers)
    runtime::throw_user("--positions {}: their table is more than any machine holds", model.max_sequence);
}

/// Divides the coefficients of the router's losses by the number of passes. These losses are then means over the passes of a
/// step, like the gradients of the tokens' loss. Gradients of weights that are pruned share memory.
TransformerSettings settings_of_training(TransformerSettings model, std::int64_t num_passes,
                                         OptimizerSettings const& optimizer) {
  model.shares_gradients = optimizer.pruning.is_on();
  model.experts.balance_loss /= static_cast<double>(num_passes);
  model.experts.z_loss /= static_cast<double>(num_passes);
  model.experts.sequence_loss /= static_cast<double>(num_passes);
  return model;
}

} // namespace

TransformerPlan plan_sequences(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                               TransformerSettings const& model, SequenceSettings const& sequences) {
  if (sequences.global_batch % sequences.num_accumulated != 0)
    runtime::throw_user("--accumulate {} does not divide the {} sequences of --global-batch",
                        sequences.num_accumulated, sequences.global_batch);
  require_countable(model, sequences);
  return plan_transformer(shape, coordinates, model, sequences.num_sequences(), sequences.sequence,
                          sequences.num_accumulated);
}

template<class T>
LanguageModel<T>::LanguageModel(pmm::ProcessGrid const& grid, TransformerSettings const& model,
                                SequenceSettings const& sequences, TrainSettings const& training,
                                tokens::TokenFile& file)
    : grid_(grid),
      sequences_(sequences),
      settings_(training),
      file_(file),
      network_(grid, settings_of_training(model, sequences.num_accumulated, training.optimizer),
               sequences.num_sequences(), sequences.sequence, sequences.seed, 0, sequences.num_accumulated),
      loss_(grid, network_.logits_placement(), pmm::LossKind::softmax),
      rows_(network_, loss_, file, sequences.num_accumulated, sequences.goldfish),
      source_(grid, rows_, file, sequences),
      update_(std::make_shared<ParameterUpdate<T>>(
          grid, network_.parameters(), training,
          make_shards(grid, network_, shards_of(training, sequences.num_accumulated)))),
      trainer_(grid, network_, loss_, source_, training, update_) {
  loss_.set_label_smoothing(training.loss.label_smoothing);
  loss_.set_z_loss(training.loss.z_loss);
}

template<class T>
std::int64_t LanguageModel<T>::num_parameters() {
  std::int64_t sum = 0;
  for (auto const& parameter : network_.parameters())
    sum += parameter.num_numbers();
  return sum;
}

template<class T>
std::int64_t LanguageModel<T>::num_trained_parameters() {
  std::int64_t sum = 0;
  for (auto const& parameter : network_.parameters())
    if (!parameter.is_frozen) sum += parameter.num_numbers();
  return sum;
}

/// Each stage of a pipeline knows its own layers.
template<class T>
std::vector<ExpertLoad> LanguageModel<T>::expert_loads() const {
  auto own = network_.expert_loads();
  if (grid_.size(pmm::Axis::pipe) == 1) return own;
  auto const& model = network_.settings();
  std::vector<ExpertLoad> loads;
  for (std::int64_t l = 0; l < model.num_layers; ++l) {
    if (!model.experts.has_layer(l)) continue;
    ExpertLoad load{l, std::vector<std::int64_t>(static_cast<std::size_t>(model.experts.num_experts)), 0};
    for (auto const& of_layer : own)
      if (of_layer.layer == l) load = of_layer;
    runtime::all_reduce(runtime::host, grid_.over(pmm::Axis::pipe), load.chosen);
    load.num_dropped = runtime::all_reduced(grid_.over(pmm::Axis::pipe), load.num_dropped);
    loads.push_back(std::move(load));
  }
  return loads;
}

template<class T>
std::vector<pmm::DispatchSizes> LanguageModel<T>::largest_dispatch_sizes() const {
  auto const own = network_.largest_dispatch_sizes();
  auto const& model = network_.settings();
  auto const layers = network_.layers();
  std::vector<pmm::DispatchSizes> all(
      static_cast<std::size_t>(model.experts.num_layers_before(model.num_layers)));
  std::ranges::copy(own, all.begin() + model.experts.num_layers_before(layers.begin));
  return all;
}

template<class T>
Scores LanguageModel<T>::evaluate() {
  Scores scores;
  scores[static_cast<std::size_t>(graph::Split::valid)] =
      evaluate_sequences(grid_, network_, loss_, rows_, file_, sequences_.num_sequences());
  return scores;
}

template<class T>
TrainResult LanguageModel<T>::run(std::function<void(runtime::EpochRecord const&)> const& on_step,
                                  TrainProgress const& start, StopRequest const& should_stop) {
  source_.start_at(start.epoch, start.step);
  EpochWork work;
  work.train = [this](TrainProgress& progress, StopRequest const& stop) {
    return trainer_.train_epoch(progress, stop);
  };
  work.evaluate = [this] { return evaluate(); };
  work.dead_layers = [] { return std::vector<std::int64_t>(); };
  work.require_bounded_parameters = [this] { update_->require_bounded_parameters({}); };
  work.set_rate_reduction = [this](double reduction) { update_->set_rate_reduction(reduction); };
  return run_epochs(grid_, settings_, work, on_step, start, should_stop);
}

template class LanguageModel<float>;
template class LanguageModel<double>;

} // namespace orthant::models
