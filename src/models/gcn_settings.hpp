#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the user asks of a GCN.

#include "models/gcn_plan.hpp"
#include "models/graph_operands.hpp"
#include "runtime/wire.hpp"

#include <cstdint>
#include <vector>

namespace orthant::models {

struct GcnSettings {
  std::vector<std::int64_t> hidden_widths{128, 128}; // one fewer than layers
  double dropout = 0.5;
  bool has_bias = true;
  bool trains_features = false;
  FeatureNorm feature_norm = FeatureNorm::none;
  ProductOrder order = ProductOrder::automatic;
  bool overlaps = true;
  runtime::Wire wire = runtime::Wire::native;
  std::uint64_t seed = 0;

  [[nodiscard]] std::int64_t num_layers() const {
    return static_cast<std::int64_t>(hidden_widths.size()) + 1;
  }
  void set_layers(std::int64_t num_layers, std::int64_t hidden) {
    hidden_widths.assign(static_cast<std::size_t>(num_layers - 1), hidden);
  }
};

/// The model that `settings` ask for on this graph. Throws UserError where the store has no features or no
/// labels, naming the partition flags that give them.
[[nodiscard]] GcnPlan plan_gcn(graph::GraphStore const& store, GcnSettings const& settings);

} // namespace orthant::models
