#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What one rank does and holds for a layer of attention (network_plan.hpp), in the schedule rows: what
// gnn/layers/attention_aggregation.hpp runs, and what a list holds. Equations: pmm/edges/README.md.

#include "models/gnn/plan/network_settings.hpp"
#include "models/layers/activation.hpp"
#include "pmm/edges/edge_block.hpp"
#include "pmm/edges/edge_softmax.hpp"

namespace orthant::models {

struct AttentionSteps {
  /// `cells`: of this rank's block, which has so many edges.
  AttentionSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                 NetworkLayerPlan const& layer, pmm::CellSizes const& cells, std::int64_t num_edges);

  AttentionPlan plan;
  pmm::Axis softmax_axis; // over which the columns of a row are cut
  pmm::Placement adjacency;
  // Result P, and dP; values (Z or R); what scores read by row (s or L), and by column (t; R has come already).
  pmm::BlockRowsPlan result, values, of_rows, of_columns;
  pmm::BlockRowsSteps result_steps, values_steps, rows_steps, columns_steps;
  pmm::EdgeCounts counts;
  pmm::Heads heads; // of this rank
  std::int64_t first_head = 0;
  std::int64_t num_own = 0; // rows

  /// Numbers of coefficients.
  [[nodiscard]] std::int64_t num_coefficients() const { return counts.edges * heads.count; }
  /// s and t of the own rows, and of their gradients. GATv2 has none.
  [[nodiscard]] std::int64_t num_ends() const { return plan.is_dynamic() ? 0 : num_own * plan.num_heads; }
  /// Rows and columns of what da is the sum of rows of.
  [[nodiscard]] std::int64_t num_vector_rows() const { return plan.is_dynamic() ? counts.rows : num_own; }
  [[nodiscard]] std::int64_t num_vector_columns() const {
    return plan.is_dynamic() ? heads.columns() : plan.num_heads * plan.num_vector();
  }
  /// Sums are taken in blocks of so many rows first.
  static constexpr std::int64_t rows_of_sum = 256;
  [[nodiscard]] std::int64_t num_sums() const { return (num_vector_rows() + rows_of_sum - 1) / rows_of_sum; }
};

/// `Work`: a Workspace or a WorkspacePlan.
template<class Work>
void reserve_attention(Work& work, AttentionSteps const& s) {
  for (auto const* const steps : {&s.result_steps, &s.values_steps, &s.rows_steps, &s.columns_steps})
    reserve_block_rows(work, *steps);
  pmm::reserve_edge_softmax(work, s.counts.rows, s.heads.count);
  work.reserve(pmm::Slot::sums, s.num_sums() * s.num_vector_columns());
}

/// Numbers that all layers use in turn.
struct AttentionScratchPlan {
  std::int64_t sums = 0;         // of the own rows: heads before their mean, and its gradient
  std::int64_t result = 0;       // P, and dP
  std::int64_t values = 0;       // dR
  std::int64_t ends = 0;         // ds and dt, of the block and of the own rows; or dL and the terms of da
  std::int64_t coefficients = 0; // their gradient

  void add(AttentionSteps const& steps);
  void list(pmm::StepPlan& step) const;
};

/// Of a network whose block has these cells and so many edges.
[[nodiscard]] AttentionScratchPlan attention_scratch_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                                                        pmm::CellSizes const& cells, std::int64_t num_edges);
void reserve_attention(pmm::WorkspacePlan& work, pmm::StepPlan const& step, NetworkPlan const& plan);
/// Lists the arrays that layers use in turn, and those that each has to itself.
void plan_attention_arrays(pmm::StepPlan& step, NetworkPlan const& plan, std::int64_t num_edges);

/// What drops coefficients of layer l in a training step. Its draws are others than those of the activations.
[[nodiscard]] Dropout dropout_of_coefficients(NetworkSettings const& settings, std::uint64_t step,
                                              std::size_t l);

/// Numbers that a layer keeps for its backward pass.
struct AttentionMemoryPlan {
  std::int64_t values = 0, of_rows = 0, of_columns = 0, ends = 0, coefficients = 0;
};
[[nodiscard]] AttentionMemoryPlan memory_of(AttentionSteps const& steps);

/// List forward and backward pass.
void plan_attention(pmm::StepPlan& step, AttentionSteps const& steps, bool drops_coefficients);
void plan_attention_backward(pmm::StepPlan& step, AttentionSteps const& steps);

/// The passes over an owner's rows.
struct AttentionPasses {
  pmm::LocalPass ends, ends_backward, vectors, average, spread;
};
[[nodiscard]] AttentionPasses passes_of(AttentionSteps const& steps, std::int64_t scalar_bytes);

} // namespace orthant::models
