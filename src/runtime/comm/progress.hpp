#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sums of encoded numbers go through several phases, and MPI does not take them from one to the next. So whoever
// waits or tests takes all open ones along: no rank holds another one up by the order of its waits.

#include "runtime/comm/backend.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace orthant::runtime::detail {

/// The exchanges of several phases that are open in a communicator and in those that are split from it.
class Progress {
 public:
  void add(Exchange& exchange) { open_.push_back(&exchange); }
  void remove(Exchange& exchange) noexcept { std::erase(open_, &exchange); }
  [[nodiscard]] bool is_needed() const { return !open_.empty(); }
  /// Never waits.
  void advance() const {
    for (auto* const exchange : open_)
      static_cast<void>(exchange->test());
  }

 private:
  std::vector<Exchange*> open_;
};

/// Tags of calls that ranks may begin in different orders (Backend::begin). The k-th tag that is lent is the
/// same on all ranks.
class MatchTags {
 public:
  static constexpr int num_tags = 512;

  /// Throws Error if the last call but num_tags is not over.
  int lend() {
    auto const tag = 1 + static_cast<int>(num_lent_++ % num_tags);
    ORTHANT_REQUIRE(std::ranges::find(lent_, tag) == lent_.end(), "no more than ", num_tags,
                    " sums of encoded numbers may be open between the oldest and the newest");
    lent_.push_back(tag);
    return tag;
  }
  void give_back(int tag) noexcept { std::erase(lent_, tag); }

 private:
  std::int64_t num_lent_ = 0;
  std::vector<int> lent_;
};

} // namespace orthant::runtime::detail
