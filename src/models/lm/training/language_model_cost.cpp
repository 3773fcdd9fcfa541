// SPDX-License-Identifier: Apache-2.0
#include "models/lm/training/language_model_cost.hpp"

#include "models/gnn/network/grid_choice.hpp"
#include "models/lm/training/language_model.hpp"
#include "models/lm/transformer/transformer.hpp"
#include "models/lm/transformer/transformer_parameters.hpp"
#include "models/training/parameter_update.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

namespace orthant::models {

namespace {

/// "--expert-axis 2 x --context-axis 4".
std::string name_of(InnerAxes const& inner) {
  auto const context = fmt::format("--context-axis {}", inner.context);
  if (inner.expert == 1 && inner.context > 1) return context;
  return fmt::format("--expert-axis {}", inner.expert) + (inner.context == 1 ? "" : " x " + context);
}

} // namespace

std::vector<pmm::GridShape> shapes_of_language_model(int num_ranks, TransformerSettings const& model,
                                                     SequenceSettings const& sequences,
                                                     InnerAxes const& inner, int pipeline) {
  require_even_stages(num_ranks, pipeline);
  num_ranks /= pipeline;
  if (num_ranks % inner.size() != 0)
    runtime::throw_user("{} does not divide the {} ranks of {}; take a divisor of them", name_of(inner),
                        num_ranks, pipeline > 1 ? "a stage" : "the job");
  std::ignore = plan_sequences({.pipe = pipeline, .context = inner.context}, {}, model,
                               sequences); // throws if no grid can train it
  std::vector<pmm::GridShape> shapes;
  auto const least_data = static_cast<int>(inner.size());
  for (int data = least_data; data <= num_ranks; data += least_data)
    for (auto shape : pmm::all_shapes(num_ranks, data)) {
      shape.data /= least_data;
      shape.expert = inner.expert;
      shape.context = inner.context;
      shape.pipe = pipeline;
      auto const num_parts = std::int64_t{shape.size(sequence_axes(shape).with(pmm::Axis::z))};
      if (!can_cut_heads(shape, model) || num_parts > sequences.num_sequences()) continue;
      if (shape.context > 1 && model.context_exchange == ContextExchange::heads &&
          !can_exchange_heads(shape, model))
        continue;
      shapes.push_back(shape);
    }
  if (shapes.empty())
    runtime::throw_user("{} sequences per pass are fewer than the {} ranks of --expert-axis: give a larger "
                        "--global-batch, or fewer of these",
                        sequences.num_sequences(), inner.expert);
  return shapes;
}

std::int64_t bytes_of_checkpoint(TransformerSettings const& model, SequenceSettings const& sequences,
                                 OptimizerSettings const& optimizer) {
  pmm::GridShape const one{1, 1, 1, 1};
  pmm::Coordinates const first;
  auto const plan = plan_sequences(one, first, model, sequences);
  pmm::StepPlan step(one, first, sizeof(float));
  auto const parameters = parameters_of(one, first, plan);
  auto const lengths = lengths_of(step, parameters);
  auto widened = optimizer;
  widened.moments = MomentFormat::native;
  UpdatedParameters updated{lengths_of(step, trained_of(parameters))};
  for (std::size_t p = 0; auto const& parameter : trained_of(parameters)) {
    if (is_preconditioned(parameter.role))
      updated.matrices.push_back(tiled_matrix(step, p, parameter.placement));
    ++p;
  }
  plan_optimizer_arrays(step, widened, updated);
  if (optimizer.kind == OptimizerKind::jorge)
    step.add_array("states of jorge",
                   step.scalar_bytes(num_state_numbers(optimizer.jorge, updated.matrices)));
  return bytes_held(step) + step.scalar_bytes(std::reduce(lengths.begin(), lengths.end()));
}

namespace {

/// Cost of the ranks of a stage.
struct StageCost {
  LanguageModelCost cost;  // without waiting for other stages
  double pass_seconds = 0; // of the forward and the backward pass of one batch
  double late_seconds = 0; // of these, those of gradients of weights that other stages do not wait for
};

StageCost cost_of_stage(pmm::GridShape const& shape, int stage, TransformerSettings const& model,
                        SequenceSettings const& sequences, OptimizerSettings const& optimizer,
                        pmm::Machine const& machine, std::int64_t scalar_bytes) {
  pmm::Coordinates const first{.pipe = stage}; // the first rank of a stage has the largest parts
  auto const plan = plan_sequences(shape, first, model, sequences);
  pmm::StepPlan step(shape, first, scalar_bytes);
  plan_language_model_step(step, plan, sequences, optimizer);
  auto const of_memory = plan_for_memory(plan, shape);
  pmm::StepPlan arrays(shape, first, scalar_bytes);
  plan_language_model_arrays(arrays, of_memory, sequences, optimizer);
  auto const workspaces_of = [&](pmm::StepPlan const& listed) {
    return (pmm::runs_on_host ? message_bytes(listed) : 0) + rounded_operand_bytes(listed, model.math);
  };
  auto const workspaces = [&] {
    if (!plan.experts.settings.is_on()) return workspaces_of(step);
    pmm::StepPlan fullest(shape, first, scalar_bytes);
    plan_language_model_step(fullest, of_memory, sequences, optimizer);
    return workspaces_of(fullest);
  };
  pmm::StepPlan passes(shape, first, scalar_bytes);
  if (shape.pipe > 1) plan_language_model_passes(passes, plan, sequences, optimizer);
  pmm::StepPlan late(shape, first, scalar_bytes);
  if (model.splits_backward && shape.pipe > 1) plan_transformer_weight_backward(late, plan, 0, 1);
  return {{.shape = shape,
           .sent_bytes = sent_bytes_of(step),
           .num_calls = static_cast<std::int64_t>(calls_of(step).size()),
           .array_bytes = std::max(bytes_held(arrays), peak_bytes(arrays)),
           .workspace_bytes = workspaces(),
           .seconds = seconds_of(step, machine)},
          seconds_of(passes, machine).total() / static_cast<double>(sequences.num_accumulated),
          seconds_of(late, machine).total()};
}

/// The slowest stage passes its batches one after the other. Before its first and after its last one, a batch passes through the others. If
/// backward passes are split, a batch does not wait for the gradients of weights on other stages, and this stage computes those of up to P - 1
/// other batches while it would wait.
LanguageModelCost cost_of_stages(pmm::GridShape const& shape, TransformerSettings const& model,
                                 SequenceSettings const& sequences, OptimizerSettings const& optimizer,
                                 pmm::Machine const& machine, std::int64_t scalar_bytes) {
  auto slowest = cost_of_stage(shape, 0, model, sequences, optimizer, machine, scalar_bytes);
  auto latest = slowest;
  auto const blocks = deal_layers(model, sequences.sequence, shape.pipe);
  auto const num_blocks = [&](int stage) { return blocks[static_cast<std::size_t>(stage)].size(); };
  auto waiting = 0.0;
  for (int stage = 1; stage < shape.pipe; ++stage) {
    // Stages in the middle with as many blocks are alike; the first of them keeps the most.
    auto const is_like_latest = stage > 1 && stage + 1 < shape.pipe && !model.experts.is_on() &&
                                num_blocks(stage) == num_blocks(stage - 1);
    if (!is_like_latest)
      latest = cost_of_stage(shape, stage, model, sequences, optimizer, machine, scalar_bytes);
    auto other = latest;
    auto const& fullest = other.cost.memory_bytes() > slowest.cost.memory_bytes() ? other.cost : slowest.cost;
    auto const array_bytes = fullest.array_bytes;
    auto const workspace_bytes = fullest.workspace_bytes;
    if (other.pass_seconds > slowest.pass_seconds) std::swap(slowest, other);
    waiting += other.pass_seconds - other.late_seconds;
    slowest.cost.array_bytes = array_bytes;
    slowest.cost.workspace_bytes = workspace_bytes;
  }
  auto const num_late = std::min<std::int64_t>(shape.pipe - 1, sequences.num_accumulated - 1);
  slowest.cost.seconds.waiting =
      std::max(0.0, waiting - static_cast<double>(num_late) * slowest.late_seconds);
  slowest.cost.context_exchange = model.context_exchange;
  return slowest.cost;
}

} // namespace

pmm::Machine machine_for(TransformerSettings const& model, pmm::Machine const& machine) {
  return model.math == pmm::GemmMath::bf16 ? machine.with_rounded_products() : machine;
}

LanguageModelCost cost_of_language_model(pmm::GridShape const& shape, TransformerSettings const& model,
                                         SequenceSettings const& sequences,
                                         OptimizerSettings const& optimizer, pmm::Machine const& machine,
                                         std::int64_t scalar_bytes) {
  auto const of_products = machine_for(model, machine);
  auto const cost_with = [&](ContextExchange exchange) {
    auto of_exchange = model;
    of_exchange.context_exchange = exchange;
    return cost_of_stages(shape, of_exchange, sequences, optimizer, of_products, scalar_bytes);
  };
  if (model.context_exchange != ContextExchange::automatic) return cost_with(model.context_exchange);
  auto const of_key_values = cost_with(ContextExchange::key_values);
  if (shape.context == 1 || !can_exchange_heads(shape, model)) return of_key_values;
  auto const of_heads = cost_with(ContextExchange::heads);
  return of_heads.seconds.total() < of_key_values.seconds.total() ? of_heads : of_key_values;
}

std::vector<LanguageModelCost> costs_of_language_model(int num_ranks, TransformerSettings const& model,
                                                       SequenceSettings const& sequences,
                                                       OptimizerSettings const& optimizer,
                                                       pmm::Machine const& machine) {
  std::vector<LanguageModelCost> costs;
  for (auto const& shape : shapes_of_language_model(num_ranks, model, sequences))
    costs.push_back(cost_of_language_model(shape, model, sequences, optimizer, machine));
  std::ranges::stable_sort(costs, {}, [](LanguageModelCost const& cost) {
    return std::tuple(cost.seconds.total(), cost.array_bytes);
  });
  return costs;
}

namespace {

/// Number of grids whose operations are listed in addition to limits.num_grids, because the estimates give only nearly the right
/// order.
constexpr std::size_t num_more_listed = 13;
/// For models with fewer units of layers, the operations of all grids are listed.
constexpr std::int64_t least_units = 5;
/// A grid is rejected without an exact cost if its estimated memory exceeds the limit by more than this factor.
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
    auto const unit = unit_on(shape.pipe);
    auto const num_units = static_cast<double>(model_.num_layers) / static_cast<double>(unit);
    auto const one = cost_with_layers(shape, unit);
    auto const two = cost_with_layers(shape, 2 * unit);
    auto const whole = [&](double of_one, double of_two) {
      return of_one + (num_units - 1) * (of_two - of_one);
    };
    return {shape, whole(one.seconds.total(), two.seconds.total()),
            whole(static_cast<double>(one.memory_bytes()), static_cast<double>(two.memory_bytes()))};
  }
  /// True if estimates are not used, because the model has few layers or its layers differ.
  [[nodiscard]] bool is_listed_in_full(int pipeline) const {
    return pipeline > 1 || model_.experts.is_on() || model_.num_layers < least_units * unit_on(pipeline);
  }

