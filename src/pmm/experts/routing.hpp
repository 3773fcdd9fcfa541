#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which experts a token goes to, and with which weights. A row of logits l_i per token, softmax in the scalar of training:
//
//   p_i    := softmax(l_i)
//   e_ik   := the expert of the k-th largest l_ie (+ noise), k = 1 .. K; of equal ones the one with the lower number
//   w_i1   := p_i,e_i1                                   K = 1
//   w_ik   := p_i,e_ik / sum of those that are kept      K > 1
//
// The gradient by the logits has that by the weights, and those of two losses of a pass of N tokens, f_e the share of
// expert e of all choices, dropped or not:
//
//   balance loss    E sum_e f_e mean_i p_ie              gradient by p alone
//   z-loss          mean_i (log sum_e exp l_ie)^2
//
// Source: Fedus et al., Switch Transformer (arXiv 2101.03961), section 2; Lepikhin et al., GShard (arXiv 2006.16668); Zoph et
// al., ST-MoE (arXiv 2202.08906), section 3.
//
// Which choices an expert of limited capacity takes. All first choices of a pass come before all second ones, each in the
// order of the tokens over all ranks, so the number of ranks does not change who is dropped:
//
//   slot of choice (i, k) at expert e := sum_{j < k} n_j(e) + #{token t before i with e_tk = e}      kept if < capacity
//
// n_k(e) tokens have e as their k-th choice. One exclusive scan of K E counts and one all_reduce.
//
// Source: Lepikhin et al., GShard (arXiv 2006.16668), algorithm 1.

#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::pmm {

/// Memory of a router for one pass. Shares the numbers when copied.
template<class T>
struct Routing {
  runtime::Matrix<T> probabilities;      // [rows x experts]
  runtime::Vector<T> log_sum_exp;        // [rows]
  runtime::Vector<std::int32_t> experts; // [rows x choices]; -1: dropped
  runtime::Vector<T> weights;            // [rows x choices]; 0: dropped

  /// For that many rows. Labels begin with `label`.
  Routing(std::string const& label, std::int64_t num_rows, std::int64_t num_experts,
          std::int64_t num_choices);
  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(log_sum_exp.extent(0)); }
  [[nodiscard]] std::int64_t num_experts() const {
    return static_cast<std::int64_t>(probabilities.extent(1));
  }
  [[nodiscard]] std::int64_t num_choices() const {
    return num_rows() == 0 ? 0 : static_cast<std::int64_t>(experts.extent(0)) / num_rows();
  }
};

/// Normal noise of that deviation on the logits, for the choice alone, keyed by token and expert. 0: none.
struct RouterNoise {
  double deviation = 0;
  runtime::RandomStream stream{0, runtime::Purpose::routing};
  std::int64_t first_token = 0; // the number of row 0 over all ranks
};

/// Probabilities and experts from logits [rows x experts]. At most num_experts choices (Error). Where a
/// logit is no number, only the range of the choices is certain. Enqueues on exec, counts its pass, and does not fence; so do the others here.
template<class T>
void choose_experts(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                    runtime::Matrix<T> const& logits, RouterNoise const& noise, Routing<T> const& routing);

/// Weights from probabilities and experts, some of which are dropped now.
template<class T>
void weigh_experts(runtime::DefaultExec const& exec, runtime::PassLedger& passes, Routing<T> const& routing);

/// What the losses of a router add to the gradient of a pass.
template<class T>
struct RouterLosses {
  double balance = 0;        // coefficient
  double z = 0;              // coefficient
  double num_tokens = 1;     // N, over all ranks
  runtime::Vector<T> shares; // [experts] f_e
};

/// The gradient by the logits from that by the weights [rows x choices].
template<class T>
void router_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes, Routing<T> const& routing,
                     runtime::Vector<T> const& weight_gradient, RouterLosses<T> const& losses,
                     runtime::Matrix<T> const& logits_gradient);

/// List the passes, and the arrays of a Routing with that label.
void plan_choose_experts(StepPlan& step, std::int64_t num_rows, std::int64_t num_experts,
                         std::int64_t num_choices);
void plan_weigh_experts(StepPlan& step, std::int64_t num_rows, std::int64_t num_choices);
void plan_router_backward(StepPlan& step, std::int64_t num_rows, std::int64_t num_experts,
                          std::int64_t num_choices);
void plan_routing(StepPlan& step, std::string const& label, std::int64_t num_rows, std::int64_t num_experts,
                  std::int64_t num_choices);

extern template struct Routing<float>;
extern template struct Routing<double>;

} // namespace orthant::pmm

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
