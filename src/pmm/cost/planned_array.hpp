#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// An array that an object or an operation is going to allocate. What is listed before a run equals what is
// allocated in it, label by label (docs/design.md 2.5).

#include <cstdint>
#include <string>

namespace orthant::pmm {

/// How long an array is held.
enum class Lifetime : std::uint8_t {
  training,   // to the end
  first_step, // until the first step is over
  operation   // until the operation that allocates it is over (StepPlan::end_operation)
};

struct PlannedArray {
  std::string label; // of the View; arrays of the host's own describe themselves
  std::int64_t bytes = 0;
  Lifetime lifetime = Lifetime::training;
  std::int64_t operation = 0; // arrays of one operation are held together

  friend bool operator==(PlannedArray const&, PlannedArray const&) = default;
};

} // namespace orthant::pmm
