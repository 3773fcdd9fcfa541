#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Attention of a device through the vendor's library (vendor/vendor_attention.hpp), where operands of fp32 products are
// rounded to bf16 anyway (GemmMath::bf16): q, k, v and do are rounded into arrays of the library's layout, and its results
// are widened. The numbers of log_sum_exp are in the library's order then; only its backward pass reads them.
//
//   |error| <= 4 u max |result|       u = 2^-8, for o and for each gradient (a bound of the tests, not a proof)
//
// Device builds only.

#include "pmm/attention/attention.hpp"

namespace orthant::pmm::detail {

/// Whether the library did it. It does not in another arithmetic than bf16, with dropout, where it has nothing for the
/// shape, or where log_sum_exp does not begin at a multiple of 16 bytes. The first call of a shape takes seconds and
/// allocates: for each token 4 (q + k) numbers of 16 bits, where q and k are the columns of queries and of keys, and the
/// library's workspace. Later calls enqueue on exec and do not fence.
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
