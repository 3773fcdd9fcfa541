#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Embedding of tokens: from tokens to the residual stream, and back. With token t_i at position s_i of its sequence:
//
//   x[z,y]_i := sum_x [t_i in this rank's part] E[x,y]_{t_i} + P[-,y]_{s_i}
//   dE_t     := (dE_t +) sum_{i: t_i = t} dx_i                 dP_s := sum_{i: s_i = s} dx_i
//
// set_tokens() lists the rows of each token, so the sums over rows need no atomics and have a fixed order.

#include "models/lm/plan/transformer_plan.hpp"
#include "models/lm/transformer/transformer_parameters.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/block_collectives.hpp"

#include <span>
#include <vector>

namespace orthant::models {

// Matrix E[x,y] with a row per token of the vocabulary, flat-sharded over z: the embedding or the head. A pass gathers it once
// and sums its gradient once, also if both embedding and head use it:
//
//   gather      E := all_gather over z of its pieces
//   reduce      dE := reduce_scatter over z of the addends

template<class T>
class VocabularyTable {
 public:
  /// `grid` must outlive this object. Not collective.
  VocabularyTable(pmm::ProcessGrid const& grid, LinearParameters<T> const& parameters);

  /// Updates whole() from the parameter. Collective over z. Enqueues on exec.
  void gather(runtime::DefaultExec const& exec);
  /// The gathered matrix [x,y], replicated over z.
  [[nodiscard]] pmm::DistMatrix<T> const& whole() const { return whole_; }

  /// Matrix [x,y], partial over z, to which the caller writes this rank's addends of the gradient.
  [[nodiscard]] pmm::DistMatrix<T> const& addends() const { return addends_; }
  /// Parameter's gradient := sum of the addends over z. Collective over z. Enqueues on exec.
  void reduce(runtime::DefaultExec const& exec);

 private:
  LinearParameters<T> parameters_;
  std::shared_ptr<pmm::Workspace<T>> workspace_ = std::make_shared<pmm::Workspace<T>>(); // not shared
  pmm::BlockReader<T> reader_;
  pmm::BlockWriter<T> writer_;
  pmm::DistMatrix<T> whole_;
  pmm::DistMatrix<T> addends_;
};

/// Placements of whole() and of addends().
[[nodiscard]] pmm::Placement whole_table(pmm::Placement table);
[[nodiscard]] pmm::Placement table_addends(pmm::Placement table);

/// Add the collectives of gather() and of reduce(), and the arrays of a VocabularyTable, to `step`.
void plan_gather_table(pmm::StepPlan& step, pmm::Placement const& table);
void plan_reduce_table(pmm::StepPlan& step, pmm::Placement const& table);
void plan_table_arrays(pmm::StepPlan& step, pmm::Placement const& table);

extern template class VocabularyTable<float>;
extern template class VocabularyTable<double>;

template<class T>
class TokenEmbedding {
 public:
  /// `grid` must outlive this object.
  TokenEmbedding(pmm::ProcessGrid const& grid, TransformerPlan const& plan);

  /// Sets the tokens of this rank's rows, one per row, which must be in the vocabulary; otherwise throws Error.
  void set_tokens(std::span<std::int32_t const> ids);

  /// stream := rows of `table`, plus rows of `positions` unless it is empty. `table` is VocabularyTable::whole(). `starts`: positions
  /// of the first tokens of this rank's sequences, 0 if it is empty. Collective over x. Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& table,
               pmm::DistMatrix<T> const& positions, pmm::DistMatrix<T> const& stream,
               runtime::Vector<std::int64_t> const& starts = {}) const;

  /// Computes the gradients over this rank's rows: assigns or adds to table_gradient, and assigns positions_gradient unless it
  /// is empty. The caller must sum them over z. Not collective. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& stream_gradient,
                pmm::Update update, pmm::DistMatrix<T> const& table_gradient,
                pmm::DistMatrix<T> const& positions_gradient) const;

 private:
  pmm::ProcessGrid const& grid_;
  TransformerPlan plan_;
  pmm::Range vocabulary_;                 // tokens in this rank's part of the table
  runtime::Vector<std::int32_t> ids_;     // [rows]
  runtime::Vector<std::int32_t> offsets_; // [tokens of this rank + 1] into rows_
  runtime::Vector<std::int32_t> rows_;    // [rows] rows whose token is in vocabulary_, ordered by token
  std::vector<std::int32_t> host_offsets_, host_rows_;
};

/// Add the passes and collectives of forward() and of backward(), and the arrays of a TokenEmbedding, to `step`.
void plan_embedding(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_embedding_backward(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_embedding_arrays(pmm::StepPlan& step, TransformerPlan const& plan);

extern template class TokenEmbedding<float>;
extern template class TokenEmbedding<double>;

} // namespace orthant::models
