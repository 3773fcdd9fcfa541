#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the watchdog judges and prints: whether a job hangs, where every rank stands, equal ranks together,
// and who has not arrived.

#include "runtime/observe/position.hpp"

#include <span>
#include <string>

namespace orthant::runtime {

struct RankState {
  bool has_answered = false;
  Whereabouts position;
};

/// Whether some rank waits in a collective and no rank has shown life for more than `timeout_seconds`. A rank
/// that does not answer shows none.
[[nodiscard]] bool is_hang(std::span<RankState const> states, double timeout_seconds);

/// Whether no rank has moved from `before` to `after`.
[[nodiscard]] bool stood_still(std::span<RankState const> before, std::span<RankState const> after);

/// states[r] is rank r's; `reporter` the rank that writes. Several lines, the last one ended too.
[[nodiscard]] std::string describe_hang(std::span<RankState const> states, double timeout_seconds,
                                        int reporter);

/// One rank's own words where the watchdogs cannot talk to each other.
[[nodiscard]] std::string describe_own_hang(Whereabouts const& position, double timeout_seconds, int rank);

/// "0-3,7" from ascending numbers.
[[nodiscard]] std::string format_ranges(std::span<int const> numbers);

} // namespace orthant::runtime
