#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Elementwise operations of a layer: activation, bias and dropout. With p the dropout probability and M the mask, which is keyed by
// (seed, step, layer, original vertex id, feature) and therefore the same on every grid:
//
//   F = M max(Z + 1 b^T, 0) / (1 - p)          dZ = dF / (1 - p) where F > 0, else 0          db = dZ^T 1
//
// F > 0 exactly if the element was kept and Z + b was positive, so the backward pass needs neither the mask nor Z.
//
// Each function adds its pass to `passes`. If it draws a mask, it also reads the ids of the rows. Matrices may have 16-bit elements:
// biases and sums are then fp32, and each result is rounded once.

#include "pmm/kernels/activation_functions.hpp"
#include "pmm/product/workspace.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>
#include <string_view>

namespace orthant::models {

/// Activation of a hidden layer. ReLU is fused with bias and dropout in one pass. The others are separate passes
/// (pmm/rows/activations.hpp), and their backward passes read their input.
using pmm::Activation;

/// Accepts the names of kernels/activation_functions.hpp, such as "relu". Throws UserError for other words.
[[nodiscard]] Activation parse_activation(std::string_view word);

struct Dropout {
  double probability = 0;
  runtime::RandomStream stream{0, runtime::Purpose::dropout};
};

/// Keys of the mask: original ids of the rows of a block, and the global index of its first column.
struct BlockKeys {
  runtime::Vector<std::int64_t> original_ids; // [rows]
  std::int64_t first_column = 0;
};

/// z := dropout(relu(z + 1 b^T)), in place and in one pass. z [rows x columns], row-major; bias [columns], or empty without a bias.
/// Enqueues on exec; does not fence.
template<class T>
void bias_relu_dropout(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                       runtime::Matrix<T> const& z, runtime::Vector<runtime::SumOf<T>> const& bias,
                       Dropout const& dropout, BlockKeys const& keys);
/// Lists the pass. Here and below `format` is the format of the matrices' elements.
void plan_bias_relu_dropout(pmm::StepPlan& step, pmm::Placement const& z, bool has_bias, bool draws_mask,
                            runtime::Wire format = runtime::Wire::native);

/// z := dropout(relu(z)), in place. z [rows x columns], row-major. Enqueues on exec; does not fence.
template<class T>
void relu_dropout(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
                  Dropout const& dropout, BlockKeys const& keys);

/// gradient := gradient / (1 - p) where activation > 0, else 0, in place. Both [rows x columns]. Enqueues on exec; does not fence.
template<class T>
void relu_dropout_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                           runtime::Matrix<T> const& activation, double probability,
                           runtime::Matrix<T> const& gradient);

/// Like relu_dropout_backward(), and in the same pass column_sums(j) := sum_i gradient(i, j) over this block's rows. The order of additions
/// depends only on the shape. column_sums [columns]; `work` must have space for partial sums (reserve_column_sums).
template<class T>
void relu_dropout_backward_sum(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                               runtime::Matrix<T> const& activation, double probability,
                               runtime::Matrix<T> const& gradient,
                               runtime::Vector<runtime::SumOf<T>> const& column_sums,
                               pmm::Workspace<runtime::SumOf<T>> const& work);
/// Lists relu_dropout_backward(), or relu_dropout_backward_sum() if `sums_columns`.
void plan_relu_dropout_backward(pmm::StepPlan& step, pmm::Placement const& z, bool sums_columns,
                                runtime::Wire format = runtime::Wire::native);

/// to := M from / (1 - p), elementwise. `to` may be `from`. Enqueues on exec; does not fence.
template<class T>
void apply_dropout(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                   runtime::Matrix<T> const& from, Dropout const& dropout, BlockKeys const& keys,
                   runtime::Matrix<T> const& to);

/// Like apply_dropout(), for elements [first, first + from.size()) of a row-major block with `num_columns` columns, for example a flat
/// shard. `to` may be `from`.
template<class T>
void apply_dropout_to_piece(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                            runtime::Vector<T> const& from, Dropout const& dropout, BlockKeys const& keys,
                            std::int64_t first, std::int64_t num_columns, runtime::Vector<T> const& to);
/// Lists the pass of apply_dropout() or apply_dropout_to_piece() on this rank's elements of a matrix.
void plan_apply_dropout(pmm::StepPlan& step, pmm::Placement const& placement,
                        runtime::Wire format = runtime::Wire::native);

/// Whether the rows of a CSR matrix are vertices and its columns features, or the transpose.
enum class CsrRows : std::uint8_t { vertices, features };

/// to[k] := M value / (1 - p) for entry k of a sparse block, where value = values[k], or 1 if `csr` is only a pattern; `to` [nnz].
/// Equals dropout of the dense matrix, because dropout keeps zeros. Enqueues on exec; does not fence.
template<class T>
void apply_dropout_to_entries(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                              runtime::CsrMatrix<T> const& csr, CsrRows rows, Dropout const& dropout,
                              BlockKeys const& keys, runtime::Vector<T> const& to);
/// Lists the pass. `placement`: placement of the matrix whose rows are vertices.
void plan_apply_dropout_to_entries(pmm::StepPlan& step, pmm::Placement const& placement, CsrRows rows,
                                   std::int64_t num_nonzeros, bool has_values);

} // namespace orthant::models
