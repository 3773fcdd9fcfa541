// SPDX-License-Identifier: Apache-2.0
#include "runtime/suggestion.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <utility>

namespace orthant::runtime {
namespace {

std::string normal_form(std::string_view word) {
  std::string text;
  for (auto const character : word)
    text += character == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(character)));
  return text;
}

/// Names of options in other programs for graphs and networks, and our names.
constexpr std::array<std::pair<std::string_view, std::string_view>, 23> other_names{{
    {"batch-size", "batch"},      {"train-batch-size", "batch"}, {"learning-rate", "lr"},
    {"wd", "weight-decay"},       {"l2", "weight-decay"},        {"hidden-channels", "hidden"},
    {"hidden-dim", "hidden"},     {"hidden-size", "hidden"},     {"hidden-feats", "hidden"},
    {"num-hidden", "hidden"},     {"n-hidden", "hidden"},        {"num-layers", "layers"},
    {"n-layers", "layers"},       {"num-epochs", "epochs"},      {"n-epochs", "epochs"},
    {"max-epochs", "epochs"},     {"drop-rate", "dropout"},      {"optim", "optimizer"},
    {"random-seed", "seed"},      {"grad-clip", "clip-norm"},    {"early-stopping", "patience"},
    {"eval-steps", "eval-every"}, {"log-steps", "log-every"},
}};

} // namespace

std::size_t edit_distance(std::string_view x, std::string_view y) {
  // d[i][j] is the distance of the first i letters of x to the first j of y; only three rows are stored.
  std::vector<std::size_t> before_last(y.size() + 1);
  std::vector<std::size_t> last(y.size() + 1);
  std::vector<std::size_t> row(y.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= x.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= y.size(); ++j) {
      auto const replaced = last[j - 1] + (x[i - 1] == y[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[y.size()];
}

std::optional<std::string> detail::closest_match(std::string_view word,
                                                 std::vector<std::string_view> const& candidates) {
  auto const wanted = normal_form(word);
  for (auto const& [other, name] : other_names)
    if (other == wanted)
      for (auto const candidate : candidates)
        if (normal_form(candidate) == name) return std::string(candidate);
  std::optional<std::string> best;
  double best_share = 1; // fraction of letters that differ
  for (auto const candidate : candidates) {
    auto const known = normal_form(candidate);
    auto const longest = std::max({wanted.size(), known.size(), std::size_t{1}});
    auto share = static_cast<double>(edit_distance(wanted, known)) / static_cast<double>(longest);
    // Two swapped letters or one wrong letter in a word of two or three letters are also close enough.
    auto const is_near = share <= 1.0 / 3 || (share <= 0.5 && longest <= 3);
    auto const is_beginning = wanted.size() >= 3 && known.starts_with(wanted);
    if ((is_near || is_beginning) && (!best || share < best_share)) {
      best = std::string(candidate);
      best_share = share;
    }
  }
  return best;
}

} // namespace orthant::runtime
