#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Loss and accuracy of a graph's vertices: softmax cross-entropy if each has one class, binary cross-entropy
// if it may have several. The splits of the vertices are the groups of rows of the loss: train, which carries
// the loss, valid and test. The loss is the mean over the labelled vertices of a split (several classes: over
// their known entries).

#include "graph/store/store_reader.hpp"
#include "pmm/rows/row_loss.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

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
  std::optional<double> roc_auc; // roc_auc.hpp; none if it was not asked for, or if no class can be judged
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

} // namespace orthant::models
