#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A collective that an operation is going to make. What is listed before a run equals what the ledgers count
// in it (docs/design.md 2.5).

#include "runtime/observe/ledger.hpp"

#include <cstdint>
#include <string>

namespace orthant::pmm {

/// Which ranks of a job a group has: that many, so far apart.
struct GroupSpan {
  int num_ranks = 1;
  int stride = 1; // of a group over several axes: that of the fastest

  friend bool operator==(GroupSpan const&, GroupSpan const&) = default;
};

struct PlannedCall {
  runtime::Operation operation{};
  std::string axis; // name of the communicator: "x", "y", "z", "data", "group"
  GroupSpan span;
  std::int64_t bytes = 0;      // of the logical buffer on this rank, as its ledger counts them
  std::int64_t sent_bytes = 0; // that this rank sends, as its ledger counts them

  friend bool operator==(PlannedCall const&, PlannedCall const&) = default;
};

} // namespace orthant::pmm
