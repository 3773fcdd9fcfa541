#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Attention within each relation on one rank's block (R-GAT: a GAT layer per relation, summed over the relations). For every edge of relation
// r from column j to row i, and every head h of d columns:
//
//   Z_rj   := F_j W_r
//   v_rijh := leaky(<a_rh target, F_i W'_r> + <a_rh source, Z_rj>)          alpha := softmax of v over the edges j of (r, i)
//   P_i    := sum_r sum_j alpha_rij Z_rj                                    W'_r = W_r, or a weight of its own
//
// Only the scores need F_i W'_r, and only their product with a vector. The vectors are therefore folded into the weights first:
//
//   V_r := [W_r A_r | W'_r A'_r]        A, A': [H d x H], block-diagonal, with a_rh source and a_rh target as blocks
//   t_rj := F_j W_r A_r                 s_ri := F_i W'_r A'_r
//
// F_i and F_j have whole rows, of the block's rows and of its columns. Each rank has some heads: some columns of every W_r, of Z and of P. For
// the dense products, rows of F are copied in parts of at most `most_picked` pairs, because a copy for all pairs would be too large.
// Sources: Velickovic et al. (arXiv 1710.10903), equations 3 and 4, for each relation; MLPerf's R-GAT.

#include "pmm/gemm/local_gemm.hpp"
#include "pmm/relations/relation_edges.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>

namespace orthant::pmm {

/// Weights of a layer.
struct RelationAttentionShape {
  std::int64_t num_relations = 0, in = 0;
  Heads heads; // all heads
  bool has_target_weights = false;

  [[nodiscard]] Extents weight() const { return {num_relations * in, heads.columns()}; }
  [[nodiscard]] Extents target_weight() const {
    return {has_target_weights ? num_relations * in : 0, heads.columns()};
  }
  /// a_rh = [a_rh of the target | a_rh of the source], one below the other.
  [[nodiscard]] Extents attention() const { return {num_relations * heads.count, 2 * heads.width}; }
  friend bool operator==(RelationAttentionShape const&, RelationAttentionShape const&) = default;
};

/// Sizes of the product on one rank.
struct RelationAttentionSizes {
  std::int64_t rows = 0, columns = 0; // of the block
  RelationEdgeCounts pairs;
  std::int64_t first_head = 0, num_heads = 0; // of this rank

  /// Number of pairs whose rows of F are copied together. The copy stays in a processor's cache or is large enough for a device.
  static constexpr std::int64_t most_picked = 8192;
  [[nodiscard]] std::int64_t num_picked(RelationAttentionShape const& shape) const {
    return num_heads == 0 ? 0 : std::min(most_picked, std::max(pairs.sources, pairs.targets)) * shape.in;
  }
  [[nodiscard]] std::int64_t num_projected(RelationAttentionShape const& shape) const { // of Z
    return pairs.sources * num_heads * shape.heads.width;
  }
  [[nodiscard]] std::int64_t num_vectors(RelationAttentionShape const& shape) const { // of A and A'
    return shape.num_relations * num_heads * shape.heads.width * 2 * num_heads;
  }
  [[nodiscard]] std::int64_t num_folded(RelationAttentionShape const& shape) const { // of V
    return shape.num_relations * shape.in * 2 * num_heads;
  }
  [[nodiscard]] std::int64_t num_results(RelationAttentionShape const& shape) const { // of P
    return rows * num_heads * shape.heads.width;
  }
  [[nodiscard]] std::int64_t num_coefficients() const { return pairs.edges * num_heads; }
  [[nodiscard]] std::int64_t num_target_ends() const { return pairs.targets * num_heads; } // of s
  [[nodiscard]] std::int64_t num_source_ends() const { return pairs.sources * num_heads; } // of t
};

/// The parameters, all relations one below the other; or their gradients. `target_weight` is empty if W' = W.
template<class T>
struct RelationAttentionParameters {
  Vector<T> weight, target_weight, attention;
};

/// What the backward pass reads: A beside A', V, Z, s, t and the coefficients.
template<class T>
struct RelationAttentionMemory {
  Vector<T> vectors, folded, projected, target_ends, source_ends, coefficients;
};

/// Memory that is used only within a call: gradients of those in RelationAttentionMemory, copied rows of F and the gradient of them, and s
/// by relation.
template<class T>
struct RelationAttentionScratch {
  Vector<T> vectors, folded, projected, target_ends, source_ends, coefficients;
  Vector<T> picked, picked_gradient, ends_by_relation;
};

/// Dropout of coefficients.
struct CoefficientDropout {
  double probability = 0;
  runtime::RandomStream stream{0, runtime::Purpose::dropout};
};

/// F of the block's columns and of its rows, [columns x in] and [rows x in]; or their gradients.
template<class T>
struct RelationAttentionInputs {
  Vector<T> of_columns, of_rows;
};

/// Reserves the buffers of the softmax. `Work`: a Workspace or a WorkspacePlan.
template<class Work>
void reserve_relation_attention(Work& work, RelationAttentionSizes const& sizes) {
  reserve_edge_softmax(work, sizes.pairs.targets, sizes.num_heads);
}

/// One layer on one block. Copies share memory.
template<class T>
class RelationAttention {
 public:
  /// `grid` must outlive this object. `columns`: the axis over which the columns of a row are split. `workspace`: with the buffers of
  /// reserve_relation_attention().
  RelationAttention(ProcessGrid const& grid, Axis columns, std::shared_ptr<RelationEdges const> block,
                    RelationAttentionShape const& shape, RelationAttentionSizes const& sizes,
                    RelationAttentionMemory<T> const& memory, RelationAttentionScratch<T> const& scratch,
                    std::shared_ptr<Workspace<T>> workspace);

