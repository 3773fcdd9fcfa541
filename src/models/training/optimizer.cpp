// SPDX-License-Identifier: Apache-2.0
#include "models/training/optimizer.hpp"

#include "models/parameters/device_copy.hpp"
#include "models/training/update_kernels.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/device/kokkos_compat.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <numeric>

namespace orthant::models {
namespace {

using detail::AdamUpdate, detail::JorgeUpdate, detail::LionUpdate, detail::SgdUpdate;
using detail::ShardPointers, detail::StepFactors, detail::UpdateAll, detail::UpdateBlocks,
    detail::update_part;
using runtime::DefaultExec;
using runtime::Number;
using runtime::Vector;
using Policy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

/// t += 1, and the factors of the step. One work item.
template<class T>
struct BeginStep {
  Number<double> gradient_scale;
  Number<double> learning_rate;
  Vector<double> num_steps;
  Vector<StepFactors<T>> factors;
  double beta1;
  double beta2;
  double largest_rate;
  RateSchedule schedule;
  bool is_adam;

  KOKKOS_FUNCTION void operator()(std::int64_t) const {
    auto const t = num_steps(0) + 1;
    num_steps(0) = t;
    auto const correction1 = is_adam ? 1 - runtime::compat::pow(beta1, t) : 1;
    auto const correction2 = is_adam ? 1 - runtime::compat::pow(beta2, t) : 1;
    auto const rate = learning_rate_at(schedule, largest_rate, t, num_steps(1));
    learning_rate() = rate;
    auto& next = factors(0);
    next.gradient_scale = static_cast<T>(gradient_scale());
    next.step_size = static_cast<T>(rate / correction1);
    next.inverse_correction2 = static_cast<T>(1 / correction2);
  }
};

/// Label of the kernel.
std::string_view pass_name_of(OptimizerSettings const& settings) {
  if (settings.kind == OptimizerKind::sgd) return "sgd_step";
  if (settings.kind == OptimizerKind::jorge) return "jorge_step";
  return settings.kind == OptimizerKind::lion ? "lion_step" : "adam_step";
}

/// Moments that an optimizer keeps.
struct KeptMoments {
  bool has_first;
  bool has_second;
};
KeptMoments moments_of(OptimizerSettings const& settings, bool is_preconditioned = false) {
  switch (settings.kind) {
  case OptimizerKind::sgd:
    return {settings.momentum != 0, false};
  case OptimizerKind::jorge:
    return {!is_preconditioned, false};
  case OptimizerKind::lion:
    return {true, false};
  default:
    return {true, true};
  }
}

/// The numbers at these places.
template<class T>
Vector<T> part_of(DefaultExec const& exec, Vector<T> const& from, KeptPlaces const& places) {
  Vector<T> const to(from.label(), places.extent(0));
  Kokkos::parallel_for(
      "orthant::models::Optimizer/keep", Kokkos::RangePolicy<DefaultExec>(exec, 0, places.extent(0)),
      KOKKOS_LAMBDA(std::size_t i) { to(i) = from(static_cast<std::size_t>(places(i))); });
  return to;
}

/// Lengths of the parameters that have moments.
std::vector<std::int64_t> lengths_of_moments(OptimizerSettings const& settings,
                                             UpdatedParameters const& parameters) {
  auto lengths = parameters.lengths;
  if (settings.kind == OptimizerKind::jorge)
    for (auto const& matrix : parameters.matrices)
      lengths[matrix.parameter] = 0;
  return lengths;
}

} // namespace

void plan_optimizer_arrays(pmm::StepPlan& step, OptimizerSettings const& settings,
                           UpdatedParameters const& parameters) {
  auto const [has_first, has_second] = moments_of(settings);
  step.add_array("orthant::models::num_steps", 2 * sizeof(double));
  step.add_array("orthant::models::step_factors",
                 step.scalar_bytes(sizeof(StepFactors<float>) / sizeof(float)));
  for (auto const length : lengths_of_moments(settings, parameters)) {
    if (settings.moments != MomentFormat::native) {
      plan_packed_moment(step, settings.moments, length, "orthant::models::first_moment");
      if (has_second) plan_packed_moment(step, settings.moments, length, "orthant::models::second_moment");
      continue;
    }
    if (has_first) step.add_array("orthant::models::first_moment", step.scalar_bytes(length));
    if (has_second) step.add_array("orthant::models::second_moment", step.scalar_bytes(length));
  }
}

void plan_optimizer_step(pmm::StepPlan& step, OptimizerSettings const& settings,
                         UpdatedParameters const& parameters) {
  auto const [has_first, has_second] = moments_of(settings);
  auto const bytes_of = [&](std::vector<std::int64_t> const& lengths) {
    return step.scalar_bytes(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
  };
  auto const bytes = bytes_of(parameters.lengths);
  auto of_moments = bytes_of(lengths_of_moments(settings, parameters)) * (has_first + has_second);
  if (settings.moments != MomentFormat::native) {
    of_moments = 0;
    for (auto const length : parameters.lengths)
      of_moments += bytes_of_moments(settings.moments, length) * (has_first + has_second);
  }
  auto const written = bytes + of_moments;
  auto const places = runtime::sum_of(parameters.kept) * std::int64_t{sizeof(std::int32_t)};
  step.add_pass({pass_name_of(settings), written + bytes + places, written}); // the gradient is only read
}

OptimizerKind parse_optimizer(std::string_view word) {
  if (word == "adam") return OptimizerKind::adam;
  if (word == "adamw") return OptimizerKind::adamw;
  if (word == "sgd") return OptimizerKind::sgd;
  if (word == "lion") return OptimizerKind::lion;
  if (word == "jorge") return OptimizerKind::jorge;
  runtime::throw_user("--optimizer is adam, adamw, lion, jorge or sgd, not '{}'", word);
}

template<class T>
Optimizer<T>::Optimizer(OptimizerSettings const& settings, std::vector<ParameterShard<T>> const& parameters)
    : settings_(settings),
      parameters_(parameters),
      num_steps_("orthant::models::num_steps", 2),
      factors_("orthant::models::step_factors", 1) {
  ORTHANT_REQUIRE(!settings.schedule.ends_with_training() || settings.schedule.num_steps >= 0,
                  "the learning rate decays over a number of steps that is not known");
  ORTHANT_REQUIRE(settings.schedule.decay != RateDecay::step || settings.schedule.step_length > 0,
                  "the learning rate changes every ", settings.schedule.step_length, " steps");
  set_rate_reduction(1);
  auto const is_native_only = settings.kind == OptimizerKind::sgd || settings.kind == OptimizerKind::jorge;
  ORTHANT_REQUIRE(!is_native_only || settings.moments == MomentFormat::native,
                  "sgd and jorge have native moments");
  for (auto const& parameter : parameters_) {
    ORTHANT_REQUIRE(parameter.kept || parameter.value.extent(0) == parameter.gradient.extent(0));
    ORTHANT_REQUIRE(!parameter.kept || settings.moments == MomentFormat::native,
                    "pruned weights have native moments");
    allocate_moments(parameter.num_updated(), parameter.is_preconditioned);
  }
  list_shards();
}

template<class T>
void Optimizer<T>::list_shards() {
  auto const is_coupled = settings_.kind == OptimizerKind::adam || settings_.kind == OptimizerKind::sgd;
  shards_.clear();
  std::int64_t end = 0;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    auto const& parameter = parameters_[p];
    end += parameter.num_updated();
    auto const decay = parameter.weight_decay;
    auto const data_of = [](Vector<T> const& moment) {
      return moment.extent(0) > 0 ? moment.data() : nullptr;
    };
    shards_.push_back({end, parameter.value.data(), parameter.gradient.data(), data_of(moments_[p].first),
                       data_of(moments_[p].second), static_cast<T>(is_coupled ? decay : 0),
                       is_coupled ? 0 : decay, parameter.kept ? parameter.kept->data() : nullptr});
  }
  if (settings_.moments != MomentFormat::native) {
    list_packed_shards();
    return;
  }
  if constexpr (!pmm::runs_on_host) device_shards_ = to_vector<Shard>("orthant::models::shards", shards_);
}

template<class T>
void Optimizer<T>::keep(DefaultExec const& exec, std::size_t p, KeptPlaces const& kept) {
  auto& parameter = parameters_[p];
  auto& [first, second] = moments_[p];
  auto const had_all = !parameter.kept;
  auto const [has_first, has_second] = moments_of(settings_, parameter.is_preconditioned);
  parameter.kept = kept;
  if (has_first) first = had_all ? part_of(exec, first, kept) : Vector<T>(first.label(), kept.extent(0));
  if (has_second) second = had_all ? part_of(exec, second, kept) : Vector<T>(second.label(), kept.extent(0));
  runtime::compat::fence(exec, "orthant::models::Optimizer/the old moments are freed");
}

template<class T>
void Optimizer<T>::release_gradients() {
  for (auto& parameter : parameters_)
    parameter.gradient = {};
}

template<class T>
void Optimizer<T>::set_gradients(std::vector<Vector<T>> const& gradients) {
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    ORTHANT_REQUIRE(static_cast<std::int64_t>(gradients[p].extent(0)) == parameters_[p].num_updated());
    parameters_[p].gradient = gradients[p];
  }
  list_shards();
}

