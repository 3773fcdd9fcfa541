// SPDX-License-Identifier: Apache-2.0
#include "models/lm/plan/transformer_plan.hpp"

#include "models/lm/plan/expert_plan.hpp"
#include "runtime/error.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

using pmm::Axis, pmm::Layout, pmm::Placement, pmm::Storage;

/// Split of the rows or columns of a matrix over one axis.
struct Cut {
  Axis axis;
  std::int64_t width;
  pmm::Granule granule = {};
};

Placement activation(std::int64_t num_tokens, std::int64_t sequence, Cut const& columns) {
  Layout layout{Axis::z, columns.axis};
  layout.row_granule = sequence;
  layout.column_granule = columns.granule;
  return {layout, {num_tokens, columns.width}};
}

Placement weight(Cut const& rows, Cut const& columns) {
  Layout layout{rows.axis, columns.axis, Storage::flat_sharded};
  layout.row_granule = rows.granule;
  layout.column_granule = columns.granule;
  return {layout, {rows.width, columns.width}};
}

/// One number per column.
Placement scale(Cut const& columns) {
  Layout layout{pmm::AxisSet{}, columns.axis};
  layout.column_granule = columns.granule;
  return {layout, {1, columns.width}};
}

/// Throws UserError unless ranks along context can share sequences of this length.
void require_parts(std::int64_t num_ranks, std::int64_t sequence, TransformerSettings const& s) {
  if (num_ranks == 1) return;
  auto const num_chunks = 2 * num_ranks;
  if (sequence % num_chunks != 0) {
    auto const below = sequence / num_chunks * num_chunks;
    auto const above = fmt::format("{}", below + num_chunks);
    runtime::throw_user(
        "--context-axis {} cuts each sequence in {} equal chunks, which {} tokens cannot be: take "
        "--sequence {}",
        num_ranks, num_chunks, sequence, below == 0 ? above : fmt::format("{} or {}", below, above));
  }
  auto const& experts = s.experts;
  if (experts.is_on() && experts.capacity && experts.capacity_group == CapacityGroup::step)
    runtime::throw_user("--context-axis {}: the slots of --capacity are given in the order of all tokens, "
                        "which ranks along context do not "
                        "have in order; use --capacity-group rank, or --capacity none",
                        num_ranks);
  if (experts.is_on() && experts.sequence_loss > 0)
    runtime::throw_user("--context-axis {}: --sequence-balance-loss compares the tokens of a whole sequence "
                        "on one rank; leave it out",
                        num_ranks);
}

void require_cuts(pmm::GridShape const& shape, TransformerSettings const& s, std::int64_t num_sequences,
                  std::int64_t sequence) {
  require_valid(s);
  auto const num_parts = shape.size(sequence_axes(shape).with(Axis::z));
  if (!can_cut_heads(shape, s))
    runtime::throw_user("{} heads with {} key-value heads cannot be cut over x = {} of the grid {}: x must "
                        "divide the key-value heads, or be a multiple of them that divides the heads",
                        s.num_heads, s.num_kv_heads, shape.x, grid_text(shape));
  ORTHANT_REQUIRE(sequence >= 1, "sequences of ", sequence, " tokens");
  if (sequence > s.max_sequence)
    runtime::throw_user("--sequence {} is longer than the {} positions of the model", sequence,
                        s.max_sequence);
  require_parts(shape.context, sequence, s);
  if (shape.context > 1 && s.context_exchange == ContextExchange::heads && !can_exchange_heads(shape, s))
    runtime::throw_user(
        "--context-exchange heads: the {} heads of keys and values are no multiple of --context-axis "
        "{} times the {} ranks along x of --grid {}: take key-values, or auto",
        s.num_kv_heads, shape.context, shape.x, grid_text(shape));
  if (num_sequences < num_parts)
    runtime::throw_user(
        "{} sequences per pass are fewer than the {} ranks along data and z of --grid {}: give a "
        "larger --global-batch, or fewer ranks along these axes",
        num_sequences, num_parts, grid_text(shape));
}

/// Plan of the layers with experts. `up`, `down`: matrices of one expert.
ExpertPlan plan_experts(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                        TransformerPlan const& plan, pmm::Placement const& up, pmm::Placement const& down) {
  ExpertPlan experts;
  experts.settings = plan.settings.experts;
  if (!experts.settings.is_on()) {
    if (shape.expert > 1) runtime::throw_user("--expert-axis {} without --experts", shape.expert);
    return experts;
  }
  experts.activation = plan.settings.activation;
  experts.token_axes = batch_axes(shape).with(Axis::z);
  experts.num_tokens = plan.num_sequences * plan.whole_sequence();
  experts.tokens = plan.tokens();
  auto const is_of_step = experts.settings.capacity_group == CapacityGroup::step;
  experts.counted_axes = is_of_step ? experts.token_axes : pmm::AxisSet{Axis::z};
  experts.num_counted = is_of_step ? experts.num_tokens : plan.stream.extents.rows;
  experts.first_token = plan.sequences.begin * plan.whole_sequence();
  experts.own = own_experts(shape, coordinates, experts.settings);
  for (auto const& loads : experts.settings.past_loads) {
    ORTHANT_REQUIRE(std::ssize(loads) == experts.settings.num_experts, "loads of ", loads.size(),
                    " experts, not ", experts.settings.num_experts);
    experts.places.push_back(balanced_places(loads, shape.expert));
  }
  experts.stream = plan.stream;
  experts.router = {{Axis::y, pmm::AxisSet{}}, {plan.settings.hidden, experts.settings.num_experts}};
  experts.up = up;
  experts.down = down;
  return experts;
}

} // namespace

