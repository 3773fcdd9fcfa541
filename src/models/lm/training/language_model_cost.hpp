#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Predicted time and memory of a training step of a language model on every grid of a number of ranks, none of which need to
// exist. The predictions are sums over the planned operations (docs/design.md 2.5) of rank 0, which has the largest of all
// balanced parts.

#include "models/gnn/network/memory_estimate.hpp"
#include "models/lm/plan/transformer_plan.hpp"
#include "models/lm/plan/transformer_settings.hpp"
#include "models/lm/training/sequence_rows.hpp"
#include "models/training/gradient_sum.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/grid/process_grid.hpp"

#include <optional>
#include <string>
#include <vector>

namespace orthant::models {

// Arrays and operations of the training of a language model, and the memory of a rank according to these lists.

/// Adds the arrays of a LanguageModel to `step`, in the order of allocation.
void plan_language_model_arrays(pmm::StepPlan& step, TransformerPlan const& plan,
                                SequenceSettings const& sequences, OptimizerSettings const& optimizer,
                                std::int64_t bucket_bytes = default_bucket_bytes);

/// Adds the K passes of a training step with their losses to `step`.
void plan_language_model_passes(pmm::StepPlan& step, TransformerPlan const& plan,
                                SequenceSettings const& sequences, OptimizerSettings const& optimizer);
/// Adds a training step to `step`: its passes, the sums of gradients over the batch axes, and the update.
void plan_language_model_step(pmm::StepPlan& step, TransformerPlan const& plan,
                              SequenceSettings const& sequences, OptimizerSettings const& optimizer,
                              std::int64_t bucket_bytes = default_bucket_bytes);

/// Plan for predictions of memory. If the model has experts, it assumes the imbalance of plan_for_memory() of ExpertPlan.
[[nodiscard]] TransformerPlan plan_for_memory(TransformerPlan plan, pmm::GridShape const& shape);

/// Memory of the rank at `coordinates` of a grid that need not exist, predicted with plan_for_memory(). T: the scalar type of
/// training.
template<class T>
[[nodiscard]] MemoryEstimate estimate_memory(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                             TransformerPlan const& plan, SequenceSettings const& sequences,
                                             OptimizerSettings const& optimizer);
/// Memory of the calling rank of `grid`. Includes the messages of gradient sums that start during the backward pass; whether they
/// do depends on the network of the grid.
template<class T>
[[nodiscard]] MemoryEstimate estimate_memory(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                                             SequenceSettings const& sequences,
                                             OptimizerSettings const& optimizer);

/// Cost of a training step on one grid. All bytes are per rank. In a pipeline, bytes of memory are those of the fullest stage, and all
/// other numbers those of the slowest stage, whose seconds include those in which it waits for other stages.
struct LanguageModelCost {
  pmm::GridShape shape;
  std::int64_t sent_bytes = 0;      // per step
  std::int64_t num_calls = 0;       // collectives per step
  std::int64_t array_bytes = 0;     // largest sum held at once
  std::int64_t workspace_bytes = 0; // MPI's copies of messages on a host, and operands that products round
  pmm::StepSeconds seconds;         // per step
  ContextExchange context_exchange = ContextExchange::key_values; // that of the model, or the faster one

  [[nodiscard]] std::int64_t memory_bytes() const { return array_bytes + workspace_bytes; }
};

/// Grids of each of the `pipeline` stages that can split the model and its batches, with any number of data groups, which the inner axes
/// must divide. If these have one rank, there is at least one grid, because y may be any number. Throws UserError if there is no grid, or if no
/// grid can train the model.
[[nodiscard]] std::vector<pmm::GridShape>
shapes_of_language_model(int num_ranks, TransformerSettings const& model, SequenceSettings const& sequences,
                         InnerAxes const& inner = {}, int pipeline = 1);

/// Approximate size of a checkpoint of the training: weights and moments of the optimizer, in fp32.
[[nodiscard]] std::int64_t bytes_of_checkpoint(TransformerSettings const& model,
                                               SequenceSettings const& sequences,
                                               OptimizerSettings const& optimizer);

/// The machine with the rates of the model's products.
[[nodiscard]] pmm::Machine machine_for(TransformerSettings const& model, pmm::Machine const& machine);

/// Cost on one grid. With ContextExchange::automatic and a context axis, the cost of the faster exchange, or of key_values if both are equal.
/// The computation lists O(layers) operations.
[[nodiscard]] LanguageModelCost
cost_of_language_model(pmm::GridShape const& shape, TransformerSettings const& model,
                       SequenceSettings const& sequences, OptimizerSettings const& optimizer,
                       pmm::Machine const& machine, std::int64_t scalar_bytes = sizeof(float));

/// Costs on all grids without inner axes, sorted by seconds, then by memory. Training is in fp32. Throws UserError if the
/// settings contradict one another.
[[nodiscard]] std::vector<LanguageModelCost>
costs_of_language_model(int num_ranks, TransformerSettings const& model, SequenceSettings const& sequences,
                        OptimizerSettings const& optimizer, pmm::Machine const& machine);

// Fastest grids of a language model among those that fit into the memory of a rank. The blocks of a model are alike, so a cost is
// linear in their number:
//
//   seconds(L) = seconds(u) + (L / u - 1) (seconds(2 u) - seconds(u))        u: stages times layers that share a kept input, or 1
//
// Grids are sorted by this estimate. The operations of the whole model are listed only for the best of them.

struct FastestGrids {
  std::vector<LanguageModelCost> costs; // of the whole model, sorted by seconds, then by memory
  pmm::LeftOut left_out;                // grids that do not fit
};

struct GridLimits {
  double bytes = 0;             // memory of a rank; 0: no limit
  std::int64_t other_bytes = 0; // memory of a rank that is neither arrays nor messages
  std::size_t num_grids = 1;    // largest number of grids to return
  InnerAxes inner = {};         // sizes of the axes that --grid does not name
  /// ZeRO stage 3: only grids that with_data_along_z() with these ranks per node does not change.
  std::optional<int> shares_weights_of = std::nullopt;
  int pipeline = 1; // number of stages
};

/// Returns the fastest grids within `limits`; `costs` is empty if no grid fits. The result is the same on all ranks if the
/// arguments are. Throws UserError if the settings contradict one another, or if there is no grid with the inner axes.
[[nodiscard]] FastestGrids fastest_grids(int num_ranks, TransformerSettings const& model,
                                         SequenceSettings const& sequences,
                                         OptimizerSettings const& optimizer, pmm::Machine const& machine,
                                         GridLimits const& limits, std::int64_t scalar_bytes = sizeof(float));

// Advice on sizes of a language model that waste work on a grid. Matrix units multiply tiles of at least 64 x 64 elements and
// load 16 bytes at a time, which is 8 elements of 16 bits. A size that is not a multiple is rounded up to one. If the grid splits
// a size unevenly, all ranks wait for the one with the largest part.

/// One line per size that wastes work, with a better size; empty if nothing is wasted.
[[nodiscard]] std::vector<std::string> advice_on_shapes(pmm::GridShape const& shape,
                                                        TransformerSettings const& model,
                                                        SequenceSettings const& sequences);

} // namespace orthant::models
