#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Scores of the splits, for the metrics and for readers.

#include "models/training/vertex_loss.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::cli {

/// train_acc, val_acc, test_acc, and the same of macro_f1, micro_f1 and, where it was found, roc_auc. Of links val_roc_auc,
/// val_mrr, val_hits_at_10 and so on, and the same of test.
[[nodiscard]] nlohmann::ordered_json scores_json(models::Scores const& scores);

/// Whether they are of links.
[[nodiscard]] inline bool are_of_links(models::Scores const& scores) {
  return scores[1].ranking || scores[2].ranking;
}
/// What evaluations are compared by with such a --monitor: "accuracy", "ROC-AUC and loss".
[[nodiscard]] std::string monitored_text(std::string_view monitor, bool is_of_links);
/// Measures of links by split, four digits each: a block of lines for each name. 39 characters a line.
[[nodiscard]] std::string
link_table(std::vector<std::pair<std::string, models::Scores const*>> const& named_scores);

/// Four digits, or "-" where no class could be judged.
[[nodiscard]] std::string area_text(std::optional<double> area);

/// A line if the accuracy on the test vertices (validation vertices if there are none) is within a hundredth of that
/// of the most frequent class for all; else empty.
[[nodiscard]] std::string majority_text(models::Scores const& scores);

} // namespace orthant::cli
