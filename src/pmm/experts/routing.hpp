#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Router of a mixture of experts: the experts of each token, their weights, the backward pass, and the limit of an expert's
// capacity (below). With a row of logits l_i per token and softmax in the scalar type of training:
//
//   p_i    := softmax(l_i)
//   e_ik   := the expert of the k-th largest l_ie (+ noise), k = 1 .. K; ties: the lower index
//   w_ik   := s p_i,e_ik                                        K = 1, or weights that are not normalized
//   w_ik   := s p_i,e_ik / sum of the p of the kept choices     K > 1
//
// with a constant s, by default 1.
//
// With biases b, which are not trained, the gates are sigmoids, and the choice alone is biased (Wang et al., arXiv 2408.15664):
//
//   p_i    := sigmoid(l_i)
//   e_ik   := the expert of the k-th largest p_ie + b_e (+ noise)          w_ik as above
//
// The gradient by the logits is the sum of the gradient through the weights and of the gradients of two losses. For N tokens,
// E experts, and f_e the share of expert e in all choices, dropped or not:
//
//   balance loss    E sum_e f_e mean_i p_ie              f_e is treated as a constant
//   z-loss          mean_i (log sum_e exp l_ie)^2
//
// With sigmoid gates there is a balance loss of each sequence of T tokens instead, of the gates without biases (DeepSeek-V3, arXiv
// 2412.19437, equations 17 to 20), as a mean over the sequences:
//
//   sum_e f_e P_e      f_e = E / (K T) #{t: e is among the K largest p_te}      P_e = mean_t p_te / sum_j p_tj
//
// Source: Fedus et al., Switch Transformer (arXiv 2101.03961), section 2; Lepikhin et al., GShard (arXiv 2006.16668); Zoph et
// al., ST-MoE (arXiv 2202.08906), section 3.

#include "pmm/cost/step_plan.hpp"
#include "pmm/vendor/vendor_attention.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::pmm {

/// Memory of a router for one pass. A copy shares the arrays.
template<class T>
struct Routing {
  runtime::Matrix<T> probabilities;      // [rows x experts]
  runtime::Vector<T> log_sum_exp;        // [rows]
  runtime::Vector<std::int32_t> experts; // [rows x choices]; -1 if dropped
  runtime::Vector<T> weights;            // [rows x choices]; 0 if dropped
  bool normalizes = true;                // with more than one choice
  double scale = 1;                      // s
  runtime::Vector<T> biases;             // [experts], of another owner; empty: softmax gates

  /// Allocates the arrays; their labels begin with `label`.
  Routing(std::string const& label, std::int64_t num_rows, std::int64_t num_experts, std::int64_t num_choices,
          bool normalizes_weights = true);
  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(log_sum_exp.extent(0)); }
  [[nodiscard]] std::int64_t num_experts() const {
    return static_cast<std::int64_t>(probabilities.extent(1));
  }
  [[nodiscard]] std::int64_t num_choices() const {
    return num_rows() == 0 ? 0 : static_cast<std::int64_t>(experts.extent(0)) / num_rows();
  }
};

/// Normal noise that is added to the logits for the choice of experts only, keyed by token and expert.
struct RouterNoise {
  double deviation = 0; // 0 means no noise
  runtime::RandomStream stream{0, runtime::Purpose::routing};
  std::int64_t first_token = 0; // global number of the first token of the sequence of row 0
  SequencePart tokens{1};       // tokens of each sequence that are rows
};

/// Computes probabilities and experts from logits [rows x experts]. Throws Error if sizes do not fit, or if there are more choices
/// than experts. If a logit is NaN, the chosen experts are valid indices but otherwise arbitrary. choose_experts(),
/// weigh_experts() and router_backward() enqueue on exec, do not fence, and add one pass to `passes`.
template<class T>
void choose_experts(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                    runtime::Matrix<T> const& logits, RouterNoise const& noise, Routing<T> const& routing);

/// Computes the weights from probabilities and experts, of which some may be dropped (-1).
template<class T>
void weigh_experts(runtime::DefaultExec const& exec, runtime::PassLedger& passes, Routing<T> const& routing);

