// SPDX-License-Identifier: Apache-2.0
#include "models/training/parameter_update.hpp"

#include "models/layers/hidden_norm.hpp"
#include "models/parameters/weights_file.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "pmm/rows/norms.hpp"
#include "runtime/observe/position.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using runtime::Vector;
using Once = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

struct AddToSums {
  Vector<double> loss_and_count;
  Vector<double> sums;
  double weight;
  bool is_first;
  KOKKOS_FUNCTION void operator()(std::int64_t) const {
    sums(0) = (is_first ? 0.0 : sums(0)) + loss_and_count(0) * weight;
    sums(1) = (is_first ? 0.0 : sums(1)) + loss_and_count(1);
  }
};

/// One work item, because there are only a few norms per layer.
struct FinishNorms {
  Vector<double> norms;
  Vector<double> sums;
  runtime::Number<double> scale;
  double nominal_count;
  double gradient_scale;
  double clip_norm;
  KOKKOS_FUNCTION void operator()(std::int64_t) const {
    auto factor = 1.0;
    if (nominal_count > 0) factor = sums(1) == 0 ? 0.0 : nominal_count / sums(1);
    factor /= gradient_scale;
    auto squared = 0.0;
    for (std::size_t p = 0; p < norms.extent(0); ++p) {
      auto const norm = factor * runtime::compat::sqrt(norms(p));
      norms(p) = norm;
      squared += norm * norm;
    }
    auto const clip = clip_norm / (runtime::compat::sqrt(squared) + 1e-6);
    scale() = clip_norm > 0 && clip < 1.0 ? factor * clip : factor;
  }
};

} // namespace

void plan_step_numbers(pmm::StepPlan& step, std::int64_t num_norms) {
  auto const count = static_cast<std::int64_t>(StepNumbers::first_norm) + num_norms;
  step.add_array("orthant::models::step_numbers", count * std::int64_t{sizeof(double)});
}

StepNumbers::StepNumbers(std::size_t num_norms)
    : numbers_("orthant::models::step_numbers", first_norm + num_norms) {
  if constexpr (!pmm::runs_on_host)
    on_host_ = decltype(on_host_)("orthant::models::step_numbers", numbers_.extent(0));
}

void StepNumbers::add_to_sums(DefaultExec const& exec, std::int64_t k, double weight) const {
  Kokkos::parallel_for("orthant::models::add_to_sums", Once(exec, 0, 1),
                       AddToSums{loss_and_count(), sums(), weight, k == 0});
}

void StepNumbers::finish_norms(DefaultExec const& exec, double nominal_count, double gradient_scale,
                               double clip_norm) const {
  Kokkos::parallel_for("orthant::models::finish_norms", Once(exec, 0, 1),
                       FinishNorms{norms(), sums(), scale(), nominal_count, gradient_scale, clip_norm});
}

StepNumbers::OnHost StepNumbers::read(DefaultExec const& exec) const {
  auto const* numbers = numbers_.data();
  if constexpr (!pmm::runs_on_host) {
    Kokkos::deep_copy(exec, on_host_, numbers_);
    numbers = on_host_.data();
  }
  runtime::compat::fence(exec, "orthant::models::StepNumbers/the end of a step");
  return {numbers[0], numbers[2], numbers[3], numbers[5], {numbers + first_norm, num_norms()}};
}

