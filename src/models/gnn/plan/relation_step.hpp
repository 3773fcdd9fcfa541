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
#include "models/gnn/plan/relation_plan.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/edges/edge_block.hpp"
#include "pmm/relations/relation_attention.hpp"
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
/// Lists the arrays that layers share, and the arrays of each layer, also with attention.
void plan_relation_arrays(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits,
                          runtime::Wire wire);
/// `counts`: of this rank's block of the whole graph, for attention within relations.
void reserve_relations(pmm::WorkspacePlan& work, pmm::StepPlan const& step, NetworkPlan const& plan,
                       pmm::RelationEdgeCounts const& counts);

// Attention within each relation, Q = sum_r alpha_r F W_r + b_r, on one rank, in the schedule `rows` (pmm/relations/relation_attention.hpp has
// its local part). F is gathered once for the sources of edges and once for their targets, whatever the number of relations:
//
//   F_a, F_c := the rows of F that the block's columns and rows name (BlockRows), then their columns gathered over b
//   P[c,b]   := sum_r alpha_r F_a W_r[-,b]         b splits heads; local except for the softmax, which is over a
//   Q        := sum of P over a, sent to the owners of the rows, + the sum of the biases b_r of all relations into the vertex's type
//
// The backward pass gathers dP, and returns the gradients of F_a and F_c, whose columns are first summed over b. Let u = N D / P and
// u' = N D' / P be the numbers of elements of F and of Q on each of P ranks. In both passes together a rank sends, besides weights:
//
//   2 (G_b G_c + G_a G_b - 2 / G_b) u + 2 (G_a - 1 / G_b) u' + 6 (1 - 1 / G_a) K H / G_b
//
// The last term are the maxima and sums of the softmax: H heads of each of the K pairs of a row of the block and a relation of one of its
// edges. Only this term grows with the number of relations. K is at most the number of edges of these rows. If the layer needs no dF,
// the first term is half of it. Source: derived for Orthant.

/// Rows of F on one side of the block.
struct RelationSide {
  pmm::BlockRowsPlan rows;
  pmm::BlockRowsSteps steps;
  std::vector<std::int64_t> part_counts; // [ranks along b] elements of the block in each rank's columns

  [[nodiscard]] std::int64_t num_parts() const { return std::ssize(part_counts); }
  /// Elements of the block with all columns.
  [[nodiscard]] std::int64_t num_whole() const { return steps.num_block * steps.width; }
  [[nodiscard]] std::int64_t num_in_part() const { return steps.num_in_block(); }
  /// Whether the block's rows with all columns are a copy.
  [[nodiscard]] bool has_copy() const { return num_parts() > 1 || steps.has_copy(); }
};

struct RelationAttentionSteps {
  RelationAttentionSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                         NetworkLayerPlan const& layer, pmm::CellSizes const& cells,
                         pmm::RelationEdgeCounts const& counts, runtime::Wire of_messages);

  pmm::Placement adjacency;
  RelationPlan relations;
  runtime::Wire wire;
  pmm::Axis over_edges; // the columns of a row are split over it
  pmm::Axis over_parts; // heads, and columns of F, are split over it
  RelationSide sources, targets;
  bool selects_rows = false; // the result has fewer rows than F, whose rows are then the targets
  pmm::BlockRowsPlan result;
  pmm::BlockRowsSteps result_steps;
  pmm::RelationAttentionSizes sizes;

  [[nodiscard]] pmm::RelationAttentionShape const& shape() const { return *relations.attention; }
  [[nodiscard]] std::int64_t num_own() const { return result_steps.num_own; }
  [[nodiscard]] std::int64_t num_own_inputs() const { return sources.steps.num_own * shape().in; }
  [[nodiscard]] std::int64_t num_own_targets() const { return num_own() * shape().in; }
  [[nodiscard]] bool has_biases() const {
    return relations.parts[index_of(RelationPart::biases)].extents.rows > 0;
  }
  [[nodiscard]] std::int64_t num_type_sums() const {
    return has_biases() ? relations.num_types * shape().heads.columns() : 0;
  }
};

