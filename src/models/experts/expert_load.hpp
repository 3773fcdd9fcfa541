#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How evenly the experts of a layer are chosen in a pass.

#include <cstdint>
#include <vector>

namespace orthant::models {

struct ExpertLoad {
  std::int64_t layer = 0;
  std::vector<std::int64_t> chosen; // [experts] choices of all ranks
  std::int64_t num_dropped = 0;     // of them, those that had no slot

  /// The largest over the mean: 1 is even.
  [[nodiscard]] double imbalance() const;
  /// Of the shares of the choices, in nats: log(experts) is even.
  [[nodiscard]] double entropy() const;
};

} // namespace orthant::models
