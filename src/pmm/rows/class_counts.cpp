// SPDX-License-Identifier: Apache-2.0
#include "pmm/rows/class_counts.hpp"

#include <algorithm>

namespace orthant::pmm::detail {

void add_class_scores(std::span<double const> counts, LossKind kind, GroupScore& score) {
  auto both = 0.0;
  auto either = 0.0; // there and predicted, added up
  auto f1_sum = 0.0;
  auto num_classes = 0.0;
  auto most = 0.0;
  for (std::size_t at = 0; at < counts.size(); at += num_class_counts) {
    auto const of_class = counts.subspan(at, num_class_counts);
    auto const there = of_class[class_there];
    auto const sum = there + of_class[class_predicted];
    both += of_class[class_both];
    either += sum;
    f1_sum += sum > 0 ? 2 * of_class[class_both] / sum : 0.0;
    if (kind == LossKind::softmax) {
      num_classes += sum > 0 ? 1 : 0;
      most = std::max(most, there);
      score.num_most_predicted =
          std::max(score.num_most_predicted, static_cast<std::int64_t>(of_class[class_predicted]));
    } else {
      num_classes += of_class[class_known] > 0 ? 1 : 0;
      most += std::max(there, of_class[class_known] - there);
    }
  }
  score.macro_f1 = num_classes > 0 ? f1_sum / num_classes : 0.0;
  score.micro_f1 = either > 0 ? 2 * both / either : 0.0;
  score.num_most_frequent = static_cast<std::int64_t>(most);
}

} // namespace orthant::pmm::detail
