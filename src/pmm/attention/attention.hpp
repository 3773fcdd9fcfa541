#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Causal attention of whole sequences and whole heads on one rank, with a streaming softmax, and rotary positions (below).
// For every sequence and head, with d numbers per head, query i and keys j <= i of the same sequence:
//
//   S_ij = q_i . k_j / sqrt(d)      L_i = log sum_j exp(S_ij)      P_ij = exp(S_ij - L_i)      o_i = sum_j M_ij P_ij v_j
//
//   dP_ij = M_ij do_i . v_j         dv_j = sum_i M_ij P_ij do_i    D_i = do_i . o_i
//   dS_ij = P_ij (dP_ij - D_i)      dq_i = sum_j dS_ij k_j / sqrt(d)      dk_j = sum_i dS_ij q_i / sqrt(d)
//
// M is 1 without dropout, otherwise the mask of dropout: 0 with probability p, else 1 / (1 - p). No matrix of sequence x
// sequence numbers is stored: keys are processed in blocks, and a running maximum and sum rescale the partial results. The
// forward pass stores L, one number per token and head, and the backward pass computes P again from it.
//
// There may be fewer heads of keys and values than of queries (GQA), even only one (MQA). Query head h reads key head
// h / (num_heads / num_kv_heads), and the gradients of a key head are summed over its query heads.
//
// Sequences that several ranks share (SequencePart): a rank has the queries of some tokens of each sequence, and the keys and values of all
// tokens, gathered before (context_rows.hpp). The backward pass yields this rank's addends of the gradients of all keys and values.
//
// Packed documents: a query attends only to keys of its own document, j >= i - t_i with t_i the position of its token in the document.
// The arithmetic is that of documents as sequences of their own.
//
// Source: Dao, "FlashAttention-2" (arXiv 2307.08691); Ainslie et al., "GQA" (arXiv 2305.13245).

#include "pmm/cost/step_plan.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/vendor/vendor_attention.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>
#include <optional>

namespace orthant::pmm {

/// Dropout of the probabilities. The mask is keyed by global indices, so that it is the same on every grid: with H heads on
/// all ranks together, element (i, j) of head h is drawn at row token_ids(i) H + h, column j (the position in the sequence or document).
struct AttentionDropout {
  double probability = 0; // in [0, 1); 0 means no mask
  runtime::RandomStream stream{0, runtime::Purpose::dropout};
  runtime::Vector<std::int64_t> token_ids; // [tokens] global numbers of the tokens
  std::int64_t first_head = 0;             // first head of this rank
  std::int64_t num_heads = 0;              // heads of all ranks together
};

/// Queries [tokens x query_columns], keys and values [shape.num_keys() x key_columns], or their gradients. Head h has the columns
/// [h head_dim, (h + 1) head_dim). The panels may be column ranges of one matrix.
template<class T>
struct AttentionOperands {
  Panel<T> q;
  Panel<T> k;
  Panel<T> v;
};

/// out := o [tokens x query_columns], log_sum_exp := L [tokens x heads]. `positions` [tokens]: the position of each token in its document,
/// which begins with 0 and does not reach beyond its sequence; empty: a sequence is one document. If ranks share the sequences, a run may
/// begin at any position that its place allows, and positions must be given. Throws Error if shapes do not fit.
/// `out` must not overlap with the operands. T is float or double. Enqueues on exec; does not fence. Adds one pass to `passes`. Cost:
/// attention_flops(), less with documents. On a device with GemmMath::bf16 and no documents, the vendor's library may compute it
/// (attention_library.hpp). Then the elements of log_sum_exp are in the library's order, and the first call for a shape allocates.
template<class T>
void attention_forward(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                       AttentionShape const& shape, AttentionOperands<T> const& operands,
                       std::type_identity_t<Panel<T>> const& out, runtime::Vector<T> const& log_sum_exp,
                       AttentionDropout const& dropout = {},
                       runtime::Vector<std::int64_t> const& positions = {});

/// Computes all `gradients` from the operands, the results of the forward pass, and do = d_out. `gradients` must not overlap
/// with the arrays that are read. row_terms [tokens x heads] is scratch memory for D. `dropout` and `positions` must equal those of the
/// forward pass. Throws Error if shapes do not fit. The order of sums depends only on the shape. Enqueues on exec; does not fence. Adds
/// one pass to `passes`.
template<class T>
void attention_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                        AttentionShape const& shape, AttentionOperands<T> const& operands,
                        std::type_identity_t<Panel<T>> const& out, runtime::Vector<T> const& log_sum_exp,
                        std::type_identity_t<Panel<T>> const& d_out, AttentionOperands<T> const& gradients,
                        runtime::Vector<T> const& row_terms, AttentionDropout const& dropout = {},
                        runtime::Vector<std::int64_t> const& positions = {});