namespace {

using runtime::ScopedTimer;

template<class T>
std::vector<ParameterShard<T>> optimizer_shards(std::vector<Parameter<T>> const& parameters,
                                                TrainSettings const& settings, PrunedWeights<T> const* pruned,
                                                std::vector<std::size_t> const& places) {
  std::vector<ParameterShard<T>> shards;
  std::int64_t last_layer = 0;
  for (auto const& parameter : parameters)
    last_layer = std::max(last_layer, parameter.layer);
  auto const decay_of = [&](std::int64_t layer) {
    auto const of_layer = layer == 0            ? settings.weight_decay_first_layer
                          : layer == last_layer ? settings.weight_decay_last_layer
                                                : std::nullopt;
    return of_layer.value_or(settings.weight_decay);
  };
  for (auto const& parameter : parameters) {
    auto const of_layer = decay_of(parameter.layer);
    auto const is_decayed =
        parameter.role == ParameterRole::weight && !matches_any(parameter.name, settings.without_decay);
    shards.push_back({parameter.value(), parameter.gradient(), is_decayed ? of_layer : 0.0,
                      settings.optimizer.kind == OptimizerKind::jorge && is_preconditioned(parameter.role)});
    if (pruned != nullptr) shards.back().kept = pruned->kept(places[shards.size() - 1]);
  }
  return shards;
}

template<class T>
std::vector<Parameter<T>> those_that(std::vector<Parameter<T>> const& parameters,
                                     bool (Parameter<T>::*has_property)() const) {
  std::vector<Parameter<T>> some;
  for (auto const& parameter : parameters)
    if ((parameter.*has_property)()) some.push_back(parameter);
  return some;
}

/// What this rank updates of each trained parameter.
template<class T>
std::vector<Parameter<T>> own_parts(std::vector<Parameter<T>> const& parameters,
                                    GradientShards<T> const* shards) {
  std::vector<Parameter<T>> parts;
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (parameters[p].is_trained()) parts.push_back(shards ? shards->own_part(p) : parameters[p]);
  return parts;
}

template<class T>
std::vector<std::size_t> places_of_trained(std::vector<Parameter<T>> const& parameters) {
  std::vector<std::size_t> places;
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (parameters[p].is_trained()) places.push_back(p);
  return places;
}

template<class T>
std::optional<PrunedWeights<T>> make_pruned(pmm::ProcessGrid const& grid,
                                            std::vector<Parameter<T>> const& parameters,
                                            OptimizerSettings const& optimizer, bool has_shards) {
  if (!optimizer.pruning.is_on()) return std::nullopt;
  ORTHANT_REQUIRE(!has_shards && optimizer.kind != OptimizerKind::jorge,
                  "weights whose states are sharded over the batch axes, or preconditioned, are not pruned");
  return PrunedWeights<T>(grid, parameters, optimizer.pruning);
}

/// Null unless the optimizer is jorge.
template<class T>
std::optional<Jorge<T>> make_jorge(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
                                   TrainSettings const& settings, bool has_shards) {
  if (settings.optimizer.kind != OptimizerKind::jorge) return std::nullopt;
  ORTHANT_REQUIRE(!has_shards, "jorge needs whole gradients, and these are sharded over the batch axes");
  std::vector<Parameter<T>> matrices;
  for (auto const& parameter : parameters) {
    ORTHANT_REQUIRE(!parameter.is_of_expert, "jorge has no tiles of experts: ", parameter.name);
    if (is_preconditioned(parameter.role)) matrices.push_back(parameter);
  }
  return Jorge<T>(grid, settings.optimizer.jorge, settings.optimizer.momentum, std::move(matrices));
}

runtime::LocalPass pass_of_statistics(std::int64_t bytes) {
  return {"update_statistics", 2 * bytes, bytes};
}

/// value += mu (found / B - value)
template<class T>
void update_statistics(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                       std::vector<Parameter<T>> const& statistics, std::int64_t num_batches) {
  std::int64_t bytes = 0;
  auto const share = static_cast<T>(1 / static_cast<double>(num_batches));
  auto const momentum = static_cast<T>(running_momentum);
  for (auto const& statistic : statistics) {
    auto const count = static_cast<std::int64_t>(statistic.value().extent(0));
    if (count == 0) continue; // other ranks have it
    bytes += count * static_cast<std::int64_t>(sizeof(T));
    T* const value = statistic.value().data();
    T const* const found = statistic.gradient().data();
    Kokkos::parallel_for(
        "orthant::models::update_statistics",
        Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, count),
        KOKKOS_LAMBDA(std::int64_t i) { value[i] += momentum * (share * found[i] - value[i]); });
  }
  passes.add(pass_of_statistics(bytes));
}

} // namespace

