#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Scores of pairs of rows (i, j), and their losses and gradients, on one rank: lists of pairs (PairLists), dot-product scores,
// and scores of a perceptron with one hidden layer. Row i is in one matrix, row j in another one.

#include "pmm/edges/edge_block.hpp"
#include "pmm/edges/edge_products.hpp"
#include "pmm/product/block_collectives.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/range.hpp"

#include <Kokkos_Core.hpp>
#include <span>
#include <vector>

namespace orthant::pmm {

/// Lists of pairs (i, j) as an EdgeBlock: by i and by j. set() may replace the lists, for example in each step; the memory only
/// grows.
class PairLists {
 public:
  /// Empty lists for pairs of `num_rows` and `num_columns` rows, with memory for `capacity` pairs. Throws Error if one of the
  /// numbers of rows exceeds the range of LocalColumn.
  PairLists(std::int64_t num_rows, std::int64_t num_columns, std::int64_t capacity);

  /// Replaces the lists. Row i is paired with columns[offsets[i], offsets[i + 1]), in any order; pairs may repeat. `offsets` must
  /// have rows + 1 elements, the last of which is the number of pairs; otherwise throws Error. Work enqueued on the old lists must
  /// be complete. Allocates only if there are more pairs than ever before. O(pairs + rows + columns) on the host; not collective.
  void set(std::span<Offset const> offsets, std::span<LocalColumn const> columns);

  [[nodiscard]] EdgeBlock const& block() const { return block_; }
  [[nodiscard]] std::int64_t size() const { return block_.num_edges(); }