/// Number of multiplications and additions of the products over pairs j <= i: two products forward, five backward.
/// Exponentials are not counted.
[[nodiscard]] std::int64_t attention_flops(AttentionShape const& shape);
[[nodiscard]] std::int64_t attention_backward_flops(AttentionShape const& shape);

/// Add the pass of attention_forward(), or of attention_backward(), to `step`, with its bytes and flops.
void plan_attention_forward(StepPlan& step, AttentionShape const& shape, bool draws_mask = false);
void plan_attention_backward(StepPlan& step, AttentionShape const& shape, bool draws_mask = false);

// Rotary positions: each head of a token at position t of its sequence is rotated by angles that grow with t. With d numbers
// per head and w_j = base^(-2j / d), j < d / 2, numbers j and j + d / 2 form a pair (the convention of Llama's weight files):
//
//   x'_j         = x_j cos(t w_j) - x_{j+d/2} sin(t w_j)
//   x'_{j+d/2}   = x_{j+d/2} cos(t w_j) + x_j sin(t w_j)
//
// The gradient is rotated back, because the transpose of a rotation is its inverse. Llama 3 rotates more slowly those pairs that turn fewer
// than `high` times within n, the number of positions in its first training: with r = n w_j / (2 pi) turns,
//
//   w_j := w_j / factor for r < low,     w_j ((1 - t) / factor + t), t = (r - low) / (high - low), in between,     w_j for r > high
//
// Sources: Su et al., "RoFormer" (arXiv 2104.09864); Grattafiori et al., "The Llama 3 Herd of Models" (arXiv 2407.21783), with the
// formula of the released program.

struct RotaryScaling {
  double factor = 1;
  double low = 1;  // turns
  double high = 4; // turns
  std::int64_t num_positions = 8192;
  friend bool operator==(RotaryScaling const&, RotaryScaling const&) = default;
};

/// Cosines and sines of all positions of a sequence, computed in double and rounded once. Construct at set-up.
template<class T>
class RotaryTable {
 public:
  /// `sequence`, `head_dim` and `base` must be positive, and `head_dim` even; otherwise throws Error.
  RotaryTable(std::int64_t sequence, std::int64_t head_dim, double base,
              std::optional<RotaryScaling> const& scaling = std::nullopt);

  [[nodiscard]] std::int64_t sequence() const { return sequence_; }
  [[nodiscard]] std::int64_t head_dim() const { return head_dim_; }
  /// [sequence x head_dim]: for each position, the cosines of all pairs, then their sines.
  [[nodiscard]] runtime::Vector<T> const& numbers() const { return numbers_; }

 private:
  std::int64_t sequence_;
  std::int64_t head_dim_;
  runtime::Vector<T> numbers_;
};

enum class Turn : std::uint8_t { forward, backward };

/// Rotates x, or rotates it back (Turn::backward), in place. x [tokens x heads head_dim] must have whole sequences of `sequence`
/// tokens, one after another, and whole heads; `sequence` must not exceed table.sequence(). Otherwise throws Error. `positions` [tokens];
/// empty: they count from 0 in each sequence. Enqueues on exec; does not fence. Adds one pass to `passes`.
template<class T>
void rotate(runtime::DefaultExec const& exec, runtime::PassLedger& passes, RotaryTable<T> const& table,
            std::int64_t sequence, Turn turn, std::type_identity_t<Panel<T>> const& x,
            runtime::Vector<std::int64_t> const& positions = {});

/// Adds the pass of rotate() to `step`.
void plan_rotate(StepPlan& step, std::int64_t num_tokens, std::int64_t num_columns, std::int64_t sequence,
                 std::int64_t head_dim);
/// Adds the array of a RotaryTable to `step`.
void plan_rotary_table(StepPlan& step, std::int64_t sequence, std::int64_t head_dim);

// Attention of one new token per sequence. A cache holds the keys and values of the tokens before it. With d numbers per head, query q of
// the token at position t, and the keys and values j <= t of its sequence:
//
//   S_j = q . k_j / sqrt(d)      P_j = exp(S_j) / sum_i exp(S_i)      o = sum_j P_j v_j
//
// The cache has `capacity` rows per sequence, row j for position j.

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