void plan_update_arrays(pmm::StepPlan& step, OptimizerSettings const& optimizer,
                        UpdatedParameters const& parameters) {
  if (optimizer.kind == OptimizerKind::jorge) plan_jorge_arrays(step, optimizer.jorge, parameters.matrices);
  plan_optimizer_arrays(step, optimizer, parameters);
  for (auto const count : parameters.kept)
    step.add_array("orthant::models::kept_places", count * std::int64_t{sizeof(std::int32_t)});
  plan_step_numbers(step, std::ssize(parameters.lengths));
}

void plan_update(pmm::StepPlan& step, OptimizerSettings const& optimizer, UpdatedParameters const& parameters,
                 std::vector<std::int64_t> const& normed_lengths, std::vector<std::int64_t> const& statistics,
                 pmm::AxisSet others) {
  pmm::plan_squared_norms(step, normed_lengths, others);
  if (optimizer.kind == OptimizerKind::jorge) plan_jorge_step(step, optimizer.jorge, parameters.matrices);
  plan_optimizer_step(step, optimizer, parameters);
  auto const count = std::accumulate(statistics.begin(), statistics.end(), std::int64_t{0});
  step.add_pass(pass_of_statistics(step.scalar_bytes(count)));
}

template<class T>
ParameterUpdate<T>::ParameterUpdate(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
                                    TrainSettings const& settings, std::shared_ptr<GradientShards<T>> shards)
    : grid_(grid),
      parameters_(those_that(parameters, &Parameter<T>::is_trained)),
      places_(places_of_trained(parameters)),
      shards_(std::move(shards)),
      updated_(own_parts(parameters, shards_.get())),
      statistics_(those_that(parameters, &Parameter<T>::is_statistic)),
      clip_norm_(settings.clip_norm),
      pruned_(make_pruned(grid, parameters, settings.optimizer, shards_ != nullptr)),
      jorge_(make_jorge(grid, updated_, settings, shards_ != nullptr)),
      optimizer_(settings.optimizer, optimizer_shards(updated_, settings, pruned(), places_)),
      numbers_(parameters_.size()) {
  std::erase_if(statistics_, [](auto const& statistic) { return statistic.is_frozen; });
}

template<class T>
void ParameterUpdate<T>::run(runtime::DefaultExec const& exec, std::optional<std::int64_t> nominal_count,
                             runtime::PhaseTimes& phases, double gradient_scale, std::int64_t num_batches) {
  auto& instruments = grid_.world().instruments();
  {
    ScopedTimer const timer(instruments, phases, "norms");
    auto const squares = numbers_.norms();
    for (std::size_t p = 0; p < updated_.size(); ++p) {
      auto const counts = counts_in_norms(updated_[p]);
      if (is_pruned(p))
        pmm::local_squared_norm(exec, grid_.passes(), gradients_[p], squares, p, counts);
      else if (updated_[p].is_vector())
        pmm::local_squared_norm(exec, updated_[p].vector_gradient, squares, p, counts);
      else
        pmm::local_squared_norm(exec, updated_[p].matrix_gradient, squares, p, counts);
    }
    pmm::sum_over_group(exec, grid_, squares, shards_ ? pmm::batch_axes(grid_.shape()) : pmm::AxisSet());
    numbers_.finish_norms(exec, static_cast<double>(nominal_count.value_or(0)), gradient_scale,
                          clip_norm_.value_or(0));
  }
  {
    ScopedTimer const timer(instruments, phases, "optimizer");
    if (jorge_) jorge_->step(exec, numbers_.scale());
    optimizer_.step(exec, grid_.passes(), numbers_.scale(), numbers_.learning_rate());
    if (!statistics_.empty()) update_statistics(exec, grid_.passes(), statistics_, num_batches);
  }
  if (!shards_) return;
  ScopedTimer const timer(instruments, phases, "data");
  shards_->gather(exec);
}

template<class T>
void ParameterUpdate<T>::prune(runtime::DefaultExec const& exec) {
  gradients_.clear();
  optimizer_.release_gradients();
  pruned_->choose(exec);
  for (std::size_t p = 0; p < updated_.size(); ++p)
    if (is_pruned(p)) optimizer_.keep(exec, p, *pruned_->kept(places_[p]));
}

