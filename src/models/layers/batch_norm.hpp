#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// BatchNorm over the rows of a matrix Z[r,c] of n rows and D columns (Ioffe & Szegedy, arXiv 1502.03167, algorithms 1 and 2), with
// scale g and shift b, a number per column each:
//
//   m_j = 1/n sum_r z_ij      v_j = 1/n sum_r (z_ij - m_j)^2      n_ij = (z_ij - m_j) / sqrt(v_j + eps)      y_ij = g_j n_ij + b_j
//
//   s_j = sum_r dy_ij      t_j = sum_r dy_ij n_ij      dz_ij = g_j / sqrt(v_j + eps) (dy_ij - s_j / n - n_ij t_j / n)
//   dg_j = t_j             db_j = s_j
//
// Sums run over all rows of the matrix: first over blocks of 256 rows in the scalar of training, then over a rank's blocks in double,
// then over the ranks of the row axis. The variance is taken about the mean, so it loses no digits to a large mean. The order of
// the additions depends on the shape and the grid alone. Z is replicated over its third axis. All functions enqueue on exec and do not
// fence; those that read Z count a pass each. T: float or double.

#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"

namespace orthant::models {

/// [columns] each, or longer: m and 1 / sqrt(v + eps).
template<class T>
struct BatchNormState {
  runtime::Vector<T> mean;
  runtime::Vector<T> inverse_deviation;
};

/// [columns] each: where the statistics of a batch go from which running ones are made.
template<class T>
struct BatchStatistics {
  runtime::Vector<T> mean;
  runtime::Vector<T> variance; // with n - 1 in place of n
  T share = 1;                 // what both are multiplied by
};

/// Numbers of the workspace's slot for sums, for the partial sums of a block.
[[nodiscard]] std::int64_t num_batch_norm_sums(std::int64_t num_rows, std::int64_t num_columns);

/// The state of z, and its statistics. `sums` [2 x columns] is lent. Collective over the row axis: two all_reduces of a number per
/// column.
template<class T>
void find_batch_norm(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                     BatchNormState<T> const& state, BatchStatistics<T> const& statistics,
                     runtime::Vector<T> const& sums, pmm::Workspace<T> const& work);
/// The state of running statistics [columns].
template<class T>
void use_running_statistics(runtime::DefaultExec const& exec, runtime::Vector<T> const& mean,
                            runtime::Vector<T> const& variance, BatchNormState<T> const& state);
/// y := g n + b, which lies as z; not z itself. Local.
template<class T>
void apply_batch_norm(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                      BatchNormState<T> const& state, runtime::Vector<T> const& scale,
                      runtime::Vector<T> const& shift, pmm::DistMatrix<T> const& y);

/// sums := (s, t) [2 x columns] of this rank's rows. Local.
template<class T>
void sum_batch_norm_gradient(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                             BatchNormState<T> const& state, pmm::DistMatrix<T> const& gradient,
                             runtime::Vector<T> const& sums, pmm::Workspace<T> const& work);
/// dz in place of dy, from (s, t) of all rows. Local.
template<class T>
void apply_batch_norm_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                               BatchNormState<T> const& state, runtime::Vector<T> const& scale,
                               runtime::Vector<T> const& sums, pmm::DistMatrix<T> const& gradient);

/// List them, for a z of that placement.
void plan_find_batch_norm(pmm::StepPlan& step, pmm::Placement const& z);
void plan_apply_batch_norm(pmm::StepPlan& step, pmm::Placement const& z);
void plan_sum_batch_norm_gradient(pmm::StepPlan& step, pmm::Placement const& z);
void plan_apply_batch_norm_backward(pmm::StepPlan& step, pmm::Placement const& z);

} // namespace orthant::models