template<class T>
void Optimizer<T>::allocate_moments(std::int64_t length, bool is_preconditioned) {
  auto const [has_first, has_second] = moments_of(settings_, is_preconditioned);
  std::string const first = "orthant::models::first_moment";
  std::string const second = "orthant::models::second_moment";
  if (settings_.moments == MomentFormat::native) {
    auto const count = static_cast<std::size_t>(length);
    moments_.push_back({Vector<T>(first, has_first ? count : 0), Vector<T>(second, has_second ? count : 0)});
    return;
  }
  moments_.emplace_back();
  packed_.push_back({PackedMoment(settings_.moments, false, length, first),
                     has_second ? PackedMoment(settings_.moments, true, length, second) : PackedMoment()});
}

template<class T>
void Optimizer<T>::list_packed_shards() {
  std::vector<detail::PackedShard<T>> shards;
  num_blocks_ = 0;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    auto const length = static_cast<std::int64_t>(parameters_[p].value.extent(0));
    num_blocks_ += (length + detail::moments_per_block - 1) / detail::moments_per_block;
    shards.push_back(
        {shards_[p], num_blocks_, length, packed_[p].first.pointers(), packed_[p].second.pointers()});
  }
  packed_shards_ = to_vector<detail::PackedShard<T>>("orthant::models::packed_shards", shards);
}