void require_even_stages(int num_ranks, int pipeline) {
  if (num_ranks % pipeline != 0)
    runtime::throw_user("--pipeline {} does not divide the {} ranks of the job; take a divisor of them",
                        pipeline, num_ranks);
}

pmm::GridShape parse_grid(std::string_view text, int num_ranks, InnerAxes const& inner, int pipeline) {
  require_even_stages(num_ranks, pipeline);
  auto shape = pmm::parse_grid(text, num_ranks / pipeline);
  shape.pipe = pipeline;
  auto const groups = shape.data;
  auto const split_off = [&](std::string_view option, int size) {
    if (shape.data % size != 0)
      runtime::throw_user("{} {} does not divide the {} data groups of --grid {}{}; take a divisor of them",
                          option, size, shape.data, text,
                          shape.data * inner.expert == groups && inner.expert > 1
                              ? fmt::format(" with --expert-axis {}", inner.expert)
                              : "");
    shape.data /= size;
  };
  split_off("--expert-axis", inner.expert);
  split_off("--context-axis", inner.context);
  shape.expert = inner.expert;
  shape.context = inner.context;
  return shape;
}

pmm::GridShape with_data_along_z(pmm::GridShape shape, int ranks_per_node) {
  auto moved = shape.data;
  auto const fills_node = [&] { return ranks_per_node % (shape.x * shape.y * shape.z * moved) == 0; };
  while (ranks_per_node > 0 && moved > 1 && (shape.data % moved != 0 || !fills_node()))
    --moved;
  shape.z *= moved;
  shape.data /= moved;
  return shape;
}

std::string grid_text(pmm::GridShape shape) {
  shape.data *= shape.expert * shape.context;
  shape.expert = shape.context = shape.pipe = 1;
  return shape.to_string();
}

bool can_cut_heads(pmm::GridShape const& shape, TransformerSettings const& settings) {
  return settings.num_kv_heads % shape.x == 0 ||
         (shape.x % settings.num_kv_heads == 0 && settings.num_heads % shape.x == 0);
}

bool can_exchange_heads(pmm::GridShape const& shape, TransformerSettings const& settings) {
  return settings.num_kv_heads % (std::int64_t{shape.x} * shape.context) == 0;
}

TransformerPlan plan_transformer(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                 TransformerSettings const& settings, std::int64_t num_sequences,
                                 std::int64_t sequence, std::int64_t num_passes) {
  require_cuts(shape, settings, num_sequences, sequence);
  TransformerPlan plan;
  plan.settings = settings;
  plan.stage = plan_stage(shape, coordinates, settings, sequence, num_passes);
  plan.num_sequences = num_sequences;
  plan.num_parts = shape.context;
  plan.part = coordinates.context;
  plan.sequence = sequence / plan.num_parts;
  plan.sequences = part_of(shape, coordinates, sequence_axes(shape).with(Axis::z), num_sequences);
  auto const num_tokens =
      part_of(shape, coordinates, sequence_axes(shape), num_sequences).size() * plan.sequence;

  auto const head_dim = settings.head_dim();
  auto const num_groups = settings.num_kv_heads;
  plan.ranks_per_group = std::max(1, shape.x / static_cast<int>(num_groups));
  auto const inner = pmm::inputs_per_output(settings.activation);
  Cut const stream{Axis::y, settings.hidden};
  Cut const qkv{Axis::x, num_groups * plan.group_width(), {plan.group_width(), 2 * head_dim}};
  Cut const heads{Axis::x, settings.num_heads * head_dim, plan.local_heads_per_group() * head_dim};
  auto const expanded = [&](std::int64_t width) { return Cut{Axis::x, inner * width, inner}; };
  auto const activated = [&](std::int64_t width) { return Cut{Axis::x, width}; };
  Cut const vocabulary{Axis::x, settings.vocabulary};
  auto const matrix = [&](Cut const& columns) { return activation(num_tokens, plan.sequence, columns); };
  auto const linear = [&](Cut const& from, Cut const& to) {
    return LinearPlan3d{matrix(from), weight(from, to), matrix(to), settings.wire};
  };

  plan.stream = matrix(stream);
  plan.logits = matrix(vocabulary);
  plan.table = weight(vocabulary, stream);
  plan.positions = {{pmm::AxisSet{}, Axis::y}, {settings.max_sequence, settings.hidden}};
  plan.qkv = linear(stream, qkv);
  plan.query_scale = plan.key_scale = {{pmm::AxisSet{}, pmm::AxisSet{}}, {1, head_dim}};
  if (settings.query_key_norm == QueryKeyNorm::all) {
    plan.query_scale = scale(heads);
    plan.key_scale = scale({Axis::x, num_groups * head_dim, {head_dim, head_dim}});
  }
  plan.projection = linear(heads, stream);
  plan.up = linear(stream, expanded(settings.feed_forward));
  plan.down = linear(activated(settings.feed_forward), stream);
  auto const expert_width = settings.expert_width();
  if (settings.experts.has_shared()) {
    plan.shared_up = linear(stream, expanded(settings.experts.num_shared * expert_width));
    plan.shared_down = linear(activated(settings.experts.num_shared * expert_width), stream);
  }
  plan.experts = plan_experts(shape, coordinates, plan, weight(stream, expanded(expert_width)),
                              weight(activated(expert_width), stream));
  return plan;
}

} // namespace orthant::models
