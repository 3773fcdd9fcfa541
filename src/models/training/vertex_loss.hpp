#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Loss and scores of a graph's vertices: softmax cross-entropy if each vertex has one class, binary cross-entropy if it may have
// several, and a loss of numbers for targets of regression. Splits are groups of rows of the loss: train, which contributes to the
// training loss, valid and test. The loss of a split is the mean over its labeled vertices (several classes: over their known entries;
// regression: over their targets). Also the area under the ROC curve (below).

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

/// The loss has one group of rows per split, numbered as graph::Split.
inline constexpr int num_splits = 3;
static_assert(static_cast<int>(graph::Split::train) == pmm::loss_row_group);

/// The values of K for Hits@K.
inline constexpr std::array<std::int64_t, 4> hits_at{10, 20, 50, 100};
/// Ranks of links among pairs that are not links (gnn/links/link_loss.hpp).
struct RankingScore {
  double mrr = 0;
  std::array<double, hits_at.size()> hits{};
};

/// Loss and accuracy of one split: of vertices, or of links and pairs that are not links.
struct SplitScore : pmm::GroupScore {
  std::optional<double> roc_auc;       // nullopt if not requested, or if no class can be judged
  std::optional<RankingScore> ranking; // links only
  [[nodiscard]] double accuracy() const {
    return num_counted == 0 ? 0.0 : static_cast<double>(num_correct) / static_cast<double>(num_counted);
  }
  /// Value by which the best epoch is chosen: the accuracy, the area under the ROC curve for links, or R2 for regression.
  [[nodiscard]] double merit() const {
    return ranking ? roc_auc.value_or(0) : is_of_numbers ? r2 : accuracy();
  }
  /// Accuracy of predicting the most frequent class for every vertex.
  [[nodiscard]] double majority_share() const {
    return num_counted == 0 ? 0.0 : static_cast<double>(num_most_frequent) / static_cast<double>(num_counted);
  }
};
/// Scores of train, valid and test, indexed by graph::Split.
using Scores = std::array<SplitScore, num_splits>;
/// Converts the scores of a loss to scores by split. A split without a group of rows has a count of 0.
[[nodiscard]] Scores scores_of(std::span<pmm::GroupScore const> groups);

/// Kind of loss for the labels of this graph. `trains_entries`: training uses a binary loss even if vertices have one class.
[[nodiscard]] pmm::LossKind loss_kind_of(graph::StoreFacts const& facts, bool trains_entries = false);

/// Lists the arrays of read_vertex_targets().
void plan_target_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::Placement const& logits);
/// Lists the arrays of make_vertex_loss().
void plan_vertex_loss_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts,
                             pmm::Placement const& logits);

/// Reads the targets of the vertices in this rank's rows of logits with this placement. Collective over the grid's group. The store
/// must have labels and a split; otherwise throws UserError.
[[nodiscard]] pmm::RowTargets read_vertex_targets(pmm::ProcessGrid const& grid,
                                                  graph::GraphStore const& store,
                                                  pmm::Placement const& logits);

/// Weights of training vertices in the loss. none: all 1. balanced: n / (K n_c) for a vertex of class c, where n is the number of
/// labels of training vertices, K the number of classes they have, and n_c the number of them in class c. If vertices have one class, the
/// mean of these weights is 1. A binary or focal loss multiplies its terms of class c by the weight of c.
enum class ClassWeights : std::uint8_t { none, balanced };
/// Accepts "none" or "balanced". Throws UserError for other words.
[[nodiscard]] ClassWeights parse_class_weights(std::string_view word);
/// Loss of training vertices (pmm/rows/row_loss.hpp). automatic: the cross-entropy over the classes, binary if vertices may have several,
/// or squared_error for targets of regression. binary: the cross-entropy of each class on its own. focal: binary, with a lower weight for
/// terms that are predicted well. The others are losses of numbers.
enum class LossFunction : std::uint8_t { automatic, binary, focal, squared_error, absolute_error, huber };
/// Accepts "auto" or "cross-entropy" (both automatic), "binary", "focal", "mse", "mae" or "huber". Throws UserError for other words.
[[nodiscard]] LossFunction parse_loss_function(std::string_view word);
/// Options of the loss of training vertices. Scores do not use them.
struct VertexLossSettings {
  ClassWeights class_weights = ClassWeights::none;
  double label_smoothing = 0; // RowLoss::set_label_smoothing()
  LossFunction function = LossFunction::automatic;
  double focal_gamma = 2;
  double z_loss = 0; // RowLoss::set_z_loss(); language models only

  /// True if training uses a binary loss even if vertices have one class.
  [[nodiscard]] bool trains_entries() const {
    return function == LossFunction::binary || function == LossFunction::focal;
  }
};

/// The loss of a store's vertices, for logits with this placement. Reads the targets of this rank's rows. Collective over the
/// grid's group. Throws UserError if the store has no labels, no split or no labeled training vertex.
template<class T>
[[nodiscard]] pmm::RowLoss<T> make_vertex_loss(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                               pmm::Placement const& logits,
                                               VertexLossSettings const& settings = {});

// Area under the ROC curve: the probability that a vertex of a class is ranked above a vertex that is not of the class.
//
//   AUC_j = ( #(s_uj > s_vj) + #(s_uj = s_vj) / 2 ) / (n_pos n_neg)      u of class j, v not of it
//
// With one class per vertex, s is the softmax of the logits, and each class is compared with the rest. With several classes, s is
// the logit, over known entries. The score is the mean of AUC_j over the classes that some, but not all vertices of the split have
// (one-vs-rest macro, as scikit-learn's roc_auc_score; with two classes both have the same AUC).

/// Areas by split; nullopt if no class of the split can be judged.
using Areas = std::array<std::optional<double>, 3>;

/// Computes the areas for logits of a store's vertices. Reads labels and splits of this rank's rows once: one byte per vertex and
/// class, and three per vertex.
class RocAuc {
 public:
  /// For logits with this placement. `grid` must outlive this object. Collective over the grid's world. Throws UserError if
  /// the store cannot be read.
  RocAuc(pmm::ProcessGrid const& grid, graph::GraphStore const& store, pmm::Placement const& logits);

  /// Areas of train, valid and test, indexed by graph::Split. Exact, including ties: classes are distributed over the ranks, and
  /// each rank sorts one class at a time. Each score of a split is sent once (16 bytes), in as many rounds as there are classes per
  /// rank. Memory per rank during the call: 8 bytes per vertex of its rows and class, and 48 bytes per vertex of the split.
  /// Collective over the grid's world.
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
  std::size_t num_rows_ = 0;        // rows of this rank,
  runtime::Range classes_;          // and its columns
  std::vector<std::int8_t> has_it_; // [rows x classes] 1, 0 or is_unknown
  std::array<std::vector<std::uint8_t>, 3> masks_;
};

/// Largest memory of RocAuc on this rank, in bytes.
[[nodiscard]] std::int64_t bytes_of_areas(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                                          pmm::Placement const& logits);

/// Function that adds the areas to the scores of an evaluation (Trainer::judge_also_by). Collective over the grid's world. Throws
/// UserError if the store cannot be read.
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
