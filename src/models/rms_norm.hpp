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
// training, never in 16 bits. The backward pass draws the mask again: what was kept is not to be seen in
// d + F. eps = 1e-6: a row of zeros stays zero.

#include "models/activation.hpp"
#include "pmm/dist_vector.hpp"

namespace orthant::models {

inline constexpr double rms_epsilon = 1e-6;

/// Whether a result replaces what is there or is added to it.
enum class Write : std::uint8_t { replace, add };

/// result := d, or += d; inverse_rms := r. z and result lie alike, replicated, and share no memory; `scale`
/// lies as their columns do (Error); inverse_rms at least as long as the block has rows. Collective over the
/// column axis: one all_reduce of a number a row. Enqueues on exec.
template<class T>
void rms_norm_relu_dropout(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                           pmm::DistVector<T> const& scale, Dropout const& dropout, BlockKeys const& keys,
                           runtime::Vector<T> const& inverse_rms, pmm::DistMatrix<T> const& result,
                           Write write);

/// gradient, which holds dd, := dz, and scale_gradient := dg, for the z, inverse_rms and dropout of the
/// forward pass; row_sums is lent, at least as long as inverse_rms. Collective over the column axis (a number
/// a row) and over the row axis (a number a column). Enqueues on exec.
template<class T>
void rms_norm_relu_dropout_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                                    pmm::DistVector<T> const& scale, Dropout const& dropout,
                                    BlockKeys const& keys, runtime::Vector<T> const& inverse_rms,
                                    runtime::Vector<T> const& row_sums, pmm::DistMatrix<T> const& gradient,
                                    pmm::DistVector<T> const& scale_gradient);

} // namespace orthant::models