/// Arrays of a layer; the first six also have gradients, in memory that layers share.
enum class LayerArray : std::uint8_t {
  vectors,
  folded,
  projected,
  target_ends,
  source_ends,
  coefficients,
  of_columns,
  of_rows
};
inline constexpr std::size_t num_layer_arrays = 8;
inline constexpr std::array<char const*, num_layer_arrays> layer_array_labels{
    "orthant::models::relation_vectors",     "orthant::models::relation_folded",
    "orthant::models::relation_projected",   "orthant::models::relation_target_ends",
    "orthant::models::relation_source_ends", "orthant::models::relation_coefficients",
    "orthant::models::relation_columns",     "orthant::models::relation_rows"};
/// Arrays that layers share: gradients of those above, and others.
enum class SharedArray : std::uint8_t {
  vectors,
  folded,
  projected,
  target_ends,
  source_ends,
  coefficients,
  of_columns,
  of_rows,
  picked,
  picked_gradient,
  ends_by_relation,
  part,       // F, or dF, of the block in this rank's columns
  parts,      // F, or dF, with the columns of one rank after those of the other
  own_rows,   // F, or dF from the block's rows, of the rows of the result that this rank owns
  result,     // P, and dP
  type_biases // sums of biases into each type, and their gradients
};
inline constexpr std::size_t num_shared_arrays = 16;
inline constexpr std::array<char const*, num_shared_arrays> shared_array_labels{
    "orthant::models::relation_vectors_gradient",
    "orthant::models::relation_folded_gradient",
    "orthant::models::relation_projected_gradient",
    "orthant::models::relation_target_ends_gradient",
    "orthant::models::relation_source_ends_gradient",
    "orthant::models::relation_coefficients_gradient",
    "orthant::models::relation_columns_gradient",
    "orthant::models::relation_rows_gradient",
    "orthant::models::relation_picked",
    "orthant::models::relation_picked_gradient",
    "orthant::models::relation_ends",
    "orthant::models::relation_part",
    "orthant::models::relation_parts",
    "orthant::models::relation_own_rows",
    "orthant::models::relation_result",
    "orthant::models::relation_type_biases"};

/// Number of elements of each array.
[[nodiscard]] std::array<std::int64_t, num_layer_arrays>
layer_lengths_of(RelationAttentionSteps const& steps);
struct RelationAttentionScratchPlan {
  std::array<std::int64_t, num_shared_arrays> lengths{};
  /// Raises each length to what this layer needs.
  void add(RelationAttentionSteps const& steps, bool needs_input_gradient);
};

/// Steps of a layer of the whole graph on the rank of `step`.
[[nodiscard]] RelationAttentionSteps relation_attention_steps_of(pmm::StepPlan const& step,
                                                                 NetworkLayerPlan const& layer,
                                                                 NetworkEpochTraits const& traits,
                                                                 runtime::Wire wire);

/// Lists the arrays of the edges of a layer's block, and of the types of its rows.
void plan_attention_operand(pmm::StepPlan& step, RelationAttentionSteps const& steps);

/// `Work`: a Workspace or a WorkspacePlan.
template<class Work>
void reserve_relation_attention(Work& work, RelationAttentionSteps const& s) {
  for (auto const* const steps : {&s.sources.steps, &s.targets.steps, &s.result_steps})
    reserve_block_rows(work, *steps);
  pmm::reserve_relation_attention(work, s.sizes);
}

/// List the forward and the backward pass.
void plan_relation_attention(pmm::StepPlan& step, RelationAttentionSteps const& steps,
                             bool drops_coefficients);
void plan_relation_attention_backward(pmm::StepPlan& step, RelationAttentionSteps const& steps,
                                      bool needs_input_gradient);
/// The pass that adds both gradients of F.
[[nodiscard]] pmm::LocalPass pass_of_input_sum(RelationAttentionSteps const& steps,
                                               std::int64_t scalar_bytes);

/// List a layer with relations, with means or with attention.
void plan_relation_layer(pmm::StepPlan& step, NetworkLayerPlan const& layer, NetworkEpochTraits const& traits,
                         runtime::Wire wire, bool drops_coefficients);
void plan_relation_layer_backward(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                                  NetworkEpochTraits const& traits, runtime::Wire wire,
                                  bool needs_input_gradient);

} // namespace orthant::models
