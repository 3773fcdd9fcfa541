#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Trained features as a network reads them. Their parameter is flat-sharded over the third axis t of the features; X[a,b] is a copy of
// all rows of the rank's block, or of the rows of a batch:
//
//   forward    X := the rows. Each rank along t packs the numbers of its shard; one all_gather over t
//   backward   shard of the gradient := the numbers of dX that lie in the shard, 0 in rows that were not read
//
// The packed numbers of all ranks, in the order of the ranks, are X, because the rows of a batch ascend. dX is the same on all ranks along
// t, so the backward pass sends nothing.

#include "graph/store/store_format.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::models {

/// Rows of trained features that a pass reads.
struct FeatureRows {
  /// [rows that this rank reads] numbers of rows in its block of the whole graph, ascending; nullopt: all.
  std::optional<runtime::Vector<std::int32_t>> numbers;
  /// [ranks of the third axis] elements of these rows in each shard.
  std::vector<std::int64_t> counts;

  /// First element in the shard of the rank at `place` along the third axis, among the elements of these rows.
  [[nodiscard]] std::int64_t first_in(int place) const;
};

/// All rows of a rank's block, and the rows of a batch, which must ascend. `shards`: placement of the parameter.
[[nodiscard]] FeatureRows all_feature_rows(pmm::ProcessGrid const& grid, pmm::Placement const& shards);
[[nodiscard]] FeatureRows feature_rows(pmm::ProcessGrid const& grid, pmm::Placement const& shards,
                                       std::vector<std::int32_t>& numbers);

/// X := the rows. X is replicated over the third axis. Collective over that axis. Enqueues on exec.
template<class T>
void gather_features(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& shards,
                     FeatureRows const& rows, pmm::DistMatrix<T> const& x);

/// Gradient of the shards from dX. Not collective. Enqueues on exec. T: a 16-bit number or Sum.
template<class T, class Sum>
void spread_gradient(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient,
                     FeatureRows const& rows, pmm::DistMatrix<Sum> const& shards_gradient);

/// Fills the rows of types without features (Glorot: each type's rows are a matrix). Returns 1 for each of these rows and 0 for the others,
/// or an empty array if there are none. `ids`: original ids of the block's rows. `features` are replicated.
template<class T>
[[nodiscard]] runtime::Vector<std::int8_t> draw_table(graph::StoreFacts const& facts,
                                                      std::vector<std::int64_t> const& ids,
                                                      pmm::DistMatrix<T> const& features, std::uint64_t seed);
/// Sets the gradient to 0 in the rows that are not trained. `gradient`: a shard. Enqueues on exec.
template<class T>
void clear_fixed_rows(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient,
                      runtime::Vector<std::int8_t> const& trains_row);

/// List the passes and the call of these functions. `num_own`: elements of the rows in this rank's shard. `format`: of dX.
void plan_gather_features(pmm::StepPlan& step, pmm::Placement const& x, std::int64_t num_own);
void plan_spread_gradient(pmm::StepPlan& step, pmm::Placement const& shards, std::int64_t num_own,
                          runtime::Wire format);

} // namespace orthant::models
