#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The product with all relations of a layer, Q = sum_r A_r F W_r, on one rank (pmm/relations/relation_product.hpp has its local part).
// F is gathered once, whatever the number of relations, and one sum is reduced. Only the messages of weights and of their gradients grow
// with the number of relations.
//
//   pmm3d   P[c,-] := sum_r A_r[c,a] F[a,b] W_r[b,-]      local; the addends of P lie on the ranks along a and b
//           Q[c,a] := sum of P over a (reduce_scatter: each rank keeps its columns), then over b (all_reduce)
//
//   rows    F_a    := the rows of F that the block's columns name (BlockRows, pmm/edges/edge_block.hpp)
//           P      := sum_r A_r[c,a] F_a W_r[b,-]          local; the addends of P lie on the ranks along a and b
//           P_b    := sum of P over b (reduce_scatter: each rank keeps its columns)
//           Q      := sum of P_b over a, sent to the owners of the rows
//
// The backward pass gathers dP in the same way, and sums dF over c. Let u = N D / P and u' = N D' / P be the numbers of elements of F and
// of Q on each of P ranks if nothing is replicated. In both passes together a rank sends, besides weights:
//
//   pmm3d   2 (G_a - 1) G_b u' + 2 (G_b - 1) u' + 2 (G_c - 1) u
//   rows    2 (G_c - 1) u + 2 (G_b - 1) G_a u' + 2 (G_a - 1) u' + 2 (1 - 1 / G_b) (u + u')
//
// Nothing is sent for dF if the layer needs none.
//
// In `pmm3d`, weights are flat-sharded over the whole group: one all_gather of the weights in a forward pass, one reduce_scatter of the
// gradient. Source: derived for Orthant; arXiv 1703.06103, equation 2.

#include "models/gnn/plan/epoch_traits.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "models/parameters/parameter.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/edges/edge_block.hpp"
#include "pmm/relations/relation_product.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::models {

/// Pairs and entries of a block (pmm/relations/relation_block.hpp).
struct RelationCounts {
  std::int64_t pairs = 0, self_pairs = 0, root_pairs = 0, entries = 0;
};

/// Parameters of a layer with relations (pmm/relations/relation_weights.hpp).
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

struct RelationSteps {
  /// `cells`: of this rank, in the schedule `rows`.
  RelationSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                NetworkLayerPlan const& layer, pmm::CellSizes const& cells, RelationCounts const& counts,
                runtime::Wire of_messages);

  /// Where the owners of rows exchange them, in the schedule `rows`.
  struct Owners {
    pmm::BlockRowsPlan inputs, results;
    pmm::BlockRowsSteps inputs_steps, results_steps;
  };

  pmm::Placement adjacency;
  RelationPlan relations;
  pmm::RelationSizes sizes;
  runtime::Wire wire;
  std::optional<Owners> owners;
  pmm::AxisSet over_parts;                // axis of the reduce_scatter of P's columns
  pmm::AxisSet over_results, over_inputs; // pmm3d: Q and dF are then summed over them
  int num_parts = 1;                      // ranks along over_parts
  std::vector<std::int64_t> part_counts;  // [num_parts] elements of P in each rank's columns
  std::int64_t part = 0;                  // this rank's place along over_parts
  ByRelationPart<std::int64_t> lengths{}; // of the whole parameters, with the padding of flat shards
  bool gathers_weights = false;

  /// Elements of P in this rank's columns.
  [[nodiscard]] std::int64_t num_in_part() const { return part_counts[static_cast<std::size_t>(part)]; }
  [[nodiscard]] bool copies_input() const { return owners && owners->inputs_steps.has_copy(); }
  [[nodiscard]] bool copies_result() const { return owners && owners->results_steps.has_copy(); }
};

/// Lengths of the arrays that all layers share.
struct RelationScratchPlan {
  std::int64_t input = 0;                   // F, and dF, of the block
  std::int64_t products = 0;                // Z, and dZ
  std::int64_t means_gradient = 0;          // dU
  std::int64_t result = 0;                  // P, and dP
  std::int64_t parts = 0;                   // P, whose columns are split for a message
  std::int64_t in_part = 0;                 // this rank's columns of P, before its rows move to their owners
  std::int64_t gradient = 0;                // dW
  ByRelationPart<std::int64_t> gradients{}; // of parameters, before they are summed

  /// Raises each length to what this layer needs.
  void add(RelationSteps const& steps, bool needs_input_gradient);
  void list(pmm::StepPlan& step) const;
};
/// Lengths of the arrays of one layer.
struct RelationMemoryPlan {
  std::int64_t means = 0;                  // U
  ByRelationPart<std::int64_t> gathered{}; // parameters
  std::int64_t expanded = 0;               // W, unless it is the parameter
};
/// Labels of the arrays of parameters and of their gradients.
inline constexpr ByRelationPart<char const*> relation_labels{
    "orthant::models::relation_weight",        "orthant::models::relation_comp",
    "orthant::models::relation_roots",         "orthant::models::relation_biases",
    "orthant::models::relation_target_weight", "orthant::models::relation_attention"};
inline constexpr ByRelationPart<char const*> relation_gradient_labels{
    "orthant::models::relation_weight_gradient",        "orthant::models::relation_comp_gradient",
    "orthant::models::relation_roots_gradient",         "orthant::models::relation_biases_gradient",
    "orthant::models::relation_target_weight_gradient", "orthant::models::relation_attention_gradient"};
[[nodiscard]] RelationMemoryPlan memory_of(RelationSteps const& steps);

/// Steps of a layer of the whole graph on the rank of `step`.
[[nodiscard]] RelationSteps relation_steps_of(pmm::StepPlan const& step, NetworkLayerPlan const& layer,
                                              NetworkEpochTraits const& traits, runtime::Wire wire);

/// List the forward and the backward pass.
void plan_relations(pmm::StepPlan& step, RelationSteps const& steps);
void plan_relations_backward(pmm::StepPlan& step, RelationSteps const& steps, bool needs_input_gradient);
/// Lists the arrays that layers share, and the arrays of each layer.
void plan_relation_arrays(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits,
                          runtime::Wire wire);
void reserve_relations(pmm::WorkspacePlan& work, pmm::StepPlan const& step, NetworkPlan const& plan);

} // namespace orthant::models
