#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The area under the ROC curve: how often a vertex of a class is ranked above one that is not of it.
//
//   AUC_j = ( #(s_uj > s_vj) + #(s_uj = s_vj) / 2 ) / (n_pos n_neg)      u of class j, v not of it
//
// One class per vertex: s = softmax of the logits, each class against the rest. Several: s = the logit, over known
// entries. The score is the mean of AUC_j over the classes that some vertices of the split have and some have not
// (one-vs-rest macro, as scikit-learn's roc_auc_score; of two classes both have the same AUC).

#include "graph/store/store_reader.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <array>
#include <optional>

namespace orthant::models {

/// Of train, valid and test, by graph::Split; none if no class can be judged. Exact, ties included: the columns of the
/// classes are dealt to the ranks, each of which sorts one at a time. Sends each score of a split once (16 bytes), in
/// as many rounds as there are classes per rank; a rank holds 9 bytes per vertex of its rows and class, and 32 per vertex
/// of the split. Collective over the grid's world. Throws UserError if the store cannot be read.
template<class T>
[[nodiscard]] std::array<std::optional<double>, 3>
roc_auc(pmm::ProcessGrid const& grid, graph::GraphStore const& store, pmm::DistMatrix<T> const& logits);

} // namespace orthant::models
