#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Operations and arrays of an attention layer on one rank, in the schedule `rows`: gnn/aggregation/attention_aggregation.hpp runs
// them, and network_step.hpp lists them. Equations: pmm/edges/README.md. A list of a step is a pmm::StepPlan.

#include "models/gnn/plan/network_settings.hpp"
#include "models/layers/activation.hpp"
#include "pmm/edges/edge_block.hpp"
#include "pmm/edges/edge_softmax.hpp"

namespace orthant::models {

struct AttentionSteps {
  /// `cells` and `num_edges`: the sizes of this rank's block and its number of edges. `needed`: numbers of rows that move.
  AttentionSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                 NetworkLayerPlan const& layer, pmm::CellSizes const& cells, std::int64_t num_edges,
                 pmm::NeededCountsOfAxes const& needed = {}, runtime::Wire wire = runtime::Wire::native);

  AttentionPlan plan;
  pmm::Axis softmax_axis; // the columns of a row are split over it
  pmm::Placement adjacency;
  // Moves of rows: the result P and dP, the values (Z or R), and the parts of the scores read per row (s or L) and per column
  // (t, or K; R is among the values).
  pmm::BlockRowsPlan result, values, of_rows, of_columns;
  pmm::BlockRowsSteps result_steps, values_steps, rows_steps, columns_steps;
  pmm::EdgeCounts counts;
  pmm::Heads heads; // of this rank
  std::int64_t first_head = 0;
  std::int64_t num_own = 0;     // rows of U that this rank owns
  std::int64_t num_results = 0; // rows of Q that this rank owns
  /// Q has fewer rows than U: the parts of the scores that are read per row are selected first.
  bool selects_rows = false;

  /// Length of the coefficients of this rank: one per edge and head.
  [[nodiscard]] std::int64_t num_coefficients() const { return counts.edges * heads.count; }
  /// Columns of the matrix from which the parts of the scores per row come, and its length if rows of it are selected.
  [[nodiscard]] std::int64_t num_selected_columns() const { return of_rows.stride; }
  [[nodiscard]] std::int64_t num_selected() const { return selects_rows ? num_results * of_rows.stride : 0; }
  /// Length of the gradients of the ends without those of selected rows.
  [[nodiscard]] std::int64_t num_ends_gradient() const {
    if (plan.is_dynamic()) return 2 * counts.rows * heads.columns();
    auto const of_block = counts.rows + counts.columns;
    return plan.has_dots() ? of_block * heads.columns() : of_block * heads.count + 2 * num_ends();
  }
  /// Length of s, of t and of their gradients, for the rows that this rank owns. 0 except for GAT, because other models have no s and t.
  [[nodiscard]] std::int64_t num_ends() const {
    return plan.kind == AttentionKind::gat ? num_own * plan.num_heads : 0;
  }
  /// Extents of the terms whose rows are summed to da.
  [[nodiscard]] std::int64_t num_vector_rows() const { return plan.is_dynamic() ? counts.rows : num_own; }
  [[nodiscard]] std::int64_t num_vector_columns() const {
    return plan.is_dynamic() ? heads.columns() : plan.num_heads * plan.num_vector();
  }
  /// Number of rows in a block of the sum over rows.
  static constexpr std::int64_t rows_of_sum = 256;
  [[nodiscard]] std::int64_t num_sums() const { return num_sums_of(num_vector_rows()); }
  [[nodiscard]] static std::int64_t num_sums_of(std::int64_t num_rows) {
    return (num_rows + rows_of_sum - 1) / rows_of_sum;
  }
  /// Length of the factors of features of edges in the scores of this rank's heads (pmm::EdgeFeatureTerm).
  [[nodiscard]] std::int64_t num_edge_factors() const {
    return counts.features * (plan.is_dynamic() ? heads.columns() : heads.count);
  }
};

/// `Work`: a Workspace or a WorkspacePlan.
template<class Work>
void reserve_attention(Work& work, AttentionSteps const& s) {
  for (auto const* const steps : {&s.result_steps, &s.values_steps, &s.rows_steps, &s.columns_steps})
    reserve_block_rows(work, *steps);
  pmm::reserve_edge_softmax(work, s.counts.rows, s.heads.count);
  work.reserve(pmm::Slot::sums, s.num_sums() * s.num_vector_columns());
  work.reserve(pmm::Slot::sums, s.num_sums_of(s.counts.rows) * s.num_edge_factors());
  for (auto const slot : {pmm::Slot::left, pmm::Slot::right})
    work.reserve(slot, s.num_edge_factors());
}

/// Lengths of the arrays that all attention layers use in turn.
struct AttentionScratchPlan {
  std::int64_t sums = 0;   // of the rows that this rank owns: the heads before their mean, and its gradient
  std::int64_t result = 0; // P, and dP
  std::int64_t values = 0; // dR
  /// ds and dt, for the block and for the rows that this rank owns; GATv2: dL and the terms of da; transformer: dQ and dK; then selected
  /// rows.
  std::int64_t ends = 0;
  std::int64_t coefficients = 0; // gradient of the coefficients

  void add(AttentionSteps const& steps);
  void list(pmm::StepPlan& step) const;
};

/// Scratch sizes of a network whose block on this rank has these cells and `num_edges` edges.
[[nodiscard]] AttentionScratchPlan attention_scratch_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                                                        pmm::CellSizes const& cells, std::int64_t num_edges);
void reserve_attention(pmm::WorkspacePlan& work, pmm::StepPlan const& step, NetworkPlan const& plan);
/// Lists the arrays that layers share, and the arrays of each layer.
void plan_attention_arrays(pmm::StepPlan& step, NetworkPlan const& plan, std::int64_t num_edges);

/// Dropout of layer l's coefficients in a training step. Its random numbers differ from those of the activations.
[[nodiscard]] Dropout dropout_of_coefficients(NetworkSettings const& settings, std::uint64_t step,
                                              std::size_t l);

/// Lengths of the arrays that a layer keeps for its backward pass.
struct AttentionMemoryPlan {
  std::int64_t values = 0, of_rows = 0, of_columns = 0, ends = 0, coefficients = 0;
};
[[nodiscard]] AttentionMemoryPlan memory_of(AttentionSteps const& steps);

/// List the forward and the backward pass.
void plan_attention(pmm::StepPlan& step, AttentionSteps const& steps, bool drops_coefficients,
                    bool drops_edges);
void plan_attention_backward(pmm::StepPlan& step, AttentionSteps const& steps);

/// Passes over the rows that this rank owns.
struct AttentionPasses {
  pmm::LocalPass ends, ends_backward, vectors, average, spread, skip{}, edge_factors{}, edge_parameters{};
};
[[nodiscard]] AttentionPasses passes_of(AttentionSteps const& steps, std::int64_t scalar_bytes);

} // namespace orthant::models
