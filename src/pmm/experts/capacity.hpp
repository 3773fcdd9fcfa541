#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which choices an expert of limited capacity takes. All first choices of a pass come before all second ones, each in the
// order of the tokens over all ranks, so the number of ranks does not change who is dropped:
//
//   slot of choice (i, k) at expert e := sum_{j < k} n_j(e) + #{token t before i with e_tk = e}      kept if < capacity
//
// n_k(e) tokens have e as their k-th choice. One exclusive scan of K E counts and one all_reduce.
//
// Source: Lepikhin et al., GShard (arXiv 2006.16668), algorithm 1.

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::runtime {
class Communicator;
}

namespace orthant::pmm {

/// ceil(factor * num_choices * num_tokens / num_experts), at least 1.
[[nodiscard]] std::int64_t capacity_of(double factor, std::int64_t num_tokens, std::int64_t num_choices,
                                       std::int64_t num_experts);

/// Choices of all ranks, [choices x experts].
struct ExpertCounts {
  std::int64_t num_experts = 0;
  std::vector<std::int64_t> before; // on the ranks before this one
  std::vector<std::int64_t> total;  // on all ranks

  /// Of an expert, first choices and others.
  [[nodiscard]] std::int64_t chosen(std::int64_t expert) const;
  /// Choices of all ranks that have no slot.
  [[nodiscard]] std::int64_t num_beyond(std::int64_t capacity) const;
};

/// `experts` [tokens x num_choices] of this rank. `ranks`: all that have tokens of the pass, in the order of the tokens. `needs_order`:
/// whether `before` is asked for; else it is empty. Collective over ranks: one all_reduce, and one exclusive_scan if it is.
[[nodiscard]] ExpertCounts count_choices(runtime::Communicator const& ranks,
                                         std::span<std::int32_t const> experts, std::int64_t num_choices,
                                         std::int64_t num_experts, bool needs_order);

/// Sets to -1 what has no slot. Returns how many choices of this rank that are, for tests.
std::int64_t drop_beyond(std::int64_t capacity, ExpertCounts const& counts, std::span<std::int32_t> experts,
                         std::int64_t num_choices);

} // namespace orthant::pmm