template<class T>
void ParameterUpdate<T>::keep(std::string const& name, std::vector<bool> const& is_kept) {
  auto const found = std::ranges::find(updated_, name, &Parameter<T>::name);
  auto const p = static_cast<std::size_t>(found - updated_.begin());
  pruned_->keep(places_.at(p), is_kept);
  optimizer_.keep(runtime::DefaultExec(), p, *pruned_->kept(places_[p]));
}

template<class T>
void ParameterUpdate<T>::read_gradients_of(GradientSum<T> const& sums) {
  gradients_.clear();
  for (std::size_t p = 0; p < updated_.size(); ++p)
    gradients_.push_back(is_pruned(p) ? sums.pruned_gradient(places_[p]) : updated_[p].gradient());
  optimizer_.set_gradients(gradients_);
}

template<class T>
bool ParameterUpdate<T>::counts_in_norms(Parameter<T> const& parameter) const {
  if (parameter.is_part_of_batches) return !parameter.is_copy;
  auto const is_first_copy = grid_.coordinate({pmm::Axis::data, pmm::Axis::context}) == 0;
  return parameter.is_first_with_piece(grid_) && (!shards_ || is_first_copy);
}

template<class T>
typename ParameterUpdate<T>::Result ParameterUpdate<T>::finish(runtime::DefaultExec const& exec) {
  // The wait for collectives enqueued before happens here, so the watchdog must know about it.
  std::optional<runtime::WaitingScope> waiting;
  if (grid_.world().size() > 1) waiting.emplace(grid_.world().instruments().position, "end of a step");
  auto const numbers = numbers_.read(exec);
  waiting.reset();
  Result result;
  result.loss = numbers.loss;
  result.sum = numbers.sum;
  result.count = numbers.count;
  result.learning_rate = numbers.learning_rate;
  auto square = 0.0;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    square += numbers.norms[p] * numbers.norms[p];
    if (!parameters_[p].is_vector()) result.norms.push_back(numbers.norms[p]);
    if (result.diverged.empty() && !std::isfinite(numbers.norms[p])) result.diverged = parameters_[p].name;
  }
  result.norm = std::sqrt(square);
  return result;
}

template<class T>
void ParameterUpdate<T>::require_bounded_parameters(runtime::DefaultExec const& exec) const {
  runtime::Vector<double> const squares("orthant::models::squared_norms", parameters_.size());
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    auto const counts = parameters_[p].is_first_with_piece(grid_);
    if (parameters_[p].is_vector())
      pmm::local_squared_norm(exec, parameters_[p].vector, squares, p, counts);
    else
      pmm::local_squared_norm(exec, parameters_[p].matrix, squares, p, counts);
  }
  pmm::sum_over_group(exec, grid_, squares);
  std::optional<runtime::WaitingScope> waiting;
  if (grid_.world().size() > 1) waiting.emplace(grid_.world().instruments().position, "end of training");
  runtime::compat::fence(exec, "orthant::models::ParameterUpdate/the norms are read");
  waiting.reset();
  auto const on_host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), squares);
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    if (!(on_host(p) <= static_cast<double>(std::numeric_limits<T>::max())))
      throw_diverged(fmt::format("after the last update the norm of {} is {:.3g}", parameters_[p].name,
                                 std::sqrt(on_host(p))));
}

template<class T>
std::vector<StateArray<T>> ParameterUpdate<T>::state() const {
  std::vector<StateArray<T>> state;
  for (std::size_t p = 0; p < updated_.size(); ++p)
    for (auto& array : optimizer_.arrays(p))
      state.push_back({updated_[p], std::move(array)});
  if (jorge_)
    for (auto& [name, place, numbers] : jorge_->states())
      state.push_back({std::move(place), {std::move(name), std::move(numbers), {}}});
  return state;
}

template class ParameterUpdate<float>;
template class ParameterUpdate<double>;

} // namespace orthant::models
