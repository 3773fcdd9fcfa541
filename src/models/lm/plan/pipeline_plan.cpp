// SPDX-License-Identifier: Apache-2.0
#include "models/lm/plan/pipeline_plan.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <numeric>

namespace orthant::models {
namespace {

/// Multiplications of a forward pass per token: of each block, and those of the head with the last one.
std::vector<std::int64_t> work_of_blocks(TransformerSettings const& s, std::int64_t sequence) {
  auto const queries = s.num_heads * s.head_dim();
  auto const keys = s.num_kv_heads * s.head_dim();
  auto const of_attention = 2 * s.hidden * (queries + keys) + 2 * sequence * queries;
  auto const of_width = [&](std::int64_t width) {
    return s.hidden * (pmm::inputs_per_output(s.activation) + 1) * width;
  };
  auto const& experts = s.experts;
  std::vector<std::int64_t> work;
  for (std::int64_t l = 0; l < s.num_layers; ++l)
    work.push_back(of_attention + (experts.has_layer(l)
                                       ? (experts.top_k + experts.num_shared) * of_width(s.expert_width()) +
                                             s.hidden * experts.num_experts
                                       : of_width(s.feed_forward)));
  work.back() += s.vocabulary * s.hidden;
  return work;
}

/// Limits of each stage: its work, and the activations that it keeps, in blocks times passes.
struct Limits {
  std::int64_t work = 0;
  std::int64_t kept = 0;
};

/// Fills the stages from the last to the first with blocks up to the limits, at least one block each. Returns nothing if that is impossible.
std::vector<runtime::Range> deal_within(Limits const& limits, std::vector<std::int64_t> const& work,
                                        TransformerSettings const& settings, int num_stages) {
  std::vector<runtime::Range> layers(static_cast<std::size_t>(num_stages));
  auto end = std::ssize(work);
  for (auto stage = num_stages; stage-- > 0;) {
    auto const most_blocks = limits.kept / StagePlan::most_in_flight(settings, stage, num_stages);
    auto begin = end;
    std::int64_t sum = 0;
    while (begin > stage && end - begin < most_blocks &&
           sum + work[static_cast<std::size_t>(begin - 1)] <= limits.work)
      sum += work[static_cast<std::size_t>(--begin)];
    if (begin == end) return {};
    layers[static_cast<std::size_t>(stage)] = {begin, end};
    end = begin;
  }
  return end == 0 ? layers : std::vector<runtime::Range>();
}

/// Smallest number in [least, most] for which `holds` returns true; it does so for `most` and for all above the smallest.
template<class Holds>
std::int64_t smallest(std::int64_t least, std::int64_t most, Holds const& holds) {
  while (least < most) {
    auto const middle = least + (most - least) / 2;
    if (holds(middle))
      most = middle;
    else
      least = middle + 1;
  }
  return most;
}

} // namespace

std::vector<runtime::Range> deal_layers(TransformerSettings const& settings, std::int64_t sequence,
                                        int num_stages) {
  if (settings.num_layers < num_stages)
    runtime::throw_user("--pipeline {} has more stages than the model has layers: give at most {}",
                        num_stages, settings.num_layers);
  auto const work = work_of_blocks(settings, sequence);
  auto const fits = [&](Limits const& limits) {
    return !deal_within(limits, work, settings, num_stages).empty();
  };
  Limits limits{std::reduce(work.begin(), work.end()), settings.num_layers * num_stages};
  limits.work = smallest(1, limits.work, [&](std::int64_t most) { return fits({most, limits.kept}); });
  limits.kept = smallest(1, limits.kept, [&](std::int64_t most) { return fits({limits.work, most}); });
  return deal_within(limits, work, settings, num_stages);
}

StagePlan plan_stage(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                     TransformerSettings const& settings, std::int64_t sequence, std::int64_t num_passes) {
  if (shape.pipe == 1) return {0, 1, {0, settings.num_layers}, 1};
  if (settings.adapters.is_on())
    runtime::throw_user("--lora-rank {} cannot be trained in a pipeline: leave out --pipeline {}",
                        settings.adapters.rank, shape.pipe);
  if (settings.splits_backward && settings.experts.is_on())
    runtime::throw_user("--pipeline-schedule zero-bubble is for layers without experts: take 1f1b");
  if (settings.splits_backward && settings.checkpoint_every > 0)
    runtime::throw_user(
        "--pipeline-schedule zero-bubble keeps what backward passes read: take --recompute in place of "
        "--activation-checkpointing, or 1f1b");
  auto const stage = coordinates.pipe;
  auto const layers = deal_layers(settings, sequence, shape.pipe)[static_cast<std::size_t>(stage)];
  auto const most = StagePlan::most_in_flight(settings, stage, shape.pipe);
  return {stage, shape.pipe, layers, std::min<std::int64_t>(most, num_passes),
          settings.splits_backward && stage > 0};
}

std::vector<PassAction> schedule_1f1b(int stage, int num_stages, std::int64_t num_passes) {
  auto const num_ahead = std::min<std::int64_t>(num_stages - 1 - stage, num_passes);
  std::vector<PassAction> actions;
  for (std::int64_t k = 0; k < num_ahead; ++k)
    actions.push_back({PassAction::Kind::forward, k});
  for (std::int64_t k = num_ahead; k < num_passes; ++k) {
    actions.push_back({PassAction::Kind::forward, k});
    actions.push_back({PassAction::Kind::backward, k - num_ahead});
  }
  for (auto k = num_passes - num_ahead; k < num_passes; ++k)
    actions.push_back({PassAction::Kind::backward, k});
  return actions;
}

std::vector<PassAction> schedule_zero_bubble(int stage, int num_stages, std::int64_t num_passes) {
  std::vector<PassAction> actions;
  for (auto action : schedule_1f1b(stage, num_stages, num_passes)) {
    auto const is_backward = action.kind == PassAction::Kind::backward;
    if (is_backward) action.kind = PassAction::Kind::input_backward;
    actions.push_back(action);
    if (is_backward && action.k >= stage) actions.push_back({PassAction::Kind::backward, action.k - stage});
  }
  for (auto k = std::max<std::int64_t>(0, num_passes - stage); k < num_passes; ++k)
    actions.push_back({PassAction::Kind::backward, k});
  return actions;
}

std::vector<PassAction> schedule_of(StagePlan const& stage, std::int64_t num_passes) {
  return (stage.splits_backward ? schedule_zero_bubble : schedule_1f1b)(stage.number, stage.num_stages,
                                                                        num_passes);
}

} // namespace orthant::models
