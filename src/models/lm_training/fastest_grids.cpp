// SPDX-License-Identifier: Apache-2.0
#include "models/lm_training/fastest_grids.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace orthant::models {
namespace {

/// Beside those that are asked for: their order by the short models is nearly that of the whole ones.
constexpr std::size_t num_more_listed = 13;
/// Fewer units of layers are listed in full.
constexpr std::int64_t least_units = 5;
/// A memory that is further above the limit, by the short models, is not looked at again.
constexpr double sure_excess = 1.1;

struct Estimate {
  pmm::GridShape shape;
  double seconds = 0;
  double bytes = 0;
};

class Estimator {
 public:
  Estimator(TransformerSettings const& model, SequenceSettings const& sequences,
            OptimizerSettings const& optimizer, pmm::Machine const& machine, std::int64_t scalar_bytes)
      : model_(model),
        sequences_(sequences),
        optimizer_(optimizer),
        machine_(machine),
        scalar_bytes_(scalar_bytes) {}

  [[nodiscard]] LanguageModelCost cost(pmm::GridShape const& shape) const {
    return cost_with_layers(shape, model_.num_layers);
  }
  [[nodiscard]] Estimate estimate(pmm::GridShape const& shape) const {
    auto const unit = std::max<std::int64_t>(1, model_.checkpoint_every);
    auto const num_units = static_cast<double>(model_.num_layers) / static_cast<double>(unit);
    auto const one = cost_with_layers(shape, unit);
    auto const two = cost_with_layers(shape, 2 * unit);
    auto const whole = [&](double of_one, double of_two) {
      return of_one + (num_units - 1) * (of_two - of_one);
    };
    return {shape, whole(one.seconds.total(), two.seconds.total()),
            whole(static_cast<double>(one.memory_bytes()), static_cast<double>(two.memory_bytes()))};
  }
  /// Few layers, or layers that differ.
  [[nodiscard]] bool is_listed_in_full() const {
    return model_.experts.is_on() ||
           model_.num_layers < least_units * std::max<std::int64_t>(1, model_.checkpoint_every);
  }

 private:
  [[nodiscard]] LanguageModelCost cost_with_layers(pmm::GridShape const& shape,
                                                   std::int64_t num_layers) const {
    auto model = model_;
    model.num_layers = num_layers;
    return cost_of_language_model(shape, model, sequences_, optimizer_, machine_, scalar_bytes_);
  }

  TransformerSettings const& model_;
  SequenceSettings const& sequences_;
  OptimizerSettings const& optimizer_;
  pmm::Machine const& machine_;
  std::int64_t scalar_bytes_;
};

} // namespace

FastestGrids fastest_grids(int num_ranks, TransformerSettings const& model, SequenceSettings const& sequences,
                           OptimizerSettings const& optimizer, pmm::Machine const& machine,
                           GridLimits const& limits, std::int64_t scalar_bytes) {
  Estimator const estimator(model, sequences, optimizer, machine, scalar_bytes);
  auto const shapes = shapes_of_language_model(num_ranks, model, sequences, limits.expert_axis);
  auto const num_listed = estimator.is_listed_in_full() ? shapes.size() : limits.num_grids + num_more_listed;
  std::vector<Estimate> estimates;
  for (auto const& shape : shapes)
    estimates.push_back(num_listed < shapes.size() ? estimator.estimate(shape) : Estimate{shape});
  std::ranges::stable_sort(estimates, {}, &Estimate::seconds);

  auto const limit = limits.bytes > 0 ? limits.bytes - static_cast<double>(limits.other_bytes)
                                      : std::numeric_limits<double>::infinity();
  FastestGrids fastest;
  for (auto const& estimate : estimates) {
    auto fits = estimate.bytes <= limit;
    if (estimate.bytes <= sure_excess * limit && fastest.costs.size() < num_listed) {
      auto cost = estimator.cost(estimate.shape);
      fits = static_cast<double>(cost.memory_bytes()) <= limit;
      if (fits) fastest.costs.push_back(std::move(cost));
    }
    if (!fits) ++fastest.left_out.num_costs;
  }
  if (fastest.costs.empty()) {
    auto const least = std::ranges::min(estimates, {}, &Estimate::bytes);
    fastest.left_out.least_bytes = estimator.cost(least.shape).memory_bytes();
  }
  std::ranges::stable_sort(fastest.costs, {}, [](LanguageModelCost const& cost) {
    return std::tuple(cost.seconds.total(), cost.array_bytes);
  });
  if (fastest.costs.size() > limits.num_grids) fastest.costs.resize(limits.num_grids);
  return fastest;
}

} // namespace orthant::models
