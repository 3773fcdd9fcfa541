#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Attention on a device by the vendor's library (vendor/vendor_attention.hpp). It is used with GemmMath::bf16, which rounds
// operands of fp32 products to bf16 anyway: q, k, v and do are rounded into arrays of the library's layout, and its results are
// widened. The elements of log_sum_exp are then in the library's order; only the library's backward pass reads them.
//
//   |error| <= 4 u max |result|       u = 2^-8, for o and for each gradient (a bound of the tests, not a proof)
//
// Device builds only.

#include "pmm/attention/attention.hpp"

namespace orthant::pmm::detail {

/// Compute attention, or its backward pass, by the library, and return true. Return false and do nothing if the arithmetic is
/// not bf16, with dropout, if the library does not support the shape, or if log_sum_exp is not aligned to 16 bytes. The first
/// call for a shape takes seconds and allocates 4 (q + k) 16-bit numbers per token, where q and k are the columns of queries
/// and of keys, and the library's workspace. Later calls enqueue on exec and do not fence.
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
