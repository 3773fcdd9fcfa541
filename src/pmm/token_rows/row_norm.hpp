#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// LayerNorm and RMSNorm of rows whose columns are split over ranks. A row has D numbers over all ranks; g and b are scale and
// shift, one number per column.
//
//   LayerNorm   m_i = 1/D sum_j x_ij    r_i = 1 / sqrt(1/D sum_j x_ij^2 - m_i^2 + eps)    y_ij = g_j n_ij + b_j,  n_ij = (x_ij - m_i) r_i
//   RMSNorm     m_i = 0                 r_i = 1 / sqrt(1/D sum_j x_ij^2 + eps)            y_ij = g_j n_ij,        n_ij = x_ij r_i
//
//   s_i = sum_j dy_ij g_j     t_i = sum_j dy_ij g_j n_ij      dx_ij = r_i (dy_ij g_j - (s_i + n_ij t_i) / D)
//   dg_j = sum_i dy_ij n_ij   db_j = sum_i dy_ij              (RMSNorm: s_i = 0, no b)
//
// Each direction has two parts, with the sum over the ranks of the columns between them. Part 1 takes the row sums of this
// rank's columns, packed in one array, so that one message of 2 numbers per row (RMSNorm: 1) carries them. Part 2 reads their
// sums over all ranks. One rank that has whole rows calls part 2 alone: it then takes the sums itself (`sums` are output),
// the variance about the mean.
//
// Sums over a row are taken in double. So the variance loses digits only by the rounding of its two sums to T: where the
// mean is much larger than the deviation.

#include "pmm/cost/step_plan.hpp"
#include "pmm/product/workspace.hpp"
#include "runtime/arrays/views.hpp"

#include <cstdint>

namespace orthant::pmm {

enum class RowNorm : std::uint8_t { layer, rms };

/// Numbers per row that the ranks of the columns sum: 2, or 1.
[[nodiscard]] constexpr std::int64_t sums_per_row(RowNorm kind) {
  return kind == RowNorm::layer ? 2 : 1;
}

/// Whether this rank's columns are all there are, or part 1 and a sum over ranks came first.
enum class RowParts : std::uint8_t { whole, summed };

struct RowNormSettings {
  RowNorm kind = RowNorm::layer;
  std::int64_t width = 0; // D, columns of all ranks
  double epsilon = 1e-5;
};

/// What the backward pass reads beside x: [rows] each. `mean` is empty for RMSNorm.
template<class T>
struct RowNormState {
  runtime::Vector<T> mean;
  runtime::Vector<T> inverse_deviation; // r
};

/// Part 1: sums(i, :) := (sum_j x_ij, sum_j x_ij^2), or only the latter. sums [rows x sums_per_row]. All functions here
/// enqueue on exec, do not fence, and count their pass. T: float or double.
template<class T>
void sum_row_moments(runtime::DefaultExec const& exec, runtime::PassLedger& passes, RowNorm kind,
                     runtime::Matrix<T> const& x, runtime::Vector<T> const& sums);

/// Part 2: y and the state. `sums` [rows x sums_per_row] hold the sums over all ranks (RowParts::summed), or are not read
/// and may be empty. shift may be empty: none. y may be x.
template<class T>
void apply_row_norm(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                    RowNormSettings const& settings, RowParts parts, runtime::Matrix<T> const& x,
                    runtime::Vector<T> const& sums, runtime::Vector<T> const& scale,
                    runtime::Vector<T> const& shift, RowNormState<T> const& state,
                    runtime::Matrix<T> const& y);

/// Part 1 of the backward pass: sums(i, :) := (s_i, t_i), or only t_i, of this rank's columns.
template<class T>
void sum_row_norm_gradient(runtime::DefaultExec const& exec, runtime::PassLedger& passes, RowNorm kind,
                           runtime::Matrix<T> const& x, runtime::Vector<T> const& scale,
                           RowNormState<T> const& state, runtime::Matrix<T> const& dy,
                           runtime::Vector<T> const& sums);

/// What becomes of the old numbers of dx.
enum class Residual : std::uint8_t { none, added };

/// Part 2: dx := the formula, or dx := dx + it (the gradient that goes round the block); dg and db of this rank's rows, which
/// the caller sums over the ranks of the rows. db may be empty: not wanted. sums [rows x sums_per_row] always: lent if
/// RowParts::whole. dx may be dy. `work` has room for partial sums (reserve_column_sums).
template<class T>
void row_norm_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                       RowNormSettings const& settings, RowParts parts, Residual residual,
                       runtime::Matrix<T> const& x, runtime::Vector<T> const& scale,
                       RowNormState<T> const& state, runtime::Matrix<T> const& dy,
                       runtime::Vector<T> const& sums, runtime::Matrix<T> const& dx,
                       runtime::Vector<T> const& d_scale, runtime::Vector<T> const& d_shift,
                       Workspace<T> const& work);

/// Rows and columns of this rank.
struct RowBlock {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
template<class T>
[[nodiscard]] RowBlock row_block_of(runtime::Matrix<T> const& x) {
  return {static_cast<std::int64_t>(x.extent(0)), static_cast<std::int64_t>(x.extent(1))};
}

/// Lists the passes: parts 1 and 2 if `parts` is summed, else part 2 alone. The sum over ranks between them is the caller's.
void plan_sum_row_moments(StepPlan& step, RowNorm kind, RowBlock const& x);
void plan_apply_row_norm(StepPlan& step, RowNorm kind, RowParts parts, bool has_shift, RowBlock const& x);
void plan_sum_row_norm_gradient(StepPlan& step, RowNorm kind, RowBlock const& x);
void plan_row_norm_backward(StepPlan& step, RowNorm kind, RowParts parts, Residual residual, bool has_shift,
                            RowBlock const& x);

} // namespace orthant::pmm
