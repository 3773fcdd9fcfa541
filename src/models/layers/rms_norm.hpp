#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// RMSNorm with a learnable scale (Zhang & Sennrich, arXiv 1910.07467), fused with ReLU and dropout. Z[r,c],
// D features, a mask M that is 0 with probability p and else 1 / (1 - p):
//
//   r_i = 1 / sqrt(1/D sum_c z_ij^2 + eps)        n_ij = r_i z_ij g_j        d_ij = M max(n_ij, 0)
//
//   dn_ij = M dd_ij where n_ij > 0, else 0        t_i = sum_c dn_ij g_j r_i z_ij        dg_j = sum_r dn_ij
//   r_i z_ij dz_ij = r_i (dn_ij g_j - r_i z_ij t_i / D)
//
// Sums over a row are reduced over the column axis, those over a column over the row axis, in the scalar of
// training, never in 16 bits. Which elements passed is kept, a bit each: it is not to be seen in d + F, and
// drawing the mask again costs more. Z, d and their gradients may hold 16-bit numbers; all else is
// fp32 then. eps = 1e-6: a row of zeros stays zero.

#include "models/layers/activation.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"

namespace orthant::models {

inline constexpr double rms_epsilon = 1e-6;

/// What the backward pass reads beside z; of a block of that many rows and columns, or longer.
template<class T>
struct RmsNormState {
  runtime::Vector<T> inverse_rms;        // [rows] r
  runtime::Vector<std::uint32_t> passed; // [rows x words_of(columns)] bit j mod 32 of word j / 32: M n_ij > 0

  [[nodiscard]] static std::int64_t words_of(std::int64_t num_columns) { return (num_columns + 31) / 32; }
};

/// result := d, or addend + d in the same pass; fills `state`. `addend` may be null: none, or the result. All lie as z,
/// replicated; z and result share no memory; `scale` lies as their columns do (Error). Collective over the column axis:
/// one all_reduce of a number per row. Enqueues on exec.
template<class T>
void rms_norm_relu_dropout(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                           pmm::DistVector<runtime::SumOf<T>> const& scale, Dropout const& dropout,
                           BlockKeys const& keys, RmsNormState<runtime::SumOf<T>> const& state,
                           pmm::DistMatrix<T> const* addend, pmm::DistMatrix<T> const& result);

/// z_gradient := dz from gradient, which holds dd, and scale_gradient := dg, for the z, state and probability
/// of dropout of the forward pass. z_gradient may be the gradient. row_sums is lent, a number per row; `work`
/// has room for partial sums of z's columns (reserve_column_sums). dg is that of this rank's rows: the caller
/// sums it over the row axis. Collective over the column axis (a number per row). Enqueues on exec.
template<class T>
void rms_norm_relu_dropout_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                                    pmm::DistVector<runtime::SumOf<T>> const& scale, double probability,
                                    RmsNormState<runtime::SumOf<T>> const& state,
                                    runtime::Vector<runtime::SumOf<T>> const& row_sums,
                                    pmm::DistMatrix<T> const& gradient, pmm::DistMatrix<T> const& z_gradient,
                                    pmm::DistVector<runtime::SumOf<T>> const& scale_gradient,
                                    pmm::Workspace<runtime::SumOf<T>> const& work);

/// Lists the passes and the collective of either function, for a z of that placement. If one rank has whole rows,
/// the sums over a row are taken in the pass that uses them. `format`: of the matrices' numbers.
void plan_rms_norm(pmm::StepPlan& step, pmm::Placement const& z, bool draws_mask, bool has_addend,
                   runtime::Wire format = runtime::Wire::native);
void plan_rms_norm_backward(pmm::StepPlan& step, pmm::Placement const& z,
                            runtime::Wire format = runtime::Wire::native);

} // namespace orthant::models