 private:
  runtime::GrowingVector<LocalColumn> columns_, rows_;
  runtime::GrowingVector<Offset> places_;
  std::vector<Offset> column_offsets_, next_; // on the host
  std::vector<LocalColumn> listed_rows_;
  std::vector<Offset> listed_places_;
  EdgeBlock block_;
};

/// Adds the arrays of PairLists to `step`, also the ones on the host, for `counts.edges` pairs.
void plan_pair_lists(StepPlan& step, EdgeCounts const& counts);

/// Derivative of binary cross-entropy by a score z: the logistic function of z, minus the label.
[[nodiscard]] KOKKOS_INLINE_FUNCTION double pair_slope(double z, bool is_positive) {
  auto const power = ::exp(-::fabs(z)); // at most 1
  auto const sigmoid = z >= 0 ? 1 / (1 + power) : power / (1 + power);
  return sigmoid - (is_positive ? 1.0 : 0.0);
}

// Dot-product scores of pairs, and their adjoints, with X [rows x width] and Y [columns x width], row-major:
//
//   z_e := <X_i, Y_j>  of pair e = (i, j)          edge_dots (edges/edge_products.hpp) with one head
//   P_i := sum_e v_e Y_j over the pairs of i       pair_sums
//   D_j := sum_e v_e X_i over the pairs of j       pair_sums_transposed
//
// Unlike attention coefficients, v may be negative. Each sum runs in the order of its list, so it has the same bits in every run.
// Cost: 2 pairs x width flop each. The loss is the binary cross-entropy of the scores; pairs of label 1 come first:
//
//   loss := scale (sum_{e < n1} softplus(-z_e) + sum_{e >= n1} softplus(z_e))       dz_e := factor scale (sigmoid(z_e) - y_e)
//
// with softplus(z) = max(z, 0) + log(1 + exp(-|z|)). Functions enqueue on exec and do not fence.

template<class T>
void pair_sums(DefaultExec const& exec, EdgeBlock const& block, std::int64_t width, Vector<T> const& values,
               Vector<T> const& y, Vector<T> const& p, Update update);
template<class T>
void pair_sums_transposed(DefaultExec const& exec, EdgeBlock const& block, std::int64_t width,
                          Vector<T> const& values, Vector<T> const& x, Vector<T> const& d, Update update);

/// scores := dz in place; loss := this rank's part, in double. The first `num_positive` scores have label 1, the others label 0.
/// `factor` multiplies only the gradient. Adds one pass to `passes`.
template<class T>
void pair_loss_and_gradient(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& scores,
                            std::int64_t num_positive, double scale, double factor,
                            runtime::Number<double> const& loss);
void plan_pair_loss(StepPlan& step, std::int64_t num_pairs);

/// to += from, of equal lengths. Adds one pass to `passes`.
template<class T>
void add_numbers(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& from,
                 Vector<T> const& to);
void plan_add_numbers(StepPlan& step, std::int64_t count);

// Perceptron with one hidden layer of K numbers on pairs of rows, without its dense products. With X [rows x width] and
// Y [columns x width], for the pairs e = (i, j) of a range of a list; * is the elementwise product:
//
//   G_e := X_i * Y_j                           multiply_pairs
//   z_e := <relu(Z_e + b), w> + b'             score_hidden            Z_e := W^T G_e, [pairs of the range x K]
//   s_e := derivative of the loss by z_e       differentiate_hidden    binary cross-entropy (pair_slope)
//   R_e := relu(Z_e + b)
//   dZ_e := s_e w where Z_e + b > 0, else 0
//   dX_i += sum_e dG_e * Y_j                   add_pair_gradients      dG_e := W dZ_e
//   dY_j += sum_e dG_e * X_i                   add_pair_gradients_transposed
//
// Arrays of pairs hold only the range. Each sum runs in the order of its list, so it has the same bits in every run. Functions
// enqueue on exec, do not fence, and add one pass to `passes`.

/// Parameters of the perceptron after Z, replicated on every rank. An empty bias means 0.
template<class T>
struct HiddenLayer {
  Vector<T> bias;          // b  [K]
  Vector<T> output_weight; // w  [K]
  Vector<T> output_bias;   // b' [1]
  [[nodiscard]] std::int64_t width() const { return static_cast<std::int64_t>(output_weight.extent(0)); }
};

template<class T>
void multiply_pairs(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                    runtime::Range const& pairs, std::int64_t width, Vector<T> const& x, Vector<T> const& y,
                    Vector<T> const& products);
void plan_multiply_pairs(StepPlan& step, std::int64_t num_pairs, std::int64_t width);

template<class T>
void score_hidden(DefaultExec const& exec, runtime::PassLedger& passes, HiddenLayer<T> const& layer,
                  Vector<T> const& z, Vector<T> const& scores);
void plan_score_hidden(StepPlan& step, std::int64_t num_pairs, std::int64_t hidden);

/// Overwrites z by R, and writes dz and slopes (s). `weight` multiplies every s_e. `is_positive` is the label of all pairs.
template<class T>
void differentiate_hidden(DefaultExec const& exec, runtime::PassLedger& passes, HiddenLayer<T> const& layer,
                          Vector<T> const& scores, bool is_positive, double weight, Vector<T> const& z,
                          Vector<T> const& dz, Vector<T> const& slopes);
void plan_differentiate_hidden(StepPlan& step, std::int64_t num_pairs, std::int64_t hidden);

template<class T>
void add_pair_gradients(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                        runtime::Range const& pairs, std::int64_t width, Vector<T> const& dproducts,
                        Vector<T> const& y, Vector<T> const& dx);
template<class T>
void add_pair_gradients_transposed(DefaultExec const& exec, runtime::PassLedger& passes,
                                   EdgeBlock const& block, runtime::Range const& pairs, std::int64_t width,
                                   Vector<T> const& dproducts, Vector<T> const& x, Vector<T> const& dy);
/// Adds the pass of add_pair_gradients(), or of its transposed form, to `step`. `num_sums` is the number of rows, or columns, of the
/// block.
void plan_add_pair_gradients(StepPlan& step, std::int64_t num_pairs, std::int64_t num_sums,
                             std::int64_t width, bool is_transposed);

} // namespace orthant::pmm
