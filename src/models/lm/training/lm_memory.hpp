#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The arrays of the training of a language model, listed from the plan alone, and the memory that a rank needs by that list.

#include "models/gnn/network/memory_estimate.hpp"
#include "models/lm/training/sequence_rows.hpp"
#include "models/lm/transformer/transformer_plan.hpp"
#include "models/training/gradient_sum.hpp"

namespace orthant::models {

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

} // namespace orthant::models
