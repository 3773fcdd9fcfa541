// SPDX-License-Identifier: Apache-2.0
#include "cli/training/scores_text.hpp"

#include <array>
#include <cmath>
#include <fmt/format.h>

namespace orthant::cli {

nlohmann::ordered_json scores_json(models::Scores const& scores) {
  auto const& [train, valid, test] = scores;
  nlohmann::ordered_json record{
      {"train_acc", train.accuracy()},    {"val_acc", valid.accuracy()},    {"test_acc", test.accuracy()},
      {"train_macro_f1", train.macro_f1}, {"val_macro_f1", valid.macro_f1}, {"test_macro_f1", test.macro_f1},
      {"train_micro_f1", train.micro_f1}, {"val_micro_f1", valid.micro_f1}, {"test_micro_f1", test.micro_f1}};
  constexpr std::array names{"train_roc_auc", "val_roc_auc", "test_roc_auc"};
  for (std::size_t s = 0; s < scores.size(); ++s)
    if (scores[s].roc_auc) record[names[s]] = *scores[s].roc_auc;
  return record;
}

std::string area_text(std::optional<double> area) {
  return area ? fmt::format("{:.4f}", *area) : std::string("-");
}

std::string majority_text(models::Scores const& scores) {
  constexpr auto near = 0.01;
  auto const split = scores[2].num_counted > 0 ? graph::Split::test : graph::Split::valid;
  auto const& score = scores[static_cast<std::size_t>(split)];
  if (score.num_counted == 0 || std::abs(score.accuracy() - score.majority_share()) > near) return {};
  return fmt::format(
      "the {} accuracy, {:.4f}, is about that of always giving the most frequent answer, {:.4f}\n",
      graph::name_of(split), score.accuracy(), score.majority_share());
}

} // namespace orthant::cli
