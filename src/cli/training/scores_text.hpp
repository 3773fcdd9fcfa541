#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Scores of the splits, for the metrics and for readers.

#include "models/core/vertex_loss.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace orthant::cli {

/// train_acc, val_acc, test_acc, and the same of macro_f1, micro_f1 and, where it was found, roc_auc.
[[nodiscard]] nlohmann::ordered_json scores_json(models::Scores const& scores);

/// Four digits, or "-" where no class could be judged.
[[nodiscard]] std::string area_text(std::optional<double> area);

/// A line if the accuracy on the test vertices (validation vertices if there are none) is within a hundredth of that
/// of the most frequent class for all; else empty.
[[nodiscard]] std::string majority_text(models::Scores const& scores);

} // namespace orthant::cli
