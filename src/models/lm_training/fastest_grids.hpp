#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The grids on which a language model trains fastest, of those that fit into the memory of a rank. Blocks of a model are alike, so
// a cost grows linearly with their number:
//
//   seconds(L) = seconds(u) + (L / u - 1) (seconds(2 u) - seconds(u))        u: layers that share a kept input, or 1
//
// This orders the grids, and the best of them are then listed in full.

#include "models/lm_training/language_model_cost.hpp"
#include "pmm/cost/memory_fit.hpp"

namespace orthant::models {

struct FastestGrids {
  std::vector<LanguageModelCost> costs; // exact, in order of seconds and then of memory
  pmm::LeftOut left_out;                // the grids that do not fit
};

struct GridLimits {
  double bytes = 0;             // that a rank can hold; 0: any number
  std::int64_t other_bytes = 0; // that it holds beside arrays and messages
  std::size_t num_grids = 1;    // how many are asked for
  int expert_axis = 1;          // its ranks
};

/// Arguments as of costs_of_language_model(). `costs` is empty if no grid fits. The same on all ranks if `limits` is.
[[nodiscard]] FastestGrids fastest_grids(int num_ranks, TransformerSettings const& model,
                                         SequenceSettings const& sequences,
                                         OptimizerSettings const& optimizer, pmm::Machine const& machine,
                                         GridLimits const& limits, std::int64_t scalar_bytes = sizeof(float));

} // namespace orthant::models
