#pragma once
// SPDX-License-Identifier: Apache-2.0
//
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

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/observe/trace.hpp"

#include <cstdint>

namespace orthant::pmm {

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

} // namespace orthant::pmm
