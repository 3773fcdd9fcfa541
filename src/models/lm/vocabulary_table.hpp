#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A matrix E[x,y] of a row per token of the vocabulary, flat-sharded over z: the embedding, and the head. A pass gathers
// it once, and sums its gradient once, whoever uses it:
//
//   gather      E := all_gather over z of its pieces
//   reduce      dE := reduce_scatter over z of the addends

#include "models/lm/transformer_parameters.hpp"
#include "pmm/product/block_io.hpp"

namespace orthant::models {

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

} // namespace orthant::models
