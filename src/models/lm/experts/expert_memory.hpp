#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the backward pass of a layer of experts reads of its forward pass, and what all layers use in turn. How many rows
// arrive changes from step to step, so most of it grows.

#include "models/lm/experts/expert_plan.hpp"
#include "pmm/experts/dispatch.hpp"
#include "pmm/experts/routing.hpp"

#include <memory>
#include <vector>

namespace orthant::models {

template<class T>
struct ExpertScratch {
  /// `grid` must outlive it.
  ExpertScratch(pmm::ProcessGrid const& grid, ExpertPlan const& plan);

  std::shared_ptr<pmm::DispatchBuffers<T>> messages = std::make_shared<pmm::DispatchBuffers<T>>();
  runtime::Matrix<T> logits;          // [rows x experts], and their gradient
  runtime::Vector<T> weight_gradient; // [rows x choices]
  runtime::Vector<T> gathered;        // the longer array of weights, if z has ranks
  runtime::Vector<T> addends;         // of its gradient
  runtime::GrowingVector<T> rows{"orthant::models::ExpertScratch/rows"};   // [arrived x hidden]
  runtime::GrowingVector<T> inner{"orthant::models::ExpertScratch/inner"}; // [arrived x width]
  runtime::GrowingVector<T> outer{"orthant::models::ExpertScratch/outer"}; // [arrived x width of up]
  runtime::GrowingVector<T> returned{
      "orthant::models::ExpertScratch/returned"}; // [sent x hidden], if rows travel
};

template<class T>
struct ExpertMemory {
  /// `grid` and `scratch` must outlive it.
  ExpertMemory(pmm::ProcessGrid const& grid, ExpertPlan const& plan, ExpertScratch<T> const& scratch);

  pmm::Routing<T> routing;
  runtime::Vector<T> shares; // [experts] of all choices of the pass
  pmm::Dispatch<T> dispatch;
  runtime::GrowingVector<T> arrived{"orthant::models::ExpertMemory/arrived"};
  runtime::GrowingVector<T> expanded{"orthant::models::ExpertMemory/expanded"};
  runtime::GrowingVector<T> activated{"orthant::models::ExpertMemory/activated"};
  runtime::GrowingVector<T> returned{"orthant::models::ExpertMemory/returned"};
};

/// List their arrays. What grows has the largest size of the layers that use it.
void plan_expert_scratch(pmm::StepPlan& step, ExpertPlan const& plan,
                         std::vector<std::int64_t> const& layers);
void plan_expert_memory(pmm::StepPlan& step, ExpertPlan const& plan, std::vector<std::int64_t> const& layers);

extern template struct ExpertScratch<float>;
extern template struct ExpertScratch<double>;
extern template struct ExpertMemory<float>;
extern template struct ExpertMemory<double>;

} // namespace orthant::models
