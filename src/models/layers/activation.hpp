#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a layer does element by element. With p the dropout probability and M the mask, keyed by (seed, step,
// layer, original vertex id, feature), so that it is the same on every grid:
//
//   F = M max(Z + 1 b^T, 0) / (1 - p)          dZ = dF / (1 - p) where F > 0, else 0          db = dZ^T 1
//
// F > 0 holds where the vertex was kept and Z was positive, so the backward pass needs neither the mask nor
// Z.
//
// Each function is a pass, which it counts. Besides its arguments' numbers it reads, if it draws a mask, the ids of
// the rows. Matrices may hold 16-bit numbers: biases and sums are fp32 then, and each result is
// rounded once.

#include "pmm/product/workspace.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>
#include <string_view>

namespace orthant::models {

/// What a hidden layer does to each number. ReLU goes together with bias and dropout in one pass; the others, of which the
/// backward pass reads what they were given, are passes of their own (activate()).
enum class Activation : std::uint8_t { relu, elu, gelu };

/// "relu", "elu" or "gelu". Throws UserError for another word.
[[nodiscard]] Activation parse_activation(std::string_view word);
[[nodiscard]] std::string_view name_of(Activation activation);

struct Dropout {
  double probability = 0;
  runtime::RandomStream stream{0, runtime::Purpose::dropout};
};

/// Original ids of the rows of a block, and the global index of its first column: what the mask is keyed by.
struct BlockKeys {
  runtime::Vector<std::int64_t> original_ids; // [rows]
  std::int64_t first_column = 0;
};

/// z := dropout(relu(z + 1 b^T)), in place and in one pass. z [rows x columns], row-major; bias [columns], or
/// empty: none. Enqueues on exec; does not fence.
template<class T>
void bias_relu_dropout(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                       runtime::Matrix<T> const& z, runtime::Vector<runtime::SumOf<T>> const& bias,
                       Dropout const& dropout, BlockKeys const& keys);
/// Lists it. Here and below `format` is that of the matrices' numbers.
void plan_bias_relu_dropout(pmm::StepPlan& step, pmm::Placement const& z, bool has_bias, bool draws_mask,
                            runtime::Wire format = runtime::Wire::native);

/// z := dropout(relu(z)), in place. z [rows x columns], row-major. Enqueues on exec; does not fence.
template<class T>
void relu_dropout(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
                  Dropout const& dropout, BlockKeys const& keys);

/// gradient := gradient / (1 - p) where activation > 0, else 0, in place. Both [rows x columns].
template<class T>
void relu_dropout_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                           runtime::Matrix<T> const& activation, double probability,
                           runtime::Matrix<T> const& gradient);

/// The same, and column_sums(j) := sum_i gradient(i, j) of this block's rows, in one pass and an order that
/// depends on the shape alone. column_sums [columns]; `work` has room for partial sums (reserve_column_sums).
template<class T>
void relu_dropout_backward_sum(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                               runtime::Matrix<T> const& activation, double probability,
                               runtime::Matrix<T> const& gradient,
                               runtime::Vector<runtime::SumOf<T>> const& column_sums,
                               pmm::Workspace<runtime::SumOf<T>> const& work);
/// Lists the former, or the latter.
void plan_relu_dropout_backward(pmm::StepPlan& step, pmm::Placement const& z, bool sums_columns,
                                runtime::Wire format = runtime::Wire::native);

/// to := f(z), ELU (alpha = 1) or GELU (by erf). May alias. T: float or double. Enqueues on exec; does not fence.
template<class T>
void activate(runtime::DefaultExec const& exec, runtime::PassLedger& passes, Activation f,
              runtime::Matrix<T> const& z, runtime::Matrix<T> const& to);
/// gradient := gradient f'(z), in place.
template<class T>
void activate_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes, Activation f,
                       runtime::Matrix<T> const& z, runtime::Matrix<T> const& gradient);
/// List either.
void plan_activate(pmm::StepPlan& step, Activation f, pmm::Placement const& z);
void plan_activate_backward(pmm::StepPlan& step, Activation f, pmm::Placement const& z);

/// to := M from / (1 - p), element by element. May alias.
template<class T>
void apply_dropout(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                   runtime::Matrix<T> const& from, Dropout const& dropout, BlockKeys const& keys,
                   runtime::Matrix<T> const& to);

/// The same on elements [first, first + from.size()) of a row-major block with that many columns: a flat
/// shard. May alias.
template<class T>
void apply_dropout_to_piece(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                            runtime::Vector<T> const& from, Dropout const& dropout, BlockKeys const& keys,
                            std::int64_t first, std::int64_t num_columns, runtime::Vector<T> const& to);
/// Lists either, for what this rank stores of a matrix.
void plan_apply_dropout(pmm::StepPlan& step, pmm::Placement const& placement,
                        runtime::Wire format = runtime::Wire::native);

/// Whether the rows of a CSR matrix are vertices and its columns features, or the transpose.
enum class CsrRows : std::uint8_t { vertices, features };

/// to[k] := M value / (1 - p) for entry k of a sparse block, value = values[k] (1 where `csr` is
/// pattern-only); `to` [nnz]. Dropping a zero changes nothing, so this equals dropout of the dense matrix.
template<class T>
void apply_dropout_to_entries(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                              runtime::CsrMatrix<T> const& csr, CsrRows rows, Dropout const& dropout,
                              BlockKeys const& keys, runtime::Vector<T> const& to);
/// Lists it. `placement`: of the matrix whose rows are vertices.
void plan_apply_dropout_to_entries(pmm::StepPlan& step, pmm::Placement const& placement, CsrRows rows,
                                   std::int64_t num_nonzeros, bool has_values);

} // namespace orthant::models
