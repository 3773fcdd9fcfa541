#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Attention of one new token per sequence. A cache holds the keys and values of the tokens before it. With d numbers per head, query q of
// the token at position t, and the keys and values j <= t of its sequence:
//
//   S_j = q . k_j / sqrt(d)      P_j = exp(S_j) / sum_i exp(S_i)      o = sum_j P_j v_j
//
// The cache has `capacity` rows per sequence, row j for position j.

#include "pmm/attention/attention.hpp"

namespace orthant::pmm {

/// Rows of the cache from position starts(s) of each sequence s on := its `sequence` rows of `from`. Both panels must have the same columns.
/// Enqueues on exec. Adds one pass to `passes`.
template<class T>
void append_rows(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                 runtime::Vector<std::int64_t> const& starts, std::int64_t sequence, std::int64_t capacity,
                 Panel<T> const& from, std::type_identity_t<Panel<T>> const& cache);

/// out := o. operands.q and `out` have a row per sequence, keys and values shape.sequence rows, which is the capacity. `positions`:
/// position of the new token in each sequence. `scores`: scratch memory, one number per sequence, head and position. Enqueues on exec. Adds
/// one pass to `passes`.
template<class T>
void attend_cached(runtime::DefaultExec const& exec, runtime::PassLedger& passes, AttentionShape const& shape,
                   AttentionOperands<T> const& operands, runtime::Vector<std::int64_t> const& positions,
                   std::type_identity_t<Panel<T>> const& out, runtime::Vector<T> const& scores);

} // namespace orthant::pmm
