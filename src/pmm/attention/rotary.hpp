#pragma once
// SPDX-License-Identifier: Apache-2.0
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

#include <cstdint>

namespace orthant::pmm {

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
