#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// RMSNorm with a trained scale g (Zhang & Sennrich, arXiv 1910.07467), fused with ReLU and dropout. Z[r,c] has D features. The mask M is 0
// with probability p, otherwise 1 / (1 - p):
//
//   r_i = 1 / sqrt(1/D sum_c z_ij^2 + eps)        n_ij = r_i z_ij g_j        d_ij = M max(n_ij, 0)
//
//   dn_ij = M dd_ij where n_ij > 0, else 0        t_i = sum_c dn_ij g_j r_i z_ij        dg_j = sum_r dn_ij
//   r_i z_ij dz_ij = r_i (dn_ij g_j - r_i z_ij t_i / D)
//
// Sums over a row are reduced over the column axis, sums over a column over the row axis, in the scalar type of training, never in
// 16 bits. One bit per element records whether it passed: with an addend F the result does not show it, and drawing the mask again
// costs more. Z, d and their gradients may have 16-bit elements; all else is then fp32. eps = 1e-6: a row of zeros stays zero.

#include "models/layers/activation.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"

namespace orthant::models {

inline constexpr double rms_epsilon = 1e-6;

/// Data for the backward pass besides z. Sizes are those of a block of z, or larger.
template<class T>
struct RmsNormState {
  runtime::Vector<T> inverse_rms;        // [rows] r
  runtime::Vector<std::uint32_t> passed; // [rows x words_of(columns)] bit j mod 32 of word j / 32: M n_ij > 0

  [[nodiscard]] static std::int64_t words_of(std::int64_t num_columns) { return (num_columns + 31) / 32; }
};

/// result := d, or addend + d, in the same pass; fills `state`. `addend` may be null (no addend) or point to the result. Matrices must
/// be replicated over the third axis and have the placement of z; `scale` must be placed as their columns; z and result must not share
/// memory. Otherwise throws Error. Collective over the column axis: one all_reduce of one number per row. Enqueues on exec.
template<class T>
void rms_norm_relu_dropout(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                           pmm::DistVector<runtime::SumOf<T>> const& scale, Dropout const& dropout,
                           BlockKeys const& keys, RmsNormState<runtime::SumOf<T>> const& state,
                           pmm::DistMatrix<T> const* addend, pmm::DistMatrix<T> const& result);

/// z_gradient := dz and scale_gradient := dg, from `gradient`, which holds dd, and from z, state and dropout probability of the
/// forward pass. z_gradient may be `gradient`. `row_sums` is borrowed memory with one number per row; `work` must have space for
/// partial sums of z's columns (reserve_column_sums). dg is a sum over this rank's rows; the caller sums it over the row axis.
/// Collective over the column axis (one number per row). Enqueues on exec.
template<class T>
void rms_norm_relu_dropout_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                                    pmm::DistVector<runtime::SumOf<T>> const& scale, double probability,
                                    RmsNormState<runtime::SumOf<T>> const& state,
                                    runtime::Vector<runtime::SumOf<T>> const& row_sums,
                                    pmm::DistMatrix<T> const& gradient, pmm::DistMatrix<T> const& z_gradient,
                                    pmm::DistVector<runtime::SumOf<T>> const& scale_gradient,
                                    pmm::Workspace<runtime::SumOf<T>> const& work);

/// List the passes and the collective of either function for a z with this placement. If a rank has whole rows, the pass that uses the sums
/// over a row also computes them. `format`: format of the matrices' elements.
void plan_rms_norm(pmm::StepPlan& step, pmm::Placement const& z, bool draws_mask, bool has_addend,
                   runtime::Wire format = runtime::Wire::native);
void plan_rms_norm_backward(pmm::StepPlan& step, pmm::Placement const& z,
                            runtime::Wire format = runtime::Wire::native);

} // namespace orthant::models
