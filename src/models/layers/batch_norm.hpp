#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// BatchNorm over the rows of a matrix Z[r,c] with n rows and D columns (Ioffe & Szegedy, arXiv 1502.03167, algorithms 1 and 2). Scale g and
// shift b have one number per column:
//
//   m_j = 1/n sum_r z_ij      v_j = 1/n sum_r (z_ij - m_j)^2      n_ij = (z_ij - m_j) / sqrt(v_j + eps)      y_ij = g_j n_ij + b_j
//
//   s_j = sum_r dy_ij      t_j = sum_r dy_ij n_ij      dz_ij = g_j / sqrt(v_j + eps) (dy_ij - s_j / n - n_ij t_j / n)
//   dg_j = t_j             db_j = s_j
//
// Sums run over all rows of the matrix: over blocks of 256 rows in the scalar type of training, then over the blocks of a rank in
// double, then over the ranks of the row axis. The variance is computed about the mean, so a large mean does not cost digits. The
// order of additions depends only on shape and grid. Z is replicated over its third axis. All functions enqueue on exec and do not
// fence. Functions that read Z each add a pass. Z and its gradient may have 16-bit elements; all else is then fp32.

#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"
#include "runtime/numbers/formats.hpp"

namespace orthant::models {

/// m and 1 / sqrt(v + eps). Each [columns], or longer.
template<class T>
struct BatchNormState {
  runtime::Vector<T> mean;
  runtime::Vector<T> inverse_deviation;
};

/// Statistics of a batch, from which running statistics are updated. Each [columns].
template<class T>
struct BatchStatistics {
  runtime::Vector<T> mean;
  runtime::Vector<T> variance; // divides by n - 1 instead of n
  T share = 1;                 // factor applied to both
};

/// Length of the workspace's slot `sums` that a block needs for partial sums.
[[nodiscard]] std::int64_t num_batch_norm_sums(std::int64_t num_rows, std::int64_t num_columns);

/// Computes the state and the statistics of z. `sums` [2 x columns] is borrowed memory. Collective over the row axis: two
/// all_reduces of one number per column.
template<class T>
void find_batch_norm(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                     BatchNormState<runtime::SumOf<T>> const& state,
                     BatchStatistics<runtime::SumOf<T>> const& statistics,
                     runtime::Vector<runtime::SumOf<T>> const& sums,
                     pmm::Workspace<runtime::SumOf<T>> const& work);
/// Computes the state from running statistics [columns].
template<class T>
void use_running_statistics(runtime::DefaultExec const& exec, runtime::Vector<T> const& mean,
                            runtime::Vector<T> const& variance, BatchNormState<T> const& state);
/// y := g n + b. y must have the placement of z and must not be z. Local.
template<class T>
void apply_batch_norm(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                      BatchNormState<runtime::SumOf<T>> const& state,
                      runtime::Vector<runtime::SumOf<T>> const& scale,
                      runtime::Vector<runtime::SumOf<T>> const& shift, pmm::DistMatrix<T> const& y);

/// sums := (s, t) [2 x columns], over this rank's rows. Local.
template<class T>
void sum_batch_norm_gradient(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                             BatchNormState<runtime::SumOf<T>> const& state,
                             pmm::DistMatrix<T> const& gradient,
                             runtime::Vector<runtime::SumOf<T>> const& sums,
                             pmm::Workspace<runtime::SumOf<T>> const& work);
/// gradient holds dy on entry and dz on return; `sums`: (s, t) over all rows. Local.
template<class T>
void apply_batch_norm_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                               BatchNormState<runtime::SumOf<T>> const& state,
                               runtime::Vector<runtime::SumOf<T>> const& scale,
                               runtime::Vector<runtime::SumOf<T>> const& sums,
                               pmm::DistMatrix<T> const& gradient);

/// List the operations for a z with this placement and format of elements.
void plan_find_batch_norm(pmm::StepPlan& step, pmm::Placement const& z,
                          runtime::Wire format = runtime::Wire::native);
void plan_apply_batch_norm(pmm::StepPlan& step, pmm::Placement const& z,
                           runtime::Wire format = runtime::Wire::native);
void plan_sum_batch_norm_gradient(pmm::StepPlan& step, pmm::Placement const& z,
                                  runtime::Wire format = runtime::Wire::native);
void plan_apply_batch_norm_backward(pmm::StepPlan& step, pmm::Placement const& z,
                                    runtime::Wire format = runtime::Wire::native);

} // namespace orthant::models
