#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a training step of a language model would cost on every grid of a number of ranks, none of which need exist: sums over
// the list of the step (docs/design.md 2.5) of rank 0, whose balanced parts are the largest.

#include "models/gnn/network/memory_estimate.hpp"
#include "models/lm/plan/transformer_plan.hpp"
#include "models/lm/plan/transformer_settings.hpp"
#include "models/lm/training/sequence_rows.hpp"
#include "models/training/gradient_sum.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/grid/process_grid.hpp"

#include <string>
#include <vector>

namespace orthant::models {

// The arrays of the training of a language model, listed from the plan alone, and the memory that a rank needs by that list.

/// Lists the arrays of a LanguageModel, in the order in which they are allocated.
void plan_language_model_arrays(pmm::StepPlan& step, TransformerPlan const& plan,
                                SequenceSettings const& sequences, OptimizerSettings const& optimizer);

/// Lists a training step of it: K passes, each with its loss, sums over the data axis, and the update.
void plan_language_model_step(pmm::StepPlan& step, TransformerPlan const& plan,
                              SequenceSettings const& sequences, OptimizerSettings const& optimizer,
                              std::int64_t bucket_bytes = default_bucket_bytes);

/// The plan that memory is predicted by: with an assumed imbalance of experts (ExpertPlan's plan_for_memory()), if it has some.
[[nodiscard]] TransformerPlan plan_for_memory(TransformerPlan plan, pmm::GridShape const& shape);

/// For a rank of a grid that need not exist, by plan_for_memory(). T is the scalar of training.
template<class T>
[[nodiscard]] MemoryEstimate estimate_memory(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                             TransformerPlan const& plan, SequenceSettings const& sequences,
                                             OptimizerSettings const& optimizer);
/// For the rank of `grid` that calls: with the sums of gradients that start early on its network.
template<class T>
[[nodiscard]] MemoryEstimate estimate_memory(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                                             SequenceSettings const& sequences,
                                             OptimizerSettings const& optimizer);

/// The cost of one grid. All bytes are per rank.
struct LanguageModelCost {
  pmm::GridShape shape;
  std::int64_t sent_bytes = 0;    // in a step
  std::int64_t num_calls = 0;     // collectives of a step
  std::int64_t array_bytes = 0;   // the most that is held at once
  std::int64_t message_bytes = 0; // copies that MPI holds on a host
  pmm::StepSeconds seconds;       // of a step

  [[nodiscard]] std::int64_t memory_bytes() const { return array_bytes + message_bytes; }
};

/// The grids over which the model and its batches can be cut, with any number of data groups. There is at least one, because y may
/// be any number. `expert_axis`: a factor of the data groups. Throws UserError if no grid has it.
[[nodiscard]] std::vector<pmm::GridShape> shapes_of_language_model(int num_ranks,
                                                                   TransformerSettings const& model,
                                                                   SequenceSettings const& sequences,
                                                                   int expert_axis = 1);

/// What a checkpoint of the training holds, nearly: weights and the optimiser's moments, in fp32.
[[nodiscard]] std::int64_t bytes_of_checkpoint(TransformerSettings const& model,
                                               SequenceSettings const& sequences,
                                               OptimizerSettings const& optimizer);

/// Of one of them. Costs a list of O(layers) operations.
[[nodiscard]] LanguageModelCost
cost_of_language_model(pmm::GridShape const& shape, TransformerSettings const& model,
                       SequenceSettings const& sequences, OptimizerSettings const& optimizer,
                       pmm::Machine const& machine, std::int64_t scalar_bytes = sizeof(float));

/// Of all of them, in order of seconds and then of memory. Training is in fp32. Throws UserError if the settings contradict one another.
[[nodiscard]] std::vector<LanguageModelCost>
costs_of_language_model(int num_ranks, TransformerSettings const& model, SequenceSettings const& sequences,
                        OptimizerSettings const& optimizer, pmm::Machine const& machine);

// The grids on which a language model trains fastest, of those that fit into the memory of a rank. Blocks of a model are alike, so
// a cost grows linearly with their number:
//
//   seconds(L) = seconds(u) + (L / u - 1) (seconds(2 u) - seconds(u))        u: layers that share a kept input, or 1
//
// This orders the grids, and the best of them are then listed in full.

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

// Which sizes of a language model waste work on a grid. Matrix units multiply in tiles of at least 64 x 64 numbers and load 16
// bytes at a time, 8 numbers of 16 bits; a size that is no multiple is rounded up to one. And parts of a size that the grid cuts
// unevenly wait for the largest.

/// One line for each size, with one that would be better; none if nothing is wasted.
[[nodiscard]] std::vector<std::string> advice_on_shapes(pmm::GridShape const& shape,
                                                        TransformerSettings const& model,
                                                        SequenceSettings const& sequences);

} // namespace orthant::models
