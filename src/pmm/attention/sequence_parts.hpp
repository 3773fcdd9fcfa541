#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Rows of sequences that C ranks share (SequencePart): the order in which an all_gather yields them, and the order of the tokens.
//
//   by part    [C x sequences x tokens of a rank]    the rows of rank 0, then those of rank 1, ..
//   by token   [sequences x tokens of a sequence]
//
// Below: the exchange of heads, after which a rank has all tokens of some columns in place of some tokens of all columns.

#include "pmm/cost/step_plan.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/grid/process_grid.hpp"
#include "pmm/vendor/vendor_attention.hpp"

namespace orthant::pmm {

/// by_token := by_part in the order of the tokens. Both [shape.num_keys() x columns], without gaps between rows; otherwise throws Error.
/// Enqueues on exec; does not fence. Adds one pass to `passes`.
template<class T>
void order_by_token(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                    AttentionShape const& shape, Panel<T> const& by_part,
                    std::type_identity_t<Panel<T>> const& by_token);
/// The inverse: by_part := by_token in the order of the ranks.
template<class T>
void order_by_part(runtime::DefaultExec const& exec, runtime::PassLedger& passes, AttentionShape const& shape,
                   Panel<T> const& by_token, std::type_identity_t<Panel<T>> const& by_part);

/// Adds the pass of order_by_token(), or of order_by_part(), to `step`.
void plan_order_rows(StepPlan& step, AttentionShape const& shape, std::int64_t num_columns);

/// Exchange of heads along context. The columns of a rank are C equal blocks, each with as many whole heads:
///
///   part    [sequences x tokens of rank i] x [blocks 0, .., C - 1]
///   whole   [sequences x all tokens]       x [block i]
///
/// The functions are collective over context and enqueue on exec. Each direction is one all_to_all, two passes, and (C - 1) / C of the numbers
/// sent. Source: Jacobs et al., "DeepSpeed Ulysses" (arXiv 2309.14509).
template<class T>
class HeadExchange {
 public:
  /// `num_columns`: the most columns of a part; if 0, the exchange is off and has no memory. `grid` must outlive this object. Not collective.
  HeadExchange(ProcessGrid const& grid, std::int64_t num_sequences, SequencePart const& tokens,
               std::int64_t num_columns);

  [[nodiscard]] bool is_on() const { return sent_.extent(0) > 0; }
  /// `numbers` as a matrix with the rows of `whole`.
  [[nodiscard]] Panel<T> as_whole(runtime::Vector<T> const& numbers) const;
  /// Memory of this object for the argument of to_part(), for a part of `num_columns` columns. Valid until the next call of to_whole().
  [[nodiscard]] Panel<T> room(std::int64_t num_columns) const;

  /// whole := part. They may be the same memory. `whole` must have no gaps between rows.
  void to_whole(runtime::DefaultExec const& exec, Panel<T> const& part, Panel<T> const& whole);
  /// The same into memory of this object, which is valid until the next call of to_whole() or to_part().
  [[nodiscard]] Panel<T> to_whole(runtime::DefaultExec const& exec, Panel<T> const& part);
  /// part := whole. They must not overlap. `whole` must have no gaps between rows, and may be room().
  void to_part(runtime::DefaultExec const& exec, Panel<T> const& whole, Panel<T> const& part);

 private:
  [[nodiscard]] std::int64_t num_rows() const { return shape_.num_tokens(); } // of a part
  /// Calls body(block r of the columns of `part`, its place in `message`) for all r, and adds the pass.
  template<class Body>
  void for_each_block(Panel<T> const& part, runtime::Vector<T> const& message, Body const& body) const;
  void exchange(runtime::DefaultExec const& exec, std::int64_t num_columns) const;

  ProcessGrid const& grid_;
  AttentionShape shape_; // rows of a part
  runtime::Vector<T> sent_, received_;
};

/// Add the arrays of a HeadExchange, or the operations of to_whole() or to_part(), to `step`. `num_numbers`: rows times columns of a part.
void plan_head_exchange_arrays(StepPlan& step, std::int64_t num_numbers);
void plan_to_whole(StepPlan& step, std::int64_t num_numbers);
void plan_to_part(StepPlan& step, std::int64_t num_numbers);

extern template class HeadExchange<float>;
extern template class HeadExchange<double>;

} // namespace orthant::pmm