  /// p [rows x this rank's columns] := P. Collective over `columns`: two all_reduces of target pairs x heads. Enqueues on exec.
  void forward(DefaultExec const& exec, RelationAttentionInputs<T> const& f,
               RelationAttentionParameters<T> const& parameters, CoefficientDropout const& dropout,
               Vector<T> const& p);
  /// Overwrites the gradients of the parameters, with zeros in columns and heads of other ranks, and those of f unless they are empty, from
  /// the gradient of p; f, parameters and dropout are those of the last forward(). Collective over `columns`: one all_reduce of target
  /// pairs x heads. Enqueues on exec.
  void backward(DefaultExec const& exec, RelationAttentionInputs<T> const& f,
                RelationAttentionParameters<T> const& parameters, CoefficientDropout const& dropout,
                Vector<T> const& p_gradient, RelationAttentionParameters<T> const& gradients,
                RelationAttentionInputs<T> const& f_gradients);

 private:
  enum class End : std::uint8_t { source, target };
  /// A range of the pairs of one relation.
  struct Part {
    std::int64_t relation;
    Range pairs;
  };
  template<class Visit>
  void for_each_part(End end, Visit const& visit) const;
  [[nodiscard]] Vector<T> picked_rows(DefaultExec const& exec, End end, Part const& part,
                                      Vector<T> const& f) const;
  void count_picks(bool is_backward) const;
  void fold_vectors(DefaultExec const& exec, RelationAttentionParameters<T> const& parameters) const;
  void unfold_gradients(DefaultExec const& exec, RelationAttentionParameters<T> const& parameters,
                        RelationAttentionParameters<T> const& gradients) const;
  void project(DefaultExec const& exec, RelationAttentionInputs<T> const& f,
               RelationAttentionParameters<T> const& parameters) const;
  void project_backward(DefaultExec const& exec, RelationAttentionInputs<T> const& f,
                        RelationAttentionParameters<T> const& parameters,
                        RelationAttentionParameters<T> const& gradients,
                        RelationAttentionInputs<T> const& f_gradients) const;
  /// This rank's columns of the weight of one relation.
  [[nodiscard]] Panel<T> weight_of(Vector<T> const& weights, std::int64_t relation) const;
  [[nodiscard]] Panel<T> vectors_of(Vector<T> const& vectors, std::int64_t relation, End end) const;
  [[nodiscard]] Panel<T> folded_of(Vector<T> const& folded, std::int64_t relation, End end) const;
  [[nodiscard]] EdgeWeights<T> weights(CoefficientDropout const& dropout) const;
  [[nodiscard]] Heads heads() const { return {sizes_.num_heads, shape_.heads.width}; }

  ProcessGrid const* grid_;
  Axis axis_;
  std::shared_ptr<RelationEdges const> block_;
  RelationAttentionShape shape_;
  RelationAttentionSizes sizes_;
  RelationAttentionMemory<T> memory_;
  RelationAttentionScratch<T> scratch_;
  std::shared_ptr<Workspace<T>> workspace_;
};

/// List the operations of the forward and of the backward pass. `adjacency`: placement of A.
void plan_relation_attention(StepPlan& step, Axis columns, Placement const& adjacency,
                             RelationAttentionSizes const& sizes, RelationAttentionShape const& shape,
                             bool drops_coefficients);
void plan_relation_attention_backward(StepPlan& step, Axis columns, Placement const& adjacency,
                                      RelationAttentionSizes const& sizes,
                                      RelationAttentionShape const& shape, bool needs_input_gradient);

} // namespace orthant::pmm
