#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where a training gets its batches from. A step takes K batches per data group; an epoch has a fixed number
// of steps. The source belongs to a network and a loss, and makes both ready for one batch after the other.

#include "runtime/error.hpp"
#include "runtime/report/timer.hpp"

#include <cstdint>
#include <optional>

namespace orthant::models {

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// The number of steps of an epoch.
  [[nodiscard]] virtual std::int64_t num_steps() const = 0;
  /// K, the batches per step and data group.
  [[nodiscard]] virtual std::int64_t num_accumulated() const = 0;
  /// About how many rows the loss of a step is over: gradients are divided by it until the step's batches
  /// have been counted. It is absent if all steps and all groups have one and the same batch, whose count is known.
  [[nodiscard]] virtual std::optional<std::int64_t> nominal_count() const = 0;

  /// Whether all batches have the same sizes, so that every step takes the same work (but for loads of experts).
  [[nodiscard]] virtual bool has_equal_batches() const { return false; }

  /// The next batch is the first one of that step: epochs from 1, steps from 0.
  virtual void start_at(std::int64_t epoch, std::int64_t step) = 0;
  /// Binds network and loss to the next batch, and returns what its dropout is keyed by: no other batch of a
  /// run has that key. Adds to `phases`. No communication.
  virtual std::uint64_t next(std::int64_t epoch, runtime::PhaseTimes& phases) = 0;
};

/// One batch that never changes, such as a whole graph: an epoch is one step.
class OneBatch final : public BatchSource {
 public:
  [[nodiscard]] std::int64_t num_steps() const override { return 1; }
  [[nodiscard]] std::int64_t num_accumulated() const override { return 1; }
  [[nodiscard]] std::optional<std::int64_t> nominal_count() const override { return std::nullopt; }
  [[nodiscard]] bool has_equal_batches() const override { return true; }
  void start_at(std::int64_t /*epoch*/, std::int64_t step) override {
    ORTHANT_REQUIRE(step == 0, "step ", step, " of epochs that have one");
  }
  std::uint64_t next(std::int64_t epoch, runtime::PhaseTimes& /*phases*/) override {
    return static_cast<std::uint64_t>(epoch);
  }
};

} // namespace orthant::models
