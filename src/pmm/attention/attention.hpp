#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Causal attention of whole sequences and whole heads on one rank, with a streaming softmax. For every sequence and head,
// with d numbers per head, query i and keys j <= i of the same sequence:
//
//   S_ij = q_i . k_j / sqrt(d)      L_i = log sum_j exp(S_ij)      P_ij = exp(S_ij - L_i)      o_i = sum_j M_ij P_ij v_j
//
//   dP_ij = M_ij do_i . v_j         dv_j = sum_i M_ij P_ij do_i    D_i = do_i . o_i
//   dS_ij = P_ij (dP_ij - D_i)      dq_i = sum_j dS_ij k_j / sqrt(d)      dk_j = sum_i dS_ij q_i / sqrt(d)
//
// M is 1, or the mask of dropout: 0 with probability p, else 1 / (1 - p). No matrix of S x S numbers is stored: keys come in
// blocks, and a running maximum and sum rescale what has been added up so far. The forward pass keeps one number per token
// and head, L. The backward pass computes P again from it.
//
// There may be fewer heads of keys and values than of queries (GQA; MQA: one). Query head h reads key head h / (num_heads /
// num_kv_heads), and the gradients of a key head are summed over its query heads.
//
// Source: Dao, "FlashAttention-2" (arXiv 2307.08691); Ainslie et al., "GQA" (arXiv 2305.13245).
//
// Rotary positions: each head of a token at place t of its sequence is turned by angles that grow with t. With d numbers per
// head and w_j = base^(-2j / d), j < d / 2, numbers j and j + d / 2 form a pair (the split of Llama's files):
//
//   x'_j         = x_j cos(t w_j) - x_{j+d/2} sin(t w_j)
//   x'_{j+d/2}   = x_{j+d/2} cos(t w_j) + x_j sin(t w_j)
//
// The gradient is turned back: the transpose of a rotation is its inverse.
//
// Source: Su et al., "RoFormer" (arXiv 2104.09864).

#include "pmm/cost/step_plan.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/vendor/vendor_attention.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>

namespace orthant::pmm {

/// Dropout of the probabilities. The mask is keyed by global indices, so that it is the same on every grid: with H heads of
/// all ranks, number (i, j) of head h is drawn at row token_ids(i) H + h, column j (the place in the sequence).
struct AttentionDropout {
  double probability = 0; // 0: no mask; else below 1
  runtime::RandomStream stream{0, runtime::Purpose::dropout};
  runtime::Vector<std::int64_t> token_ids; // [tokens] numbers of the tokens over all ranks
  std::int64_t first_head = 0;             // of this rank
  std::int64_t num_heads = 0;              // of all ranks
};

/// Queries [tokens x query_columns], keys and values [tokens x key_columns], or their gradients. Head h has the columns
/// [h head_dim, (h + 1) head_dim). Panels may be parts of the columns of one matrix.
template<class T>
struct AttentionOperands {
  Panel<T> q;
  Panel<T> k;
  Panel<T> v;
};

/// out := o [tokens x query_columns], log_sum_exp := L [tokens x heads]. Shapes must fit (Error). `out` shares no memory with
/// the operands. T: float or double. Enqueues on exec; does not fence. Counts the pass. Cost: attention_flops(). On a device with
/// GemmMath::bf16 the vendor's library may do it (attention_library.hpp): numbers of log_sum_exp are in its order then, and the
/// first call of a shape allocates.
template<class T>
void attention_forward(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                       AttentionShape const& shape, AttentionOperands<T> const& operands,
                       std::type_identity_t<Panel<T>> const& out, runtime::Vector<T> const& log_sum_exp,
                       AttentionDropout const& dropout = {});

/// Writes all of `gradients` from the operands, the results of the forward pass, and do = d_out; they share no memory with
/// what is read. row_terms [tokens x heads] is lent, for D. Dropout as in the forward pass. Sums are taken in an order that
/// depends on the shape alone. Enqueues on exec; does not fence.
template<class T>
void attention_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                        AttentionShape const& shape, AttentionOperands<T> const& operands,
                        std::type_identity_t<Panel<T>> const& out, runtime::Vector<T> const& log_sum_exp,
                        std::type_identity_t<Panel<T>> const& d_out, AttentionOperands<T> const& gradients,
                        runtime::Vector<T> const& row_terms, AttentionDropout const& dropout = {});

/// Multiplications and additions of the products over pairs j <= i: two products forward, five backward. Exponentials are
/// not counted.
[[nodiscard]] std::int64_t attention_flops(AttentionShape const& shape);
[[nodiscard]] std::int64_t attention_backward_flops(AttentionShape const& shape);

/// Lists the pass of either function: its bytes and flops.
void plan_attention_forward(StepPlan& step, AttentionShape const& shape, bool draws_mask = false);
void plan_attention_backward(StepPlan& step, AttentionShape const& shape, bool draws_mask = false);

/// Cosines and sines of all places of a sequence, computed in double and rounded once. Made at set-up.
template<class T>
class RotaryTable {
 public:
  /// head_dim is even, base positive (Error).
  RotaryTable(std::int64_t sequence, std::int64_t head_dim, double base);

  [[nodiscard]] std::int64_t sequence() const { return sequence_; }
  [[nodiscard]] std::int64_t head_dim() const { return head_dim_; }
  /// [sequence x head_dim]: of each place the cosines of all pairs, then their sines.
  [[nodiscard]] runtime::Vector<T> const& numbers() const { return numbers_; }

 private:
  std::int64_t sequence_;
  std::int64_t head_dim_;
  runtime::Vector<T> numbers_;
};

enum class Turn : std::uint8_t { forward, backward };

/// x := its rotation, or the rotation back, in place. x [tokens x heads head_dim], whole sequences of `sequence` tokens one
/// after another, which the table covers (Error); any number of heads. Enqueues on exec; does not fence. Counts the pass.
template<class T>
void rotate(runtime::DefaultExec const& exec, runtime::PassLedger& passes, RotaryTable<T> const& table,
            std::int64_t sequence, Turn turn, std::type_identity_t<Panel<T>> const& x);

/// Lists the pass.
void plan_rotate(StepPlan& step, std::int64_t num_tokens, std::int64_t num_columns, std::int64_t sequence,
                 std::int64_t head_dim);
/// Lists the table.
void plan_rotary_table(StepPlan& step, std::int64_t sequence, std::int64_t head_dim);

} // namespace orthant::pmm
