// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/relation_plan.hpp"

#include "runtime/error.hpp"

namespace orthant::models {

RelationPlan plan_relations(RelationShape const& shape, std::int64_t in, std::int64_t out,
                            pmm::Storage weight) {
  RelationPlan plan;
  plan.weights = {shape.num_relations,
                  in,
                  out,
                  shape.num_bases,
                  shape.num_blocks,
                  std::ssize(shape.root_types),
                  shape.has_biases && !shape.root_types.empty()};
  if (auto& blocks = plan.weights.num_blocks; blocks > 0 && (in % blocks != 0 || out % blocks != 0))
    blocks = 0;
  pmm::Layout const layout{{}, {}, weight};
  auto const& weights = plan.weights;
  auto biases = weights.biases();
  pmm::Extents target_weight{}, attention{};
  if (shape.num_heads > 0) {
    ORTHANT_REQUIRE(out % shape.num_heads == 0, out, " columns in ", shape.num_heads, " heads");
    plan.attention = pmm::RelationAttentionShape{
        shape.num_relations, in, {shape.num_heads, out / shape.num_heads}, shape.has_target_weights};
    plan.num_types = shape.num_types;
    plan.target_types = shape.target_types;
    plan.drops_coefficients = shape.drops_coefficients;
    target_weight = plan.attention->target_weight();
    attention = plan.attention->attention();
    if (shape.has_biases) biases = {shape.num_relations, out};
  }
  plan.parts = {{{layout, weights.weight()},
                 {layout, weights.comp()},
                 {layout, weights.roots()},
                 {layout, biases},
                 {layout, target_weight},
                 {layout, attention}}};
  auto const& heads = plan.attention ? plan.attention->heads : pmm::Heads{};
  plan.fans = {0, 0, in + out, 0, in + out, heads.count + heads.width};
  plan.root_types = shape.root_types;
  return plan;
}

} // namespace orthant::models
