#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Embedding of tokens: from tokens to the residual stream, and back. With token t_i at position s_i of its sequence:
//
//   x[z,y]_i := sum_x [t_i in this rank's part] E[x,y]_{t_i} + P[-,y]_{s_i}
//   dE_t     := (dE_t +) sum_{i: t_i = t} dx_i                 dP_s := sum_{i: s_i = s} dx_i
//
// RowLists lists the rows of each token, so the sums over rows need no atomics and have a fixed order. With documents, s_i is the position
// in the document.

#include "models/lm/plan/transformer_plan.hpp"
#include "models/lm/transformer/block_memory.hpp"
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

/// The rows of each key, where keys are tokens or positions: those of key k are rows[offsets[k]], .., rows[offsets[k + 1] - 1], in order.
class RowLists {
 public:
  RowLists() = default;
  /// Allocates the arrays; their labels begin with `label`.
  RowLists(std::string const& label, std::int64_t num_keys, std::int64_t num_rows);
  /// Lists the rows with keys first_key, first_key + 1, .., up to the number of keys. Other rows are left out.
  void set(std::span<std::int32_t const> key_of_row, std::int64_t first_key);
  [[nodiscard]] runtime::Vector<std::int32_t> const& offsets() const { return offsets_; }
  [[nodiscard]] runtime::Vector<std::int32_t> const& rows() const { return rows_; }

 private:
  runtime::Vector<std::int32_t> offsets_; // [keys + 1]
  runtime::Vector<std::int32_t> rows_;    // [rows]
  std::vector<std::int32_t> host_offsets_, host_rows_;
};

template<class T>
class TokenEmbedding {
 public:
  /// `grid` must outlive this object. On a stage of a pipeline without the embedding it has no memory: set_tokens() does nothing, and
  /// there are no passes.
  TokenEmbedding(pmm::ProcessGrid const& grid, TransformerPlan const& plan);

  /// Sets the tokens of this rank's rows, one per row, which must be in the vocabulary; otherwise throws Error.
  void set_tokens(std::span<std::int32_t const> ids);
  /// Sets the positions of these tokens in their documents, for backward(), and copies them to `to`, the arrays of document_positions.
  /// `positions`: of all tokens of this rank's sequences, also those of other ranks along context; empty unless documents are masked. Each
  /// must be 0, or one more than the position before it in its sequence; otherwise throws Error.
  void set_positions(std::span<std::int64_t const> positions, TokenNumbers const& to);

  /// stream := rows of `table`, plus rows of `positions` unless it is empty. `table` is VocabularyTable::whole(). `places`: positions of
  /// this rank's tokens; if it is empty, they count from 0 in each sequence. Collective over x. Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& table,
               pmm::DistMatrix<T> const& positions, pmm::DistMatrix<T> const& stream,
               runtime::Vector<std::int64_t> const& places = {}) const;

  /// Computes the gradients over this rank's rows: assigns or adds to table_gradient, and assigns positions_gradient unless it
  /// is empty. The caller must sum them over z. Not collective. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& stream_gradient,
                pmm::Update update, pmm::DistMatrix<T> const& table_gradient,
                pmm::DistMatrix<T> const& positions_gradient) const;

 private:
  pmm::ProcessGrid const& grid_;
  TransformerPlan plan_;
  pmm::Range vocabulary_;             // tokens in this rank's part of the table
  runtime::Vector<std::int32_t> ids_; // [rows]
  RowLists of_tokens_;                // of vocabulary_
  RowLists of_positions_;             // empty unless positions are listed and learned
};

/// Add the passes and collectives of forward() and of backward(), and the arrays of a TokenEmbedding, to `step`.
void plan_embedding(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_embedding_backward(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_embedding_arrays(pmm::StepPlan& step, TransformerPlan const& plan);

extern template class TokenEmbedding<float>;
extern template class TokenEmbedding<double>;

} // namespace orthant::models
