#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// LayerNorm and RMSNorm of rows whose columns are partitioned over ranks. A row has D numbers over all ranks; g and b are the
// scale and the shift, one number per column.
//
//   LayerNorm   m_i = 1/D sum_j x_ij    r_i = 1 / sqrt(1/D sum_j x_ij^2 - m_i^2 + eps)    y_ij = g_j n_ij + b_j,  n_ij = (x_ij - m_i) r_i
//   RMSNorm     m_i = 0                 r_i = 1 / sqrt(1/D sum_j x_ij^2 + eps)            y_ij = g_j n_ij,        n_ij = x_ij r_i
//
//   s_i = sum_j dy_ij g_j     t_i = sum_j dy_ij g_j n_ij      dx_ij = r_i (dy_ij g_j - (s_i + n_ij t_i) / D)
//   dg_j = sum_i dy_ij n_ij   db_j = sum_i dy_ij              (RMSNorm: s_i = 0, no b)
//
// Each direction has two parts. Part 1 forms the row sums over this rank's columns, packed in one array of 2 numbers per row
// (RMSNorm: 1). The caller sums the array over the ranks of the columns. Part 2 reads the sums. If a rank has whole rows, only
// part 2 is called. It then forms the sums itself, and the variance from the distances to the mean.
//
// Sums over a row are formed in double and stored in T. So the variance of part 2 loses digits only if the mean is much
// larger than the deviation.

#include "pmm/cost/step_plan.hpp"
#include "pmm/product/workspace.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstdint>

namespace orthant::pmm {

enum class RowNorm : std::uint8_t { layer, rms };

/// Number of sums per row: 2 for LayerNorm, 1 for RMSNorm.
[[nodiscard]] constexpr std::int64_t sums_per_row(RowNorm kind) {
  return kind == RowNorm::layer ? 2 : 1;
}

/// whole: this rank has whole rows. summed: part 1 and a sum over the ranks of the columns have run. kept, for apply_row_norm() alone: the
/// state is that of an earlier call with the same x, and is read instead of the sums; y gets the same bits again.
enum class RowParts : std::uint8_t { whole, summed, kept };

struct RowNormSettings {
  RowNorm kind = RowNorm::layer;
  std::int64_t width = 0; // D, columns of all ranks together
  double epsilon = 1e-5;
};

/// State that the forward pass writes for the backward pass, [rows] each. `mean` is empty for RMSNorm.
template<class T>
struct RowNormState {
  runtime::Vector<T> mean;
  runtime::Vector<T> inverse_deviation; // r
};

/// Part 1: sums(i, :) := (sum_j x_ij, sum_j x_ij^2); only sum_j x_ij^2 for RMSNorm. sums is [rows x sums_per_row]. All functions
/// of this header enqueue on exec, do not fence, and add one pass to `passes`. They throw Error if sizes do not fit. T is float,
/// double or a 16-bit number; all but matrices is then fp32.
template<class T>
void sum_row_moments(runtime::DefaultExec const& exec, runtime::PassLedger& passes, RowNorm kind,
                     runtime::Matrix<T> const& x, runtime::Vector<runtime::SumOf<T>> const& sums);

/// Part 2: writes y, and the state unless it is kept. `sums` [rows x sums_per_row] must hold the sums over all ranks if RowParts::summed; otherwise
/// it is not read and may be empty. `shift` is empty if there is none. y may be x.
template<class T>
void apply_row_norm(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                    RowNormSettings const& settings, RowParts parts, runtime::Matrix<T> const& x,
                    runtime::Vector<runtime::SumOf<T>> const& sums,
                    runtime::Vector<runtime::SumOf<T>> const& scale,
                    runtime::Vector<runtime::SumOf<T>> const& shift,
                    RowNormState<runtime::SumOf<T>> const& state, runtime::Matrix<T> const& y);

/// Part 1 of the backward pass: sums(i, :) := (s_i, t_i) over this rank's columns; only t_i for RMSNorm.
template<class T>
void sum_row_norm_gradient(runtime::DefaultExec const& exec, runtime::PassLedger& passes, RowNorm kind,
                           runtime::Matrix<T> const& x, runtime::Vector<runtime::SumOf<T>> const& scale,
                           RowNormState<runtime::SumOf<T>> const& state, runtime::Matrix<T> const& dy,
                           runtime::Vector<runtime::SumOf<T>> const& sums);

/// Whether the gradient of x overwrites dx (none) or is added to it (added).
enum class Residual : std::uint8_t { none, added };

/// Part 2 of the backward pass. Writes dx, or adds to dx, which then holds the gradient of the residual connection. Also writes dg
/// and db over this rank's rows, which the caller must sum over the ranks of the rows. d_shift (db) is empty if not wanted.
/// `sums` is always [rows x sums_per_row]; it is scratch memory if RowParts::whole. dx may be dy. `work` must have the buffers of
/// reserve_column_sums().
template<class T>
void row_norm_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                       RowNormSettings const& settings, RowParts parts, Residual residual,
                       runtime::Matrix<T> const& x, runtime::Vector<runtime::SumOf<T>> const& scale,
                       RowNormState<runtime::SumOf<T>> const& state, runtime::Matrix<T> const& dy,
                       runtime::Vector<runtime::SumOf<T>> const& sums, runtime::Matrix<T> const& dx,
                       runtime::Vector<runtime::SumOf<T>> const& d_scale,
                       runtime::Vector<runtime::SumOf<T>> const& d_shift,
                       Workspace<runtime::SumOf<T>> const& work);

/// Numbers of rows and columns of this rank.
struct RowBlock {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
template<class T>
[[nodiscard]] RowBlock row_block_of(runtime::Matrix<T> const& x) {
  return {static_cast<std::int64_t>(x.extent(0)), static_cast<std::int64_t>(x.extent(1))};
}

/// Add one pass to `step`. With RowParts::summed, parts 1 and 2 must both be added; with RowParts::whole, only part 2. The caller
/// adds the sum over ranks between them. `format`: format of the matrices' elements.
void plan_sum_row_moments(StepPlan& step, RowNorm kind, RowBlock const& x, Wire format = Wire::native);
void plan_apply_row_norm(StepPlan& step, RowNorm kind, RowParts parts, bool has_shift, RowBlock const& x,
                         Wire format = Wire::native);
void plan_sum_row_norm_gradient(StepPlan& step, RowNorm kind, RowBlock const& x, Wire format = Wire::native);
void plan_row_norm_backward(StepPlan& step, RowNorm kind, RowParts parts, Residual residual, bool has_shift,
                            RowBlock const& x, Wire format = Wire::native);

} // namespace orthant::pmm