/// Coefficients of the losses of a router, for their gradients.
template<class T>
struct RouterLosses {
  double balance = 0;        // coefficient of the balance loss
  double z = 0;              // coefficient of the z-loss
  double num_tokens = 1;     // N, over all ranks
  runtime::Vector<T> shares; // [experts] f_e
  // Balance loss of the sequences; sigmoid gates only. The rows must be whole sequences.
  double of_sequences = 0; // its coefficient
  std::int64_t sequence = 1;
  runtime::Vector<std::int32_t>
      sequence_counts{}; // [sequences x experts] scratch memory, if of_sequences > 0
};

/// targets := factor (biases + step sign(1 / E - f_e)), with the shares f_e of E experts in all choices: an expert that is chosen too
/// rarely gets a larger bias. Adds one pass to `passes`. Enqueues on exec; does not fence.
template<class T>
void move_biases(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                 runtime::Vector<T> const& biases, runtime::Vector<T> const& shares, double step,
                 double factor, runtime::Vector<T> const& targets);

/// logits_gradient := the gradient by the logits, from weight_gradient [rows x choices], the gradient by the weights, and the
/// losses.
template<class T>
void router_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes, Routing<T> const& routing,
                     runtime::Vector<T> const& weight_gradient, RouterLosses<T> const& losses,
                     runtime::Matrix<T> const& logits_gradient);

/// Add the passes of these functions, and the arrays of a Routing with `label`, to `step`.
void plan_choose_experts(StepPlan& step, std::int64_t num_rows, std::int64_t num_experts,
                         std::int64_t num_choices);
void plan_move_biases(StepPlan& step, std::int64_t num_experts);
void plan_weigh_experts(StepPlan& step, std::int64_t num_rows, std::int64_t num_choices);
/// `balances_sequences`: of_sequences > 0.
void plan_router_backward(StepPlan& step, std::int64_t num_rows, std::int64_t num_experts,
                          std::int64_t num_choices, bool balances_sequences = false);
void plan_routing(StepPlan& step, std::string const& label, std::int64_t num_rows, std::int64_t num_experts,
                  std::int64_t num_choices);

extern template struct Routing<float>;
extern template struct Routing<double>;

} // namespace orthant::pmm

namespace orthant::runtime {
class Communicator;
}

namespace orthant::pmm {

// Choices that an expert of limited capacity keeps. All first choices of a pass come before all second ones, each in the
// order of the tokens over all ranks, so the dropped choices do not depend on the number of ranks. If n_k(e) tokens have e as
// their k-th choice:
//
//   slot of choice (i, k) at expert e := sum_{j < k} n_j(e) + #{token t before i with e_tk = e}      kept if < capacity
//
// Cost: one exclusive scan of K E counts and one all_reduce. Source: Lepikhin et al., GShard (arXiv 2006.16668), algorithm 1.

/// Capacity of an expert: ceil(factor * num_choices * num_tokens / num_experts), at least 1 and at most num_tokens.
[[nodiscard]] std::int64_t capacity_of(double factor, std::int64_t num_tokens, std::int64_t num_choices,
                                       std::int64_t num_experts);

/// Numbers n_k(e) of choices, [choices x experts].
struct ExpertCounts {
  std::int64_t num_experts = 0;
  std::vector<std::int64_t> before; // on the ranks before this one; may be empty
  std::vector<std::int64_t> total;  // on all ranks

  /// Number of choices of an expert on all ranks, of any k.
  [[nodiscard]] std::int64_t chosen(std::int64_t expert) const;
  /// Number of choices on all ranks that have no slot.
  [[nodiscard]] std::int64_t num_beyond(std::int64_t capacity) const;
};

/// Counts the choices `experts` [tokens x num_choices] of all ranks; none may be -1. `ranks` must contain all ranks that have tokens
/// of the pass, in the order of the tokens. `before` is computed only if `needs_order`. Collective over `ranks`: one all_reduce, and
/// one exclusive_scan if `needs_order`.
[[nodiscard]] ExpertCounts count_choices(runtime::Communicator const& ranks,
                                         std::span<std::int32_t const> experts, std::int64_t num_choices,
                                         std::int64_t num_experts, bool needs_order);

/// Sets the choices of this rank that have no slot to -1, and returns their number. `counts` must have been made with
/// `needs_order`.
std::int64_t drop_beyond(std::int64_t capacity, ExpertCounts const& counts, std::span<std::int32_t> experts,
                         std::int64_t num_choices);

} // namespace orthant::pmm
