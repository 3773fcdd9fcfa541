// SPDX-License-Identifier: Apache-2.0
#include "models/full_graph.hpp"

#include "pmm/norms.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace orthant::models {
namespace {

using Clock = std::chrono::steady_clock;
using runtime::ScopedTimer;

template<class T>
std::vector<ParameterShard<T>> shards_of(std::vector<Parameter<T>> const& parameters,
                                         TrainSettings const& settings) {
  std::vector<ParameterShard<T>> shards;
  for (auto const& parameter : parameters) {
    auto const of_layer = parameter.layer == 0
                              ? settings.weight_decay_first_layer.value_or(settings.weight_decay)
                              : settings.weight_decay;
    auto const is_weight = !parameter.is_bias && parameter.name != "features";
    shards.push_back({parameter.value(), parameter.gradient(), is_weight ? of_layer : 0.0});
  }
  return shards;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

} // namespace

std::array<std::int64_t, 5> communicated_bytes(pmm::ProcessGrid const& grid) {
  auto const of = [](runtime::Communicator const& comm) { return comm.ledger().total().bytes; };
  return {of(grid.along(pmm::Axis::x)), of(grid.along(pmm::Axis::y)), of(grid.along(pmm::Axis::z)),
          of(grid.group()), of(grid.along(pmm::Axis::data))};
}

template<class T>
FullGraphTrainer<T>::FullGraphTrainer(pmm::ProcessGrid const& grid, Gcn<T>& model, pmm::RowLoss<T>& loss,
                                      TrainSettings const& settings)
    : grid_(grid),
      model_(model),
      loss_(loss),
      settings_(settings),
      optimizer_(settings.optimizer, shards_of(model.parameters(), settings)) {}

/// The Frobenius norm of each parameter's gradient, in the order of parameters(). One all_reduce.
template<class T>
std::vector<double> FullGraphTrainer<T>::gradient_norms() {
  std::vector<double> squares;
  for (auto const& parameter : model_.parameters())
    squares.push_back(parameter.is_bias ? pmm::local_squared_norm(exec_, parameter.bias_gradient)
                                        : pmm::local_squared_norm(exec_, parameter.matrix_gradient));
  pmm::sum_over_group(grid_, squares);
  for (auto& square : squares)
    square = std::sqrt(square);
  return squares;
}

template<class T>
runtime::EpochRecord FullGraphTrainer<T>::train_epoch(std::int64_t epoch) {
  auto& instruments = grid_.world().instruments();
  runtime::EpochRecord record;
  record.epoch = epoch;
  phases_.clear();
  auto const begin = Clock::now();

  auto const& logits =
      model_.forward(exec_, Gcn<T>::Pass::training, static_cast<std::uint64_t>(epoch), phases_);
  {
    ScopedTimer const timer(instruments, phases_, "loss");
    record.loss = loss_.loss_and_gradient(exec_, logits, model_.logits_gradient());
  }
  if (!std::isfinite(record.loss)) {
    auto const layer = model_.first_layer_not_finite(exec_);
    auto const where = layer < 0
                           ? std::string("all layers' outputs are finite")
                           : fmt::format("the output of layer {} is the first that is not finite", layer);
    throw runtime::Error(fmt::format("epoch {}: the loss is {}; {} (a smaller --lr or --clip-norm may help)",
                                     epoch, std::isnan(record.loss) ? "nan" : "infinite", where));
  }
  model_.backward(exec_, phases_);

  auto scale = 1.0;
  {
    ScopedTimer const timer(instruments, phases_, "norms");
    auto const norms = gradient_norms();
    auto squared = 0.0;
    for (std::size_t p = 0; p < norms.size(); ++p) {
      squared += norms[p] * norms[p];
      if (!model_.parameters()[p].is_bias) record.grad_norms.push_back(norms[p]);
    }
    if (settings_.clip_norm) scale = std::min(1.0, *settings_.clip_norm / (std::sqrt(squared) + 1e-6));
  }
  {
    ScopedTimer const timer(instruments, phases_, "optimizer");
    optimizer_.step(exec_, scale);
    runtime::compat::fence(exec_, "orthant::models::train_epoch/the clock is read");
  }
  record.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  record.phases = phases_;
  return record;
}

template<class T>
Scores FullGraphTrainer<T>::evaluate() {
  runtime::PhaseTimes phases; // evaluation is no part of an epoch
  auto const& logits = model_.forward(exec_, Gcn<T>::Pass::evaluation, 0, phases);
  return loss_.evaluate(exec_, logits);
}

template<class T>
TrainResult FullGraphTrainer<T>::run(std::function<void(runtime::EpochRecord const&)> const& on_epoch) {
  TrainResult result;
  std::vector<double> seconds;
  for (std::int64_t epoch = 1; epoch <= settings_.num_epochs; ++epoch) {
    auto const before = communicated_bytes(grid_);
    auto record = train_epoch(epoch);

    auto bytes = communicated_bytes(grid_);
    std::ranges::transform(bytes, before, bytes.begin(), std::minus<>());
    runtime::all_reduce(runtime::host, grid_.world(), bytes);
    record.comm_bytes = bytes[0] + bytes[1] + bytes[2] + bytes[3] + bytes[4];
    std::copy_n(bytes.begin(), 3, result.epoch_bytes.begin());
    record.seconds = runtime::all_reduced(grid_.world(), record.seconds, runtime::Reduction::max);
    seconds.push_back(record.seconds);
    result.last_loss = record.loss;

    auto const is_due =
        settings_.eval_every > 0 && (epoch % settings_.eval_every == 0 || epoch == settings_.num_epochs);
    if (is_due) {
      auto const scores = evaluate();
      auto const& [train, valid, test] = scores;
      record.train_acc = train.accuracy();
      if (valid.num_counted > 0) record.val_acc = valid.accuracy();
      if (valid.num_counted > 0) record.val_loss = valid.loss;
      if (test.num_counted > 0) record.test_acc = test.accuracy();
      if (test.num_counted > 0) record.test_loss = test.loss;
      result.last = scores;
      if (result.best.epoch == 0 || valid.accuracy() > result.best.scores[1].accuracy())
        result.best = {epoch, scores};
    }
    on_epoch(record);
  }
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  result.median_epoch_seconds = median(std::move(seconds));
  return result;
}

template class FullGraphTrainer<float>;
template class FullGraphTrainer<double>;

} // namespace orthant::models
