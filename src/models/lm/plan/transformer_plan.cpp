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

void require_cuts(pmm::GridShape const& shape, TransformerSettings const& s, std::int64_t num_sequences,
                  std::int64_t sequence) {
  require_valid(s);
  auto const num_parts = shape.size(batch_axes(shape).with(Axis::z));
  ORTHANT_REQUIRE(shape.pipe == 1, "a transformer on ", shape.to_string());
  if (!can_cut_heads(shape, s))
    runtime::throw_user("{} heads with {} key-value heads cannot be cut over x = {} of the grid {}: x must "
                        "divide the key-value heads, or be a multiple of them that divides the heads",
                        s.num_heads, s.num_kv_heads, shape.x, grid_text(shape));
  ORTHANT_REQUIRE(sequence >= 1, "sequences of ", sequence, " tokens");
  if (sequence > s.max_sequence)
    runtime::throw_user("--sequence {} is longer than the {} positions of the model", sequence,
                        s.max_sequence);
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
  experts.num_tokens = plan.num_sequences * plan.sequence;
  experts.sequence = plan.sequence;
  auto const is_of_step = experts.settings.capacity_group == CapacityGroup::step;
  experts.counted_axes = is_of_step ? experts.token_axes : pmm::AxisSet{Axis::z};
  experts.num_counted = is_of_step ? experts.num_tokens : plan.stream.extents.rows;
  experts.first_token = plan.sequences.begin * plan.sequence;
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

pmm::GridShape parse_grid(std::string_view text, int num_ranks, int expert_axis) {
  auto shape = pmm::parse_grid(text, num_ranks);
  if (shape.data % expert_axis != 0)
    runtime::throw_user("--expert-axis {} does not divide the {} data groups of --grid {}; take a divisor of "
                        "them",
                        expert_axis, shape.data, shape.to_string());
  shape.data /= expert_axis;
  shape.expert = expert_axis;
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
  shape.data *= shape.expert;
  shape.expert = 1;
  return shape.to_string();
}

bool can_cut_heads(pmm::GridShape const& shape, TransformerSettings const& settings) {
  return settings.num_kv_heads % shape.x == 0 ||
         (shape.x % settings.num_kv_heads == 0 && settings.num_heads % shape.x == 0);
}

TransformerPlan plan_transformer(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                 TransformerSettings const& settings, std::int64_t num_sequences,
                                 std::int64_t sequence) {
  require_cuts(shape, settings, num_sequences, sequence);
  TransformerPlan plan;
  plan.settings = settings;
  plan.num_sequences = num_sequences;
  plan.sequence = sequence;
  plan.sequences = part_of(shape, coordinates, batch_axes(shape).with(Axis::z), num_sequences);
  auto const num_tokens = part_of(shape, coordinates, batch_axes(shape), num_sequences).size() * sequence;

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
  auto const matrix = [&](Cut const& columns) { return activation(num_tokens, sequence, columns); };
  auto const linear = [&](Cut const& from, Cut const& to) {
    return LinearPlan3d{matrix(from), weight(from, to), matrix(to)};
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
