// SPDX-License-Identifier: Apache-2.0
#include "models/experts/expert_load.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orthant::models {
namespace {

double total_of(std::vector<std::int64_t> const& counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

} // namespace

double ExpertLoad::imbalance() const {
  auto const sum = total_of(chosen);
  if (sum == 0) return 1;
  return static_cast<double>(*std::max_element(chosen.begin(), chosen.end())) *
         static_cast<double>(chosen.size()) / sum;
}

double ExpertLoad::entropy() const {
  auto const all = total_of(chosen);
  auto sum = 0.0;
  for (auto const count : chosen)
    if (count > 0) sum -= static_cast<double>(count) / all * std::log(static_cast<double>(count) / all);
  return sum;
}

} // namespace orthant::models