template<class T>
template<class Update>
void Optimizer<T>::update(DefaultExec const& exec, char const* label, Update const& update_number) const {
  if (settings_.moments != MomentFormat::native) {
    if (num_blocks_ == 0) return;
    UpdateBlocks<T, Update> const blocks{packed_shards_, factors_, num_steps_, update_number};
    auto const scratch = 2 * UpdateBlocks<T, Update>::Scratch::shmem_size(detail::moments_per_block);
    Kokkos::TeamPolicy<DefaultExec> policy(exec, static_cast<int>(num_blocks_), Kokkos::AUTO);
    Kokkos::parallel_for(label, policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(scratch))),
                         blocks);
    return;
  }
  if constexpr (pmm::runs_on_host) {
    runtime::compat::fence(exec, "orthant::models::Optimizer/the factors are read");
    std::int64_t begin = 0;
    for (auto const& shard : shards_) {
      pmm::for_each_part(exec, label, shard.end - begin,
                         [=, factors = factors_(0)](std::int64_t first, std::int64_t last) {
                           update_part(shard, factors, update_number, first, last);
                         });
      begin = shard.end;
    }
  } else {
    auto const count = shards_.empty() ? 0 : shards_.back().end;
    Kokkos::parallel_for(label, Policy(exec, 0, count),
                         UpdateAll<T, Update>{device_shards_, factors_, update_number});
  }
}

