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
#include "models/training/vertex_loss.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/range.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace orthant::models {

/// By split; none if no class of it can be judged.
using Areas = std::array<std::optional<double>, 3>;

/// The areas of any logits of a store's vertices. Labels and splits of this rank's rows are read once: a byte per
/// vertex and class, and three per vertex.
class RocAuc {
 public:
  /// For logits of that placement. `grid` must outlive it. Collective over the grid's world. Throws UserError if the
  /// store cannot be read.
  RocAuc(pmm::ProcessGrid const& grid, graph::GraphStore const& store, pmm::Placement const& logits);

  /// Of train, valid and test, by graph::Split. Exact, ties included: the columns of the classes are dealt to the
  /// ranks, each of which sorts one at a time. Sends each score of a split once (16 bytes), in as many rounds as there
  /// are classes per rank; a rank holds 8 bytes per vertex of its rows and class, and 48 per vertex of the split, until
  /// it is done. Collective over the grid's world.
  template<class T>
  [[nodiscard]] Areas operator()(pmm::DistMatrix<T> const& logits) const;

 private:
  void softmax(std::vector<double>& scores) const;
  [[nodiscard]] std::vector<std::pair<double, bool>>
  bring(std::vector<double> const& scores, std::size_t split, std::int64_t first, bool contributes) const;

  pmm::ProcessGrid const& grid_;
  pmm::AxisSet column_axes_;
  bool is_single_; // one class per vertex
  std::int64_t num_classes_;
  std::size_t num_rows_ = 0;        // of this rank,
  runtime::Range classes_;          // and its columns
  std::vector<std::int8_t> has_it_; // [rows x classes] 1, 0 or is_unknown
  std::array<std::vector<std::uint8_t>, 3> masks_;
};

/// The most that RocAuc holds on this rank at a time, in bytes.
[[nodiscard]] std::int64_t bytes_of_areas(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                                          pmm::Placement const& logits);

/// What adds the areas to the scores of an evaluation (Trainer::judge_also_by). As the constructor of RocAuc.
template<class T>
[[nodiscard]] std::function<void(pmm::DistMatrix<T> const&, Scores&)>
judge_by_areas(pmm::ProcessGrid const& grid, graph::GraphStore const& store, pmm::Placement const& logits) {
  return [meter = std::make_shared<RocAuc const>(grid, store, logits)](pmm::DistMatrix<T> const& found,
                                                                       Scores& scores) {
    auto const areas = (*meter)(found);
    for (std::size_t s = 0; s < areas.size(); ++s)
      scores[s].roc_auc = areas[s];
  };
}

} // namespace orthant::models
