#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The product of one rank's block of relations, with weights W_r that are all in memory (relation_block.hpp has the equations):
//
//   P := sum_r A_r F W_r           forward:  U := S F, Z_r := U_r W_r P := G Z
//   dW_r := (A_r F)^T dP           backward: dZ := G^T dP, dW_r := U_r^T dZ_r, dU_r := dZ_r W_r^T, dF := S^T dU
//   dF := sum_r A_r^T dP W_r^T
//
// The root W' of a type is the weight of its self relation s: Z_s := U_s W' + 1 b^T and db := 1^T dZ_s. If a type has several roots, their
// results are summed. This rank's columns of F are a range of the rows of every W_r. P is partial over the ranks with other columns of F,
// and dW has zeros in the rows of other ranks. Biases are added on the rank that has the first column of F.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/relations/relation_block.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/observe/trace.hpp"

#include <cstdint>

namespace orthant::pmm {

// Weights of the relations of one layer, W_r [in x out] for r = 0 .. R-1, one below the other in one matrix W [R in x out]. They are trained in one of
// three forms (Schlichtkrull et al., arXiv 1703.06103, section 2.2):
//
//   full             weight [R in x out]              W_r = weight_r
//   basis            weight [B in x out], comp [R x B]   W_r = sum_b comp_rb weight_b
//   block-diagonal   weight [R in x out / K]           W_r = diag(Q_r1, .., Q_rK), Q_rk [in / K x out / K] one below the other
//
// Vertices of a type may also have weights for the vertex itself, called roots: W' [in x out], one below the other in `roots`, each with a
// bias in a row of `biases`. If a type has several roots, their results are summed.
//
// As flat row-major memory these are the arrays of PyTorch Geometric's RGCNConv: [R, in, out], [B, in, out] with [R, B], and
// [R, K, in / K, out / K].

struct RelationWeights {
  std::int64_t num_relations = 0;
  std::int64_t in = 0, out = 0;
  std::int64_t num_bases = 0;  // B; 0: no bases
  std::int64_t num_blocks = 0; // K, which divides in and out; 0: no blocks
  std::int64_t num_roots = 0;
  bool has_root_biases = false;

  /// Extents of W (without `roots`), and of the parameters.
  [[nodiscard]] Extents expanded() const { return {num_relations * in, out}; }
  [[nodiscard]] Extents weight() const {
    return {(num_bases > 0 ? num_bases : num_relations) * in, num_blocks > 0 ? out / num_blocks : out};
  }
  [[nodiscard]] Extents comp() const { return {num_bases > 0 ? num_relations : 0, num_bases}; }
  [[nodiscard]] Extents roots() const { return {num_roots * in, out}; }
  [[nodiscard]] Extents biases() const { return {has_root_biases ? num_roots : 0, out}; }
  /// Whether W is `weight` itself.
  [[nodiscard]] bool is_full() const { return num_bases == 0 && num_blocks == 0; }
  friend bool operator==(RelationWeights const&, RelationWeights const&) = default;
};

/// expanded := W. `comp` is read if there are bases. Not for full weights. Enqueues on exec.
template<class T>
void expand_weights(DefaultExec const& exec, runtime::Instruments& instruments, RelationWeights const& shape,
                    Vector<T> const& weight, Vector<T> const& comp, Vector<T> const& expanded);
/// Converts `gradient`, the derivative of a loss by W, to those by `weight` and, if there are bases, by `comp`. Not for full weights.
/// Enqueues on exec.
template<class T>
void contract_gradient(DefaultExec const& exec, runtime::Instruments& instruments,
                       RelationWeights const& shape, Vector<T> const& gradient, Vector<T> const& weight,
                       Vector<T> const& comp, Vector<T> const& weight_gradient,
                       Vector<T> const& comp_gradient);
/// Describes a product of matrices in this rank's memory for the list of a step: C [m x n], summed over k.
[[nodiscard]] LocalProduct dense_product(char const* formula, Form form, std::int64_t m, std::int64_t n,
                                         std::int64_t k);
/// List both.
void plan_expand_weights(StepPlan& step, RelationWeights const& shape);
void plan_contract_gradient(StepPlan& step, RelationWeights const& shape);

/// Sizes of the product of one rank.
struct RelationSizes {
  std::int64_t rows = 0, columns = 0; // of the block
  std::int64_t pairs = 0, entries = 0;
  std::int64_t self_pairs = 0; // among pairs
  std::int64_t root_pairs = 0; // self pairs, once for each root of their type
  Range inputs;                // this rank's columns of F
  std::int64_t out = 0;

  /// Number of rows of all dense products.
  [[nodiscard]] std::int64_t num_multiplied() const { return pairs - self_pairs + root_pairs; }
  [[nodiscard]] std::int64_t num_inputs() const { return columns * inputs.size(); } // elements of F
  [[nodiscard]] std::int64_t num_means() const { return pairs * inputs.size(); }    // of U
  [[nodiscard]] std::int64_t num_products() const { return pairs * out; }           // of Z
  [[nodiscard]] std::int64_t num_results() const { return rows * out; }             // of P
};
/// Whether the rank with these columns of F adds biases.
[[nodiscard]] inline bool adds_biases(RelationWeights const& shape, Range inputs) {
  return shape.has_root_biases && inputs.begin == 0;
}
template<class T>
[[nodiscard]] RelationSizes sizes_of(RelationBlock<T> const& block, Range inputs, std::int64_t out) {
  return {block.num_rows(),
          block.num_columns(),
          block.num_pairs(),
          block.num_entries(),
          block.num_self_pairs(),
          block.num_root_pairs(),
          inputs,
          out};
}

/// The parameters W [R in x out], roots and biases; or their gradients.
template<class T>
struct RelationParameters {
  Vector<T> expanded, roots, biases;
};

/// Memory of a product: U, which the backward pass reads; dU; and Z, which dZ overwrites.
template<class T>
struct RelationMemory {
  Vector<T> means, products, means_gradient;
};

/// f [columns x inputs], p [rows x out], row-major. Enqueue on exec. p must not overlap f.
template<class T>
void relation_product(DefaultExec const& exec, runtime::Instruments& instruments,
                      RelationBlock<T> const& block, RelationWeights const& shape, Range inputs,
                      Vector<T> const& f, RelationParameters<T> const& parameters,
                      RelationMemory<T> const& memory, Vector<T> const& p);
/// Overwrites the gradients of the parameters, and f_gradient unless it is empty.
template<class T>
void relation_product_backward(DefaultExec const& exec, runtime::Instruments& instruments,
                               RelationBlock<T> const& block, RelationWeights const& shape, Range inputs,
                               Vector<T> const& p_gradient, RelationParameters<T> const& parameters,
                               RelationMemory<T> const& memory, RelationParameters<T> const& gradients,
                               Vector<T> const& f_gradient);

/// List the operations of the forward and of the backward pass. `adjacency`: placement of A.
void plan_relation_product(StepPlan& step, Placement const& adjacency, RelationSizes const& sizes,
                           RelationWeights const& shape);
void plan_relation_product_backward(StepPlan& step, Placement const& adjacency, RelationSizes const& sizes,
                                    RelationWeights const& shape, bool needs_input_gradient);

} // namespace orthant::pmm
