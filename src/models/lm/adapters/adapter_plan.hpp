#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Low-rank adapters before they are allocated (lm/adapters/adapters.hpp): which columns of a weight they change, and the placement of
// their factors.

#include "models/lm/plan/transformer_settings.hpp"
#include "pmm/grid/layout.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace orthant::models {

/// Columns of a weight that adapters change. Column j belongs to adapter slots[j % slots.size()], or to none if this is -1.
struct AdaptedColumns {
  std::vector<std::int32_t> slots;
  std::int64_t num_adapters = 0;
};
/// Columns of the weight `name` ("h.0.attn.c_attn.weight") that the settings adapt; nullopt if there are none.
[[nodiscard]] std::optional<AdaptedColumns> adapted_columns(TransformerSettings const& settings,
                                                            std::string_view name);

/// Placements of the factors of `columns` of a weight.
struct FactorPlacements {
  pmm::Placement left, right;
};
[[nodiscard]] FactorPlacements place_factors(pmm::Placement const& weight, AdaptedColumns const& columns,
                                             std::int64_t rank);

} // namespace orthant::models