 private:
  /// Layers by whose number a cost is linear.
  [[nodiscard]] std::int64_t unit_on(int pipeline) const {
    return pipeline * std::max<std::int64_t>(1, model_.checkpoint_every);
  }
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
  auto shapes = shapes_of_language_model(num_ranks, model, sequences, limits.inner, limits.pipeline);
  if (limits.shares_weights_of)
    std::erase_if(shapes, [&](auto const& shape) {
      auto const fits_node = shape.z > 1 && *limits.shares_weights_of % (shape.x * shape.y * shape.z) == 0;
      return with_data_along_z(shape, *limits.shares_weights_of) != shape || (shape.data > 1 && !fits_node);
    });
  auto const num_listed =
      estimator.is_listed_in_full(limits.pipeline) ? shapes.size() : limits.num_grids + num_more_listed;
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

namespace {

constexpr std::int64_t tile = 64;       // rows and columns of the smallest efficient tile
constexpr std::int64_t of_one_load = 8; // 16-bit elements in a load of 16 bytes

/// A size that a grid splits into parts, each of which should be a multiple of `multiple`.
struct CutSize {
  std::string_view name;
  std::int64_t size = 0;
  std::string_view axes; // axes that split it
  std::int64_t num_parts = 1;
  std::int64_t multiple = 1; // preferred divisor of each part
};

std::int64_t rounded_up(std::int64_t size, std::int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

} // namespace

std::vector<std::string> advice_on_shapes(pmm::GridShape const& shape, TransformerSettings const& model,
                                          SequenceSettings const& sequences) {
  auto const num_batch_parts = std::int64_t{shape.size(pmm::sequence_axes(shape).with(pmm::Axis::z))};
  std::vector<std::string> advice;
  for (auto const& [name, size, axes, num_parts, multiple] :
       {CutSize{"the vocabulary", model.vocabulary, "x", shape.x, tile},
        {"--hidden", model.hidden, "y", shape.y, tile},
        {"--feed-forward", model.feed_forward, "x", shape.x, tile},
        {"--expert-width", model.experts.width, "x", shape.x, tile},
        {"the width of a head (--hidden / --heads)", model.head_dim(), "", 1, of_one_load},
        {"--sequence", sequences.sequence, "", 1, of_one_load},
        {"--global-batch / --accumulate", sequences.num_sequences(), "data x z", num_batch_parts, 1}}) {
    auto const better = rounded_up(size, num_parts * multiple);
    if (better == size) continue;
    auto const of_a_part = (size + num_parts - 1) / num_parts; // size of the largest part
    auto const used =
        static_cast<double>(size) / static_cast<double>(num_parts * rounded_up(of_a_part, multiple));
    auto const what =
        size % num_parts != 0 ? fmt::format("{} ranks along {} cut it unevenly", num_parts, axes)
        : num_parts > 1 ? fmt::format("a part along {} is {}, no multiple of {}", axes, of_a_part, multiple)
                        : fmt::format("it is no multiple of {}", multiple);
    advice.push_back(fmt::format("{} {}: {}, so {:.1f} % of the work is of use; {} would be even", name, size,
                                 what, 100 * used, better));
  }
  return advice;
}

} // namespace orthant::models
