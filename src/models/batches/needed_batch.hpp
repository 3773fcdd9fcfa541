#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which rows of a sampled batch move between owners of vertices (pmm/aggregate/needed_rows.hpp). The lists are
// those of a whole graph, made anew for each batch: which rows and columns of its block of A~ have entries
// follows from the sample alone, so one exchange serves all layers and both directions. A self loop counts as
// an entry; it lies in the cell of its rank, so it makes no row move.

#include "pmm/aggregate/needed_rows.hpp"
#include "pmm/cost/step_plan.hpp"
#include "sampling/block_sampler.hpp"

#include <memory>

namespace orthant::models {

/// Agrees on the axes along which needed rows move, exchanges the lists, and takes out of the pair the rows and
/// columns that nothing touches on those axes. `sizes`: of the batch's cells. Collective over the grid's group.
/// Cost: O(non-zeros of the block), on the host.
template<class T>
[[nodiscard]] std::shared_ptr<pmm::NeededRows const>
keep_needed_rows(pmm::ProcessGrid const& grid, pmm::Roles const& roles, pmm::CellSizes const& sizes,
                 sampling::SampledPair<T>& pair, pmm::Gather gather);

/// Lists its calls, if these rows were the outcome.
void plan_needed_lists(pmm::StepPlan& step, pmm::Roles const& roles, pmm::NeededCountsOfAxes const& needed);

} // namespace orthant::models
