#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Attention of a device through the vendor's library (vendor/vendor_attention.hpp), where products of fp32 are rounded to bf16
// anyway (GemmMath::bf16): q, k, v and do are rounded into rows of the library's, its results widened. Numbers of log_sum_exp
// are the library's then, in its order; only its backward pass reads them.
//
//   |o - o'| <= c u max_j |v_j|       u = 2^-8; measured: 0.005 for v within 1.5
//
// Device builds only.

#include "pmm/attention/attention.hpp"

namespace orthant::pmm::detail {

/// Whether the library did it: not in another arithmetic than bf16, with dropout, or where there is none for the shape. The first call
/// of a shape takes seconds and allocates: 4 (q + k) numbers of 16 bits a token, q and k columns of queries and of keys, and
/// the library's workspace. Later ones enqueue on exec and do not fence.
[[nodiscard]] bool attend_by_library(runtime::DefaultExec const& exec, AttentionShape const& shape,
                                     AttentionOperands<float> const& operands, Panel<float> const& out,
                                     runtime::Vector<float> const& log_sum_exp,
                                     AttentionDropout const& dropout);
[[nodiscard]] bool
attend_backward_by_library(runtime::DefaultExec const& exec, AttentionShape const& shape,
                           AttentionOperands<float> const& operands, Panel<float> const& out,
                           runtime::Vector<float> const& log_sum_exp, Panel<float> const& d_out,
                           AttentionOperands<float> const& gradients, AttentionDropout const& dropout);

} // namespace orthant::pmm::detail
