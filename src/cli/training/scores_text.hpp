#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Text and JSON of the scores of train, validation and test split, for the metrics and for the terminal.

#include "models/training/vertex_loss.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::cli {

/// Fields train_acc, val_acc, test_acc, the same of macro_f1, micro_f1 and (if computed) roc_auc. For links: val_roc_auc, val_mrr,
/// val_hits_at_10 and so on, for validation and test only. For regression: train_r2, train_mae and so on.
[[nodiscard]] nlohmann::ordered_json scores_json(models::Scores const& scores);

/// True if these are scores of links.
[[nodiscard]] inline bool are_of_links(models::Scores const& scores) {
  return scores[1].ranking || scores[2].ranking;
}
/// The score that --monitor accuracy compares.
enum class Merit : std::uint8_t { accuracy, roc_auc, r2 };
[[nodiscard]] std::string_view name_of(Merit merit);
[[nodiscard]] Merit merit_of(models::Scores const& scores);
/// Names of the scores that --monitor compares evaluations by: "accuracy", "ROC-AUC and loss".
[[nodiscard]] std::string monitored_text(std::string_view monitor, Merit merit);
/// Table of R2 and mean absolute error by split, as link_table().
[[nodiscard]] std::string
regression_table(std::vector<std::pair<std::string, models::Scores const*>> const& named_scores);
/// Table of the measures of links by split, with four digits: a block of lines per name, 39 characters per line.
[[nodiscard]] std::string
link_table(std::vector<std::pair<std::string, models::Scores const*>> const& named_scores);

/// The area with four digits, or "-" if there is none because no class could be evaluated.
[[nodiscard]] std::string area_text(std::optional<double> area);

/// A warning line if the accuracy on the test vertices (validation vertices if there are none) is within 0.01 of the accuracy of always
/// predicting the most frequent class; otherwise empty.
[[nodiscard]] std::string majority_text(models::Scores const& scores);

} // namespace orthant::cli
