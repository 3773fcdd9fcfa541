#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// From tokens to the residual stream, and back. With token t_i at place s_i of its sequence:
//
//   x[z,y]_i := sum_x [t_i in this rank's part] E[x,y]_{t_i} + P[-,y]_{s_i}
//   dE_t     := (dE_t +) sum_{i: t_i = t} dx_i                 dP_s := sum_{i: s_i = s} dx_i
//
// The rows of each token are listed when the tokens are set, so sums over them need no atomics and have one order.

#include "models/lm/plan/transformer_plan.hpp"
#include "models/lm/transformer/transformer_parameters.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/block_collectives.hpp"

#include <span>
#include <vector>

namespace orthant::models {

// A matrix E[x,y] of a row per token of the vocabulary, flat-sharded over z: the embedding, and the head. A pass gathers
// it once, and sums its gradient once, whoever uses it:
//
//   gather      E := all_gather over z of its pieces
//   reduce      dE := reduce_scatter over z of the addends

template<class T>
class VocabularyTable {
 public:
  /// `grid` must outlive it. Not collective.
  VocabularyTable(pmm::ProcessGrid const& grid, LinearParameters<T> const& parameters);

  /// Brings whole() up to date. Collective over z. Enqueues on exec.
  void gather(runtime::DefaultExec const& exec);
  /// [x,y], replicated over z.
  [[nodiscard]] pmm::DistMatrix<T> const& whole() const { return whole_; }

  /// [x,y], partial over z: where this rank's addends of the gradient go.
  [[nodiscard]] pmm::DistMatrix<T> const& addends() const { return addends_; }
  /// Sums the addends to the parameter's gradient. Collective over z. Enqueues on exec.
  void reduce(runtime::DefaultExec const& exec);

 private:
  LinearParameters<T> parameters_;
  std::shared_ptr<pmm::Workspace<T>> workspace_ = std::make_shared<pmm::Workspace<T>>(); // of its own: held
  pmm::BlockReader<T> reader_;
  pmm::BlockWriter<T> writer_;
  pmm::DistMatrix<T> whole_;
  pmm::DistMatrix<T> addends_;
};

/// The placements of whole() and addends().
[[nodiscard]] pmm::Placement whole_table(pmm::Placement table);
[[nodiscard]] pmm::Placement table_addends(pmm::Placement table);

/// List what gather() and reduce() communicate, and the arrays.
void plan_gather_table(pmm::StepPlan& step, pmm::Placement const& table);
void plan_reduce_table(pmm::StepPlan& step, pmm::Placement const& table);
void plan_table_arrays(pmm::StepPlan& step, pmm::Placement const& table);

extern template class VocabularyTable<float>;
extern template class VocabularyTable<double>;

template<class T>
class TokenEmbedding {
 public:
  /// `grid` must outlive it.
  TokenEmbedding(pmm::ProcessGrid const& grid, TransformerPlan const& plan);

  /// The tokens of this rank's rows. Throws Error if their number is another one or one is not in the vocabulary.
  void set_tokens(std::span<std::int32_t const> ids);

  /// stream := rows of `table` (whole), and of `positions` if it is not empty. Collective over x. Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& table,
               pmm::DistMatrix<T> const& positions, pmm::DistMatrix<T> const& stream) const;

  /// Addends of this rank's rows: of the table's gradient, which is written or added to, and of the positions' unless it
  /// is empty. Local. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& stream_gradient,
                pmm::Update update, pmm::DistMatrix<T> const& table_gradient,
                pmm::DistMatrix<T> const& positions_gradient) const;

 private:
  pmm::ProcessGrid const& grid_;
  TransformerPlan plan_;
  pmm::Range vocabulary_;                 // of this rank
  runtime::Vector<std::int32_t> ids_;     // [rows]
  runtime::Vector<std::int32_t> offsets_; // [tokens of this rank + 1] into rows_
  runtime::Vector<std::int32_t> rows_;    // [rows] those whose token is this rank's, by token
  std::vector<std::int32_t> host_offsets_, host_rows_;
};

/// List the passes and calls of forward() and backward(), and the arrays.
void plan_embedding(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_embedding_backward(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_embedding_arrays(pmm::StepPlan& step, TransformerPlan const& plan);

extern template class TokenEmbedding<float>;
extern template class TokenEmbedding<double>;

} // namespace orthant::models
