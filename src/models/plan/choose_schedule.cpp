// SPDX-License-Identifier: Apache-2.0
#include "models/plan/choose_schedule.hpp"

#include "models/plan/gcn_step.hpp"

namespace orthant::models {
namespace {

constexpr double seconds_per_call = 50e-6;
constexpr double bytes_per_second = 10e9;

} // namespace

double step_seconds(pmm::StepPlan const& step, SpmmTimes const& times) {
  auto seconds = spmm_seconds(step, times);
  for (auto const& call : calls_of(step))
    seconds += seconds_per_call + static_cast<double>(call.sent_bytes) / bytes_per_second;
  return seconds;
}

double epoch_seconds(graph::StoreFacts const& facts, GcnSettings const& settings, pmm::GridShape const& shape,
                     SpmmTimes const& times) {
  auto const plan = plan_gcn(facts, settings);
  pmm::Coordinates const first; // larger parts come first
  pmm::StepPlan step(shape, first, sizeof(float));
  plan_epoch(step, plan, settings, traits_of(facts, shape, first, plan, settings));
  return step_seconds(step, times);
}

Schedule choose_schedule(std::string_view word, graph::StoreFacts const& facts, GcnSettings const& settings,
                         pmm::GridShape const& shape, SpmmTimes const& times) {
  if (word != "auto") return parse_schedule(word);
  if (shape.size(pmm::group_axes) == 1) return Schedule::pmm3d;
  auto const seconds_of = [&](Schedule schedule) {
    auto asked = settings;
    asked.schedule = schedule;
    return epoch_seconds(facts, asked, shape, times);
  };
  return seconds_of(Schedule::rows) < seconds_of(Schedule::pmm3d) ? Schedule::rows : Schedule::pmm3d;
}

} // namespace orthant::models
