#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Weights of a layer with relations: what a network asks for, and what one layer has.

#include "models/parameters/parameter.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/relations/relation_attention.hpp"
#include "pmm/relations/relation_product.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::models {

/// Weights of the relations of a graph. Layers whose widths num_blocks does not divide have full weights.
struct RelationShape {
  std::int64_t num_relations = 0; // 0: the layers know no relations
  std::int64_t num_bases = 0;     // 0: none
  std::int64_t num_blocks = 0;    // 0: none
  std::vector<std::int64_t>
      root_types{};        // [roots] types of their vertices; empty: one weight for all vertices
  bool has_biases = false; // of roots; with attention, of relations
  // Attention within each relation in place of means.
  std::int64_t num_heads = 0; // 0: means
  bool has_target_weights = false;
  bool drops_coefficients = false;
  std::int64_t num_types = 1;               // of vertices
  std::vector<std::int64_t> target_types{}; // [relations]
};

/// Parameters of a layer with relations (pmm/relations/relation_product.hpp).
enum class RelationPart : std::uint8_t { weight, comp, roots, biases, target_weight, attention };
inline constexpr std::size_t num_relation_parts = 6;
[[nodiscard]] constexpr std::size_t index_of(RelationPart part) {
  return static_cast<std::size_t>(part);
}
template<class T>
using ByRelationPart = std::array<T, num_relation_parts>;
inline constexpr ByRelationPart<char const*> relation_names{"weight", "comp",          "roots",
                                                            "biases", "target_weight", "attention"};
inline constexpr ByRelationPart<ParameterRole> relation_roles{ParameterRole::weight, ParameterRole::weight,
                                                              ParameterRole::weight, ParameterRole::type_bias,
                                                              ParameterRole::weight, ParameterRole::weight};

/// The product with all relations in place of A^ F W (gnn/plan/relation_step.hpp).
struct RelationPlan {
  pmm::RelationWeights weights;
  ByRelationPart<pmm::Placement> parts;                   // without rows: there is no such parameter
  ByRelationPart<std::int64_t> fans{};                    // fan-in plus fan-out with which they are drawn
  std::vector<std::int64_t> root_types;                   // as in RelationShape
  std::optional<pmm::RelationAttentionShape> attention{}; // nullopt: means
  bool drops_coefficients = false;                        // as in RelationShape, like the next two
  std::int64_t num_types = 1;
  std::vector<std::int64_t> target_types{};
  [[nodiscard]] pmm::Placement const& weight() const { return parts.front(); }
  /// Biases are of types of vertices, or of relations, and the layer has none.
  [[nodiscard]] bool has_own_biases() const { return !root_types.empty() || attention; }
};

/// Plans the parameters of a layer of `in` x `out`. Every rank reads all of them, so they are split over the group, as `weight` says.
[[nodiscard]] RelationPlan plan_relations(RelationShape const& shape, std::int64_t in, std::int64_t out,
                                          pmm::Storage weight);

} // namespace orthant::models
