#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Loss and accuracy of a graph's vertices: softmax cross-entropy if each has one class, binary cross-entropy
// if it may have several. The splits of the vertices are the groups of rows of the loss: train, which carries
// the loss, valid and test. The loss is the mean over the labelled vertices of a split (several classes: over
// their known entries).

#include "graph/store/store_reader.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/rows/row_loss.hpp"
#include "runtime/range.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::models {

/// The loss has a group of rows for each split, by the number of graph::Split.
inline constexpr int num_splits = 3;
static_assert(static_cast<int>(graph::Split::train) == pmm::loss_row_group);

/// The K of Hits@K.
inline constexpr std::array<std::int64_t, 4> hits_at{10, 20, 50, 100};
/// How links are ranked among pairs that are none (gnn/links/link_loss.hpp).
struct RankingScore {
  double mrr = 0;
  std::array<double, hits_at.size()> hits{};
};

/// Loss and accuracy of one split: of vertices, or of links and pairs that are none.
struct SplitScore : pmm::GroupScore {
  std::optional<double>
      roc_auc; // vertex_loss.hpp; none if it was not asked for, or if no class can be judged
  std::optional<RankingScore> ranking; // of links; none of vertices
  [[nodiscard]] double accuracy() const {
    return num_counted == 0 ? 0.0 : static_cast<double>(num_correct) / static_cast<double>(num_counted);
  }
  /// What makes an epoch the best: the accuracy, or the area under the ROC curve if links are ranked.
  [[nodiscard]] double merit() const { return ranking ? roc_auc.value_or(0) : accuracy(); }
  /// The accuracy of the most frequent class for every vertex.
  [[nodiscard]] double majority_share() const {
    return num_counted == 0 ? 0.0 : static_cast<double>(num_most_frequent) / static_cast<double>(num_counted);
  }
};
/// Of train, valid and test; indexed by graph::Split.
using Scores = std::array<SplitScore, num_splits>;
/// The scores of a loss by split. A split without a group of rows has counted nothing.
[[nodiscard]] Scores scores_of(std::span<pmm::GroupScore const> groups);

/// The loss of vertices with such labels.
[[nodiscard]] pmm::LossKind loss_kind_of(graph::StoreFacts const& facts);

/// Lists the arrays of make_vertex_loss().
void plan_vertex_loss_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts,
                             pmm::Placement const& logits);

/// What the vertices of this rank's rows of such logits should be. Collective over the grid's group. Throws
/// UserError if the store has no labels or no split.
[[nodiscard]] pmm::RowTargets read_vertex_targets(pmm::ProcessGrid const& grid,
                                                  graph::GraphStore const& store,
                                                  pmm::Placement const& logits);

/// What the loss of a training vertex is multiplied by: nothing, or n / (K n_c) for its class c, n the labelled
/// training vertices, K the classes they have and n_c those of class c. The mean of these weights is 1.
enum class ClassWeights : std::uint8_t { none, balanced };
/// "none" or "balanced". Throws UserError for another word.
[[nodiscard]] ClassWeights parse_class_weights(std::string_view word);
/// What the user asks of the loss of training vertices; scores know nothing of it.
struct VertexLossSettings {
  ClassWeights class_weights = ClassWeights::none;
  double label_smoothing = 0; // RowLoss::set_label_smoothing()
};
/// Throws UserError if vertices may have several classes, and classes are to be weighed or labels smoothed. Not
/// collective.
void require_fitting_labels(graph::GraphStore const& store, VertexLossSettings const& settings);

/// The loss of a store's vertices, for logits of that placement. Reads the targets of this rank's rows.
/// Collective over the grid's group. Throws UserError if the store has no labels, no split, or no labelled
/// training vertex, or as require_fitting_labels().
template<class T>
[[nodiscard]] pmm::RowLoss<T> make_vertex_loss(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                               pmm::Placement const& logits,
                                               VertexLossSettings const& settings = {});

// The area under the ROC curve: how often a vertex of a class is ranked above one that is not of it.
//
//   AUC_j = ( #(s_uj > s_vj) + #(s_uj = s_vj) / 2 ) / (n_pos n_neg)      u of class j, v not of it
//
// One class per vertex: s = softmax of the logits, each class against the rest. Several: s = the logit, over known
// entries. The score is the mean of AUC_j over the classes that some vertices of the split have and some have not
// (one-vs-rest macro, as scikit-learn's roc_auc_score; of two classes both have the same AUC).

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
