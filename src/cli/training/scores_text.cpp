// SPDX-License-Identifier: Apache-2.0
#include "cli/training/scores_text.hpp"

#include "models/training/training_run.hpp"

#include <array>
#include <cmath>
#include <fmt/format.h>

namespace orthant::cli {
namespace {

constexpr std::array held_out{graph::Split::valid, graph::Split::test};

} // namespace

nlohmann::ordered_json scores_json(models::Scores const& scores) {
  nlohmann::ordered_json record;
  for (std::size_t s = 0; s < scores.size(); ++s) {
    if (are_of_links(scores) && !scores[s].ranking) continue;
    for (auto const& [measure, value] : models::named_measures(scores[s]))
      record[fmt::format("{}_{}", models::split_names[s], measure)] = value;
    if (scores[s].ranking) record[fmt::format("{}_loss", models::split_names[s])] = scores[s].loss;
  }
  return record;
}

std::string link_table(std::vector<std::pair<std::string, models::Scores const*>> const& named_scores) {
  using Score = models::SplitScore;
  auto text = fmt::format("{:<18}{:>10}{:>10}\n", "links", "valid", "test");
  for (auto const& [name, scores] : named_scores) {
    auto const line = [&](std::string const& what, auto const& number_of) {
      text += fmt::format("{:<18}", what);
      for (auto const split : held_out) {
        auto const& score = (*scores)[static_cast<std::size_t>(split)];
        text += fmt::format("{:>10}", score.ranking ? area_text(number_of(score)) : "-");
      }
      text += '\n';
    };
    text += name + '\n';
    line("  ROC-AUC", [](Score const& score) { return score.roc_auc; });
    line("  MRR", [](Score const& score) { return std::optional(score.ranking->mrr); });
    for (std::size_t i = 0; i < models::hits_at.size(); ++i)
      line(fmt::format("  Hits@{}", models::hits_at[i]),
           [i](Score const& score) { return std::optional(score.ranking->hits[i]); });
    line("  loss", [](Score const& score) { return std::optional(score.loss); });
  }
  return text;
}

std::string regression_table(std::vector<std::pair<std::string, models::Scores const*>> const& named_scores) {
  auto text = fmt::format("{:<9}{:>10}{:>10}{:>10}\n", "", "train", "valid", "test");
  for (auto const& [name, scores] : named_scores) {
    auto const& [train, valid, test] = *scores;
    text += name + '\n';
    text += fmt::format("{:<9}{:>10.4f}{:>10.4f}{:>10.4f}\n", "  R2", train.r2, valid.r2, test.r2);
    text += fmt::format("{:<9}{:>10.4g}{:>10.4g}{:>10.4g}\n", "  MAE", train.mae, valid.mae, test.mae);
    text += fmt::format("{:<9}{:>10.4g}{:>10.4g}{:>10.4g}\n", "  loss", train.loss, valid.loss, test.loss);
    text += fmt::format("{:<9}{:>10}{:>10}{:>10}\n", "  targets", train.num_counted, valid.num_counted,
                        test.num_counted);
  }
  return text;
}

std::string_view name_of(Merit merit) {
  return merit == Merit::roc_auc ? "ROC-AUC" : merit == Merit::r2 ? "R2" : "accuracy";
}

Merit merit_of(models::Scores const& scores) {
  return are_of_links(scores) ? Merit::roc_auc : scores[0].is_of_numbers ? Merit::r2 : Merit::accuracy;
}

std::string monitored_text(std::string_view monitor, Merit merit) {
  if (monitor == "loss") return "loss";
  if (monitor == "mae") return "MAE";
  return fmt::format("{}{}", name_of(merit), monitor == "both" ? " and loss" : "");
}

std::string area_text(std::optional<double> area) {
  return area ? fmt::format("{:.4f}", *area) : std::string("-");
}

std::string majority_text(models::Scores const& scores) {
  constexpr auto near = 0.01;
  auto const split = scores[2].num_counted > 0 ? graph::Split::test : graph::Split::valid;
  auto const& score = scores[static_cast<std::size_t>(split)];
  if (score.num_counted == 0 || score.is_of_numbers ||
      std::abs(score.accuracy() - score.majority_share()) > near)
    return {};
  return fmt::format(
      "the {} accuracy, {:.4f}, is about that of always giving the most frequent answer, {:.4f}\n",
      graph::name_of(split), score.accuracy(), score.majority_share());
}

} // namespace orthant::cli