template<class T>
void Optimizer<T>::step(DefaultExec const& exec, runtime::PassLedger& passes,
                        Number<double> const& gradient_scale, Number<double> const& learning_rate) {
  runtime::LocalPass pass{pass_name_of(settings_)};
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    auto const& parameter = parameters_[p];
    auto updated = parameter.num_updated() * static_cast<std::int64_t>(sizeof(T)) +
                   runtime::array_bytes(moments_[p].first, moments_[p].second);
    if (!packed_.empty())
      updated += bytes_of_moments(settings_.moments, packed_[p].first.length()) +
                 bytes_of_moments(settings_.moments, packed_[p].second.length());
    pass.bytes_read += updated + runtime::array_bytes(parameter.gradient);
    if (parameter.kept) pass.bytes_read += runtime::array_bytes(*parameter.kept);
    pass.bytes_written += updated;
  }
  passes.add(pass);
  auto const is_sgd = settings_.kind == OptimizerKind::sgd;
  auto const is_lion = settings_.kind == OptimizerKind::lion;
  auto const is_jorge = settings_.kind == OptimizerKind::jorge;
  auto const as_scalar = [](double number) { return static_cast<T>(number); };
  Kokkos::parallel_for("orthant::models::begin_step", Policy(exec, 0, 1),
                       BeginStep<T>{gradient_scale, learning_rate, num_steps_, factors_, settings_.beta1,
                                    settings_.beta2, settings_.learning_rate, settings_.schedule,
                                    !is_sgd && !is_lion && !is_jorge});
  if (is_sgd)
    update(exec, "orthant::models::sgd_step", SgdUpdate<T>{as_scalar(settings_.momentum)});
  else if (is_jorge)
    update(exec, "orthant::models::jorge_step", JorgeUpdate<T>{as_scalar(settings_.momentum)});
  else if (is_lion)
    update(exec, "orthant::models::lion_step",
           LionUpdate<T>{as_scalar(settings_.beta1), as_scalar(settings_.beta2)});
  else
    update(exec, "orthant::models::adam_step",
           AdamUpdate<T>{as_scalar(settings_.beta1), as_scalar(settings_.beta2), as_scalar(settings_.epsilon),
                         learning_rate});
}

template<class T>
std::vector<OptimizerArray<T>> Optimizer<T>::arrays(std::size_t p) const {
  if (!packed_.empty()) {
    auto const& [first, second] = packed_.at(p);
    std::vector<OptimizerArray<T>> arrays{{"exp_avg", {}, first}};
    if (settings_.kind != OptimizerKind::lion) arrays.push_back({"exp_avg_sq", {}, second});
    return arrays;
  }
  auto const& [first, second] = moments_.at(p);
  auto const [has_first, has_second] = moments_of(settings_, parameters_[p].is_preconditioned);
  auto const& kept = parameters_[p].kept;
  if (!has_first) return {};
  if (has_second) return {{"exp_avg", first, {}, kept}, {"exp_avg_sq", second, {}, kept}};
  return {{settings_.kind == OptimizerKind::lion ? "exp_avg" : "momentum_buffer", first, {}, kept}};
}

template<class T>
std::int64_t Optimizer<T>::num_steps() const {
  return static_cast<std::int64_t>(Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), num_steps_)(0));
}

template<class T>
double Optimizer<T>::learning_rate(std::int64_t t) const {
  auto const reduction = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), num_steps_)(1);
  return learning_rate_at(settings_.schedule, settings_.learning_rate, static_cast<double>(t), reduction);
}

template<class T>
void Optimizer<T>::set_num_steps(std::int64_t num_steps) {
  Kokkos::deep_copy(Kokkos::subview(num_steps_, 0), static_cast<double>(num_steps));
}

template<class T>
void Optimizer<T>::set_rate_reduction(double reduction) {
  Kokkos::deep_copy(Kokkos::subview(num_steps_, 1), reduction);
}

template class Optimizer<float>;
template class Optimizer<double>;

} // namespace orthant::models
