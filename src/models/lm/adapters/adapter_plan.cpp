// SPDX-License-Identifier: Apache-2.0
#include "models/lm/adapters/adapter_plan.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

/// Adjacent columns of a weight that one target names.
struct TargetColumns {
  std::string_view target;
  std::int64_t count = 0;
};

/// The targets of a weight, in the order of its columns, which repeat this pattern; empty if the weight cannot be adapted.
std::vector<TargetColumns> targets_of(TransformerSettings const& s, std::string_view name) {
  if (name.ends_with(".attn.c_attn.weight")) {
    auto const d = s.head_dim();
    return {{"q", s.num_heads / s.num_kv_heads * d}, {"k", d}, {"v", d}};
  }
  if (name.ends_with(".attn.c_proj.weight")) return {{"o", 1}};
  if (name.ends_with(".mlp.c_fc.weight")) {
    if (s.activation == FeedForward::swiglu) return {{"gate", 1}, {"up", 1}};
    return {{"up", 1}};
  }
  if (name.ends_with(".mlp.c_proj.weight")) return {{"down", 1}};
  return {};
}

} // namespace

std::optional<AdaptedColumns> adapted_columns(TransformerSettings const& settings, std::string_view name) {
  AdaptedColumns columns;
  for (auto const& [target, count] : targets_of(settings, name)) {
    auto const is_adapted =
        std::ranges::find(settings.adapters.targets, target) != settings.adapters.targets.end();
    auto const slot = is_adapted ? static_cast<std::int32_t>(columns.num_adapters++) : -1;
    columns.slots.insert(columns.slots.end(), static_cast<std::size_t>(count), slot);
  }
  if (!settings.adapters.is_on() || columns.num_adapters == 0) return std::nullopt;
  return columns;
}

FactorPlacements place_factors(pmm::Placement const& weight, AdaptedColumns const& columns,
                               std::int64_t rank) {
  pmm::Layout left{weight.layout.rows, pmm::AxisSet{}}, right{pmm::AxisSet{}, weight.layout.columns};
  left.row_granule = weight.layout.row_granule;
  right.column_granule = weight.layout.column_granule;
  auto const num_factors = columns.num_adapters * rank;
  return {{left, {weight.extents.rows, num_factors}}, {right, {num_factors, weight.extents.columns}}};
}

} // namespace orthant::models
