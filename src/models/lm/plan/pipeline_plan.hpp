#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Pipelines: the ranks along the axis pipe are stages, each of which has a contiguous range of the blocks of a transformer. The first
// stage also has the embedding, and the last one the head. A table that both share is on both. With P stages, the K passes of a step run
// in the order 1F1B: stage s begins with the forward passes of P - 1 - s batches, then runs forward and backward passes in turn, and ends
// with the backward passes that are left. It keeps the activations of at most P - s passes. With equal stages, each of them waits for
// (P - 1) / (K + P - 1) of the passes of a step.
//
// With settings.splits_backward, a backward pass first computes the gradients of the streams, for which the previous stage waits, and later
// those of the weights, which nobody waits for (ZB-H1). Stage s computes the latter s passes late, so each stage keeps at most P passes. With
// forward passes of F seconds and backward passes of B and W, a stage waits (P - 1) (F + B) - min(P - 1, K - 1) W seconds in place of
// (P - 1) (F + B + W).
//
// Every stage runs its backward passes in the order of the batches, so sums of gradients over batches have the same bits as without a
// pipeline.
//
// Source: PipeDream-Flush (arXiv 2006.09503); AxoNN (IPDPS 2022); zero bubble (arXiv 2401.10241), section 3.

#include "models/lm/plan/transformer_settings.hpp"
#include "models/parameters/network.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <vector>

namespace orthant::models {

/// What a rank has of a pipeline. Without a pipeline, a rank has the only stage.
struct StagePlan {
  int number = 0;
  int num_stages = 1;
  runtime::Range layers;          // blocks
  std::int64_t num_in_flight = 1; // passes whose activations are kept at once
  /// Whether the gradients of weights are computed later than those of the streams. False on the first stage, which sends no gradients.
  bool splits_backward = false;

  /// Passes whose activations a stage keeps at once if a step has as many.
  [[nodiscard]] static int most_in_flight(TransformerSettings const& settings, int stage, int num_stages) {
    return settings.splits_backward ? num_stages : num_stages - stage;
  }
  [[nodiscard]] bool has_embedding() const { return number == 0; }
  [[nodiscard]] bool has_head() const { return number + 1 == num_stages; }
  [[nodiscard]] bool has_layer(std::int64_t layer) const {
    return layers.begin <= layer && layer < layers.end;
  }
};

/// Blocks of each stage. The stage with the most work per token, in multiplications of the blocks and the head, has as little as possible;
/// among such divisions, the stage that keeps the most activations, in blocks times passes, has as few as possible. Throws UserError
/// if there are fewer blocks than stages.
[[nodiscard]] std::vector<runtime::Range> deal_layers(TransformerSettings const& settings,
                                                      std::int64_t sequence, int num_stages);

/// Plan of the stage of the rank at `coordinates` for steps of `num_passes` passes. Throws UserError if the settings do not allow a
/// pipeline of shape.pipe stages.
[[nodiscard]] StagePlan plan_stage(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                   TransformerSettings const& settings, std::int64_t sequence,
                                   std::int64_t num_passes);

/// Order of the passes of a step on a stage: by schedule_of(), one of the other two.
[[nodiscard]] std::vector<PassAction> schedule_1f1b(int stage, int num_stages, std::int64_t num_passes);
[[nodiscard]] std::vector<PassAction> schedule_zero_bubble(int stage, int num_stages,
                                                           std::int64_t num_passes);
[[nodiscard]] std::vector<PassAction> schedule_of(StagePlan const& stage, std::int64_t num_passes);

} // namespace orthant::models
